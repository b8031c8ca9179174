"""All that a training saved, between torch.distributed.checkpoint and files of torch.save: weights, optimizer and plain
values, under their own names and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from outlive.checkpoint.formats.dcp_write import write_dcp
from outlive.checkpoint.formats.huggingface import CONFIG, read_json
from outlive.checkpoint.formats.pickle_write import pickled
from outlive.checkpoint.formats.pickled_write import write_pickled
from outlive.checkpoint.model import Model
from outlive.checkpoint.model_folder import copy_beside
from outlive.checkpoint.nested import Flat, flattened, nested
from outlive.checkpoint.optimizer import by_name, is_optimizers
from outlive.checkpoint.resumed import resumed_checkpoint
from outlive.checkpoint.tensors.dtypes import DTYPES, SHORT
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Cast
from outlive.checkpoint.write import Dtype
from outlive.run.errors import InputError

FILE = "checkpoint.pt"


@dataclass
class Whole:
    """tensors: what was written. left: flat names of what was not; notes: why."""

    tensors: dict[str, Tensor]
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def holds_all(model: Model) -> bool:
    """Whether a checkpoint is of a format that has a place for an optimizer and plain values."""
    return model.format == "dcp" or model.nested is not None


def write_whole(
    model: Model, target: Path, to: Literal["dcp", "pt"], about: Mapping[str, Any], key: str, *,
    like: Path | None = None, dtype: Dtype | None = None, names: Sequence[str] | None = None,
) -> Whole:  # fmt: skip
    """Write all of a checkpoint into the folder `target`, of torch.distributed.checkpoint or with a file of torch.save.

    key: what it is made of, see `resumed`. dtype: of the weights; an optimizer's numbers stay as they are. names: of
    the parameters, for an optimizer that has only their numbers: without names it stays behind where `to` is dcp, and
    is counted. like: a folder whose config and tokenizer go along. Raises InputError where nothing is left to write,
    WorkError where the disk refuses, and where a weight is not finite in `dtype`.
    """
    flat, left = _flat(model, to, names)
    unwritten = [name for name, value in flat.items.items() if not _is_plain(value)]
    for name in unwritten:
        del flat.items[name]
    tensors = _cast(flat, dtype)
    cast = [name for name, each in tensors.items() if each is not flat.tensors[name]]
    found = Whole(tensors, sorted([*left, *unwritten]))
    if left:
        num_bytes = sum(model.tensors[name].num_bytes for name in left)
        found.notes.append(
            f"{len(left):,} tensors of an optimizer ({num_bytes:,} bytes) are left out of {to}: it has numbers in "
            "place of its parameters' names; --param-names FILE gives them"
        )
    if unwritten:
        found.notes.append(f"{len(unwritten):,} values that are not plain are left out, such as {unwritten[0]}")
    if not tensors:
        raise InputError("no tensor is left to write", where=str(model.folder), fix="is this the right checkpoint?")
    with resumed_checkpoint(target, about, key) as building:
        if to == "dcp":
            write_dcp(building, tensors, items=flat.items, paths=flat.paths, finite=cast)
        else:
            write_pickled(building, FILE, nested({**tensors, **flat.items}, flat.paths), finite=cast)
        if like is not None:
            copy_beside(building, read_json(like / CONFIG), [like], {})
    return found


def _flat(model: Model, to: str, names: Sequence[str] | None) -> tuple[Flat, list[str]]:
    if model.nested is None:
        if names is not None:
            what = "an optimizer in DCP has the names of its parameters"
            raise InputError(what, where="--param-names", fix="leave it out")
        paths = model.metadata["paths"]
        return Flat(dict(model.tensors), dict(model.metadata["items"]), dict(paths)), []
    if to == "pt":
        what = "this is a file of torch.save already"
        raise InputError(what, where=str(model.folder), fix="name another format: --to dcp or huggingface")
    value, left = by_name(model.nested, names, str(model.folder))
    return flattened(value), left


def _cast(flat: Flat, dtype: Dtype | None) -> dict[str, Tensor]:
    """The weights in another dtype. Nothing of a state dict that is an optimizer's alone is a weight."""
    if dtype is None or any(keys[0] == "param_groups" for keys in flat.paths.values()):
        return flat.tensors
    floating = {name for name, each in flat.tensors.items() if DTYPES[each.dtype].is_float}
    weights = {name for name in floating if not is_optimizers(name, flat)}
    return {name: Cast(each, SHORT[dtype]) if name in weights else each for name, each in flat.tensors.items()}


def _is_plain(value: Any) -> bool:
    try:
        pickled(value)
    except InputError:
        return False
    return True
