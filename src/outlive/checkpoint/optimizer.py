"""An optimizer's state by the names of the parameters, where torch's own state dict has their numbers.

torch.optim numbers the parameters of all groups in their order; a group has `param_names` where the optimizer was made
from named parameters (https://docs.pytorch.org/docs/stable/optim.html).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outlive.checkpoint.formats.inside import regular_file
from outlive.checkpoint.nested import Flat, flattened
from outlive.run.errors import InputError
from outlive.run.files import disk_error

OPTIMIZER = ("optim.", "optimizer.", "optimizer_state_dict.", "optimizers.", "optim_state_dict.")


def by_name(value: Mapping[Any, Any], names: Sequence[str] | None, where: str) -> tuple[dict[Any, Any], list[str]]:
    """A nested state dict whose optimizers have names in place of numbers, and the flat names of tensors of optimizers
    that are left out, because nothing names their parameters.

    names: of the parameters in their order, for optimizers that do not say it themselves. Raises InputError where
    another number of them is given, or other ones than the optimizer has itself, or where none has numbers.
    """
    left: list[str] = []
    numbered: list[str] = []
    found = _walked(value, "", names, where, left, numbered)
    if names is not None and not numbered:
        what = "names of parameters are given, and no optimizer is here that has their numbers"
        raise InputError(what, where=where, fix="leave out --param-names")
    return found if isinstance(found, dict) else {}, left


def read_names(path: Path) -> list[str]:
    """One name a line. Raises InputError where it can't be read or a name is there twice."""
    try:
        names = regular_file(path).read_text(encoding="utf-8").split()
    except OSError as error:
        raise disk_error(error, path, "read") from error
    except ValueError:
        raise InputError("it is no text", where=str(path), fix="give a text file with one name a line") from None
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{twice} is there twice", where=str(path), fix="name each parameter once")
    return names


def _walked(
    value: Any, before: str, names: Sequence[str] | None, where: str, left: list[str], numbered: list[str]
) -> Any:
    """`numbered` gets the places of the optimizers with numbers."""
    if not isinstance(value, Mapping):
        return value
    if not _is_numbered(value):
        inner = {key: _walked(each, f"{before}{key}.", names, where, left, numbered) for key, each in value.items()}
        return {key: each for key, each in inner.items() if each is not None or value[key] is None}
    numbered.append(before)
    own = _names(value, names, where)
    if own is None:
        left += [before + name for name in flattened(value).tensors]
        return None
    state = {own[number]: each for number, each in value["state"].items()}
    groups = [{**group, "params": [own[number] for number in group["params"]]} for group in value["param_groups"]]
    return {**value, "state": state, "param_groups": groups}


def _is_numbered(value: Mapping[Any, Any]) -> bool:
    """Whether this is what torch.optim's state_dict gives, with numbers of parameters."""
    state, groups = value.get("state"), value.get("param_groups")
    if not isinstance(state, Mapping) or not isinstance(groups, (list, tuple)) or not groups:
        return False
    lists = [group.get("params") if isinstance(group, Mapping) else None for group in groups]
    if not all(isinstance(each, (list, tuple)) for each in lists):
        return False
    numbers = [number for each in lists for number in each or ()]
    return all(type(number) is int for number in (*numbers, *state)) and set(state) <= set(numbers)


def _names(value: Mapping[Any, Any], given: Sequence[str] | None, where: str) -> dict[int, str] | None:
    numbers = [number for group in value["param_groups"] for number in group["params"]]
    own = [name for group in value["param_groups"] for name in group.get("param_names") or ()]
    if given is not None and own and list(given) != own:
        what = "the optimizer names its parameters itself, and other names are given"
        raise InputError(what, where=where, fix="leave out --param-names")
    if given is not None and not own:
        if len(given) != len(numbers):
            what = f"{len(given):,} names are given, and the optimizer has {len(numbers):,} parameters"
            raise InputError(what, where=where, fix="name them all, in the order in which the optimizer got them")
        own = list(given)
    if len(own) != len(numbers) or len(set(own)) != len(own) or len(set(numbers)) != len(numbers):
        return None
    return dict(zip(numbers, own, strict=True))


def is_optimizers(name: str, flat: Flat) -> bool:
    """Whether a flat name is of an optimizer: by its first key."""
    first = str(flat.paths.get(name, (name,))[0])
    return f"{first}.".startswith(OPTIMIZER)
