"""Names of the field that say only together what one of our keys says: passes times accumulation, and two betas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.run.errors import InputError
from outlive.run.excerpt import both
from outlive.run.names.given import Given, two_names
from outlive.run.names.table import ACCUMULATION, BETAS, PER_DEVICE, WHOLE_STEP
from outlive.run.settings.training import Optimizer
from outlive.run.yaml_file import Key, dotted, shown

BATCH = (*PER_DEVICE, ACCUMULATION, *WHOLE_STEP)


def is_of_batch(key: Key) -> bool:
    """Whether `key` is one of the names that say together how large a step is."""
    return key[-1] in BATCH and (len(key) == 1 or key[:-1] == ("batch",))


def is_beta(key: Key) -> bool:
    """Whether `key` names one of Adam's two betas."""
    return key[-1] in BETAS and (len(key) == 1 or key[:-1] == ("optimizer",))


def batch_settings(given: list[Given], current: dict[str, Any]) -> list[tuple[list[Given], Given]]:
    """What passes of one device, accumulation and the size of the whole step come to in the batch section."""
    groups = [_only(given, names) for names in (PER_DEVICE, (ACCUMULATION,), WHOLE_STEP)]
    for several, key in zip(groups, ("micro_sequences", "sequences", "sequences"), strict=True):
        if len(several) > 1:
            raise two_names(several[0], several[1], ("batch", key))
    for item in [item for several in groups for item in several]:
        if not isinstance(item.value, int) or isinstance(item.value, bool) or item.value < 1:
            raise InputError(
                f"{dotted(item.key)}: {shown(item.value)}, expected a whole number from 1",
                where=item.place,
                fix=f"set {dotted(item.key)} to 1 or more",
            )
    device, passes, whole = groups
    if whole:
        return _whole_step(device, passes, whole)
    if not device and not passes:
        return []
    section = current.get("batch")
    section = section if isinstance(section, dict) else {}
    size = device[0].value if device else section.get("micro_sequences")
    if not isinstance(size, int):
        raise InputError(
            f"{ACCUMULATION} alone does not say how large a step is",
            where=passes[0].place,
            fix=f"also set {PER_DEVICE[0]}, or set batch.sequences or batch.tokens in place of both",
        )
    result = [(device, Given(("batch", "micro_sequences"), size, device[0].place))] if device else []
    if passes or section.get("sequences") is None:
        num_passes = passes[0].value if passes else 1
        place = (passes or device)[0].place
        result.append(([*passes, *device], Given(("batch", "sequences"), size * num_passes, place)))
    return result


def _whole_step(device: list[Given], passes: list[Given], whole: list[Given]) -> list[tuple[list[Given], Given]]:
    total = whole[0]
    if device and passes and device[0].value * passes[0].value != total.value:
        raise InputError(
            f"{dotted(total.key)} {total.value} is not {dotted(device[0].key)} {device[0].value} × {ACCUMULATION} "
            f"{passes[0].value} on one device",
            where=both(total.place, device[0].place),
            fix="set batch.sequences to the whole step, and batch.micro_sequences to one pass",
        )
    pairs = [([*whole, *(passes if device else [])], Given(("batch", "sequences"), total.value, total.place))]
    if device:
        pairs.append((device, Given(("batch", "micro_sequences"), device[0].value, device[0].place)))
    elif passes:
        size = -(-total.value // passes[0].value)
        pairs.append(([*whole, *passes], Given(("batch", "micro_sequences"), size, passes[0].place)))
    return pairs


def betas_settings(given: list[Given], current: dict[str, Any]) -> list[tuple[list[Given], Given]]:
    """What the betas that are given, one or both, come to; the other is the present one."""
    given = [item for item in given if item.value is not None]
    if not given:
        return []
    section = current.get("optimizer")
    before = section.get("betas") if isinstance(section, dict) else None
    betas = list(before) if isinstance(before, list) and len(before) == 2 else list(Optimizer().betas)
    for place, name in enumerate(BETAS):
        several = _only(given, (name,))
        if len(several) > 1:
            raise two_names(several[0], several[1], ("optimizer", "betas"))
        if several:
            betas[place] = several[0].value
    return [(given, Given(("optimizer", "betas"), betas, given[0].place))]


def _only(given: list[Given], names: Sequence[str]) -> list[Given]:
    return [item for item in given if item.key[-1] in names and item.value not in (None, "auto")]
