"""The field's names for our keys: each use noted, two names for one key refused, and no key of the field ignored.

Names are accepted at the top level of a run file, in overrides, and inside the section that their key belongs to.
"""

from __future__ import annotations

import difflib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outlive.run.errors import InputError
from outlive.run.excerpt import both
from outlive.run.names.given import Given, refuse_twice, two_names
from outlive.run.names.known import KNOWN, Known
from outlive.run.names.known.base import EVERY
from outlive.run.names.pairs import BATCH, batch_settings, betas_settings, is_beta, is_of_batch
from outlive.run.names.table import BETAS, PER_DEVICE, TABLE, Synonym
from outlive.run.names.values import NO_ADAPTER, NO_EFFECT, Weak, source_of
from outlive.run.settings.base import Mistake, Section
from outlive.run.settings.whole import Run
from outlive.run.yaml_file import Key, dotted, shown

__all__ = ["Given", "is_synonym", "known_names", "refuse_twice", "source_of", "taken_as", "translate", "two_names"]


@dataclass
class _Found:
    """What the names in one place come to."""

    settings: list[tuple[Given, Given]]
    notes: list[str]
    weak: list[tuple[Given, Synonym, Any]]
    refused: list[InputError]


_TOP = {name: synonym for synonym in TABLE for name in synonym.names}
_INSIDE = {
    (synonym.key[0], name): synonym
    for synonym in TABLE
    if len(synonym.key) > 1
    for name in (*synonym.names, *synonym.short)
    if name != synonym.key[0] and (name != synonym.key[1] or name in synonym.short)
}
_KNOWN = {name: known for known in KNOWN for name in known.names}
# Our own keys, which are read as another name only for a value of this type.
_SHORTHANDS: dict[Key, type] = {
    ("optimizer",): str,
    ("adapter",): str,
    ("method",): str,
    ("data",): str,
    ("data", "train"): str,
    ("data", "validation"): str,
    ("data", "packing"): bool,
}


def known_names(section: str | None) -> list[str]:
    """The other names that are accepted inside `section`, or at the top level (None)."""
    if section is None:
        return [*_TOP, *BATCH, *BETAS]
    pairs = {"batch": BATCH, "optimizer": BETAS}.get(section, ())
    return [*(name for inside, name in _INSIDE if inside == section), *pairs]


def taken_as(key: Key) -> Key | None:
    """Our key for a name of the field; None for a name that is none."""
    if is_of_batch(key):
        return ("batch", "micro_sequences" if key[-1] in PER_DEVICE else "sequences")
    if is_beta(key):
        return ("optimizer", "betas")
    synonym = _synonym(key)
    return synonym.key if synonym else None


def is_synonym(key: Key, value: Any) -> bool:
    """Whether `key`, as written, is a name of the field: of one of our keys, or known to have no counterpart.

    A section given as one text is one, too.
    """
    if key in _SHORTHANDS:
        return isinstance(value, _SHORTHANDS[key])
    return is_of_batch(key) or is_beta(key) or bool(_synonym(key) or _known(key))


def translate(given: list[Given], current: dict[str, Any]) -> tuple[list[tuple[Given, Given]], list[str]]:
    """The same settings as pairs (as written, under our key), and one note per name used.

    `current` is what the file has set so far. InputError with both places when two names say the same key, and with
    the reason for a known key that asks for what does not exist here.
    """
    found = _Found([], [], [], [])
    batch = [item for item in given if is_of_batch(item.key)]
    betas = [item for item in given if is_beta(item.key)]
    for item in given:
        if item.value is None or (item in batch and item.value == "auto"):
            found.notes.append(_nothing(item))
        elif synonym := _synonym(item.key):
            _add(found, item, synonym)
        elif item not in batch and item not in betas and (known := _known(item.key)):
            _explain(found, item, known)
    _add_weak(found)
    for members, setting in [*batch_settings(batch, current), *betas_settings(betas, current)]:
        found.settings.append((members[0], setting))
        remark = "on one device" if setting.key[0] == "batch" else ""
        found.notes.append(_note(members, setting.key, setting.value, len(members) > 1, remark))
    _raise_all(found.refused)
    _refuse_adapter_beside_none(found.settings)
    refuse_twice(found.settings)
    return found.settings, found.notes


def _synonym(key: Key) -> Synonym | None:
    if len(key) == 1:
        return _TOP.get(str(key[0]))
    return _INSIDE.get((str(key[0]), str(key[1]))) if len(key) == 2 else None


def _known(key: Key) -> Known | None:
    """A key without a counterpart, at the top level or in one of our sections; not what is nearly a key of its own."""
    name = str(key[-1])
    if len(key) == 1:
        return _KNOWN.get(name)
    own = _own_keys(str(key[0])) if len(key) == 2 else {}
    return _KNOWN.get(name) if own and not difflib.get_close_matches(name, own, n=1, cutoff=0.8) else None


def _own_keys(section: str) -> Mapping[str, Any]:
    """The keys of one of our sections; empty for what is none."""
    field = Run.model_fields.get(section)
    options = () if field is None else (field.annotation, *typing.get_args(field.annotation))
    return next((item.model_fields for item in options if isinstance(item, type) and issubclass(item, Section)), {})


def _add(found: _Found, item: Given, synonym: Synonym) -> None:
    try:
        value = synonym.convert(item.value) if synonym.convert else item.value
    except Mistake as mistake:
        found.refused.append(_refusal(item, mistake))
        return
    if value is NO_EFFECT:
        found.notes.append(_nothing(item, synonym.remark))
    elif isinstance(value, Weak):
        found.weak.append((item, synonym, value.value))
    else:
        _set(found, item, synonym, value)


def _set(found: _Found, item: Given, synonym: Synonym, value: Any) -> None:
    key = synonym.key
    if value is NO_ADAPTER:
        key, value = ("adapter",), None
    agreeing = synonym.joint and any(ours.key == key and ours.value == value for _, ours in found.settings)
    if not agreeing:
        found.settings.append((item, Given(key, value, item.place)))
    found.notes.append(_note([item], key, value, value != item.value, synonym.remark))


def _add_weak(found: _Found) -> None:
    """What holds only where nothing else sets the key."""
    strong = {ours.key for _, ours in found.settings}
    taken: dict[Key, Any] = {}
    for item, synonym, value in found.weak:
        if synonym.key in strong or (synonym.key in taken and taken[synonym.key] == value):
            found.notes.append(_nothing(item))
        elif isinstance(value, Mistake):
            found.refused.append(_refusal(item, value))
        else:
            taken[synonym.key] = value
            _set(found, item, synonym, value)


def _explain(found: _Found, item: Given, known: Known) -> None:
    if known.secret and not known.accepts(item.value):
        # Neither the value nor the line that holds it: what is printed ends up in logs.
        place = f"override {dotted(item.key)}" if item.place.startswith("override ") else str(item.place)
        found.refused.append(InputError(f"{dotted(item.key)}: {known.why}", where=place, fix=known.fix))
    elif not known.accepts(item.value):
        text = f"{dotted(item.key)}: {shown(item.value)}: {known.why}"
        found.refused.append(InputError(text, where=item.place, fix=known.fix))
    elif known.same is EVERY or item.value in known.same:
        found.notes.append(f"{dotted(item.key)} {shown(item.value)}: not needed: {known.why}")
    else:
        found.notes.append(_nothing(item))


def _refusal(item: Given, mistake: Mistake) -> InputError:
    return InputError(f"{dotted(item.key)}: {shown(item.value)}: {mistake.what}", where=item.place, fix=mistake.fix)


def _raise_all(refused: list[InputError]) -> None:
    if len(refused) == 1:
        raise refused[0]
    if refused:
        what = f"{len(refused)} keys of other tools can't be taken over as they are"
        raise InputError(what, mistakes=refused, fix="docs/keys.md says what became of every key")


def _refuse_adapter_beside_none(settings: list[tuple[Given, Given]]) -> None:
    """InputError where one name says that all weights are trained, and another describes an adapter."""
    whole = next((written for written, ours in settings if ours.key == ("adapter",)), None)
    part = next((written for written, ours in settings if ours.key[0] == "adapter" and len(ours.key) > 1), None)
    if whole is not None and part is not None:
        raise InputError(
            f"{dotted(whole.key)}: {shown(whole.value)} trains all weights, and {dotted(part.key)} sets an adapter",
            where=both(whole.place, part.place),
            fix="remove what you don't mean",
        )


def _nothing(item: Given, remark: str = "") -> str:
    note = f"{dotted(item.key)}: {shown(item.value)} asks for nothing, not set"
    return f"{note} ({remark})" if remark else note


def _note(written: list[Given], key: Key, value: Any, changed: bool, remark: str) -> str:
    names = " × ".join(f"{dotted(item.key)} {shown(item.value)}" if changed else dotted(item.key) for item in written)
    note = f"{names}: taken as {dotted(key)}" + (f" {shown(value)}" if changed else "")
    return f"{note} ({remark})" if remark else note
