"""Checkpoints that are no Hugging Face folder: torch.distributed.checkpoint, files of torch.save, GGUF."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from outlive.checkpoint.convert import unwrapped
from outlive.checkpoint.families.table import family_of
from outlive.checkpoint.formats.dcp import METADATA, open_dcp, read_metadata
from outlive.checkpoint.formats.dcp_safetensors import shards_of
from outlive.checkpoint.formats.huggingface import CONFIG, is_plain_name, read_json
from outlive.checkpoint.formats.pickle_names import Record
from outlive.checkpoint.formats.pickled import INDEX, open_state_dict
from outlive.checkpoint.formats.torch_checksums import damaged_members, damaged_tensors
from outlive.checkpoint.model import Model
from outlive.checkpoint.optimizer import OPTIMIZER
from outlive.checkpoint.tensors.dtypes import DTYPES
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.verify.expected import look_at_names
from outlive.checkpoint.verify.files import AGAIN, compare_with_manifest
from outlive.checkpoint.verify.finding import Finding, some
from outlive.checkpoint.verify.texts import look_at_head
from outlive.checkpoint.verify.values import look_at_values
from outlive.run.errors import OutliveError
from outlive.run.files import hash_file

_OF_RANK = re.compile(r"shard-(\d{5})-model-")
_OF_ADAM = (".exp_avg", ".exp_avg_sq", ".step", ".momentum_buffer", ".max_exp_avg_sq")


def verify_dcp(folder: Path, base: Path | None) -> Iterator[Finding]:
    """A folder of torch.distributed.checkpoint, or of its variant in safetensors files. `base`: whose config it has."""
    yield from compare_with_manifest(folder)
    names = shards_of(folder) if not (folder / METADATA).exists() else _files_of_dcp(folder)
    if not (folder / METADATA).exists() and not names:
        what = f"there is no {METADATA}: nothing says which tensors the files hold"
        yield Finding("error", "damaged_index", what, str(folder), AGAIN)
        return
    if lost := _lost_ranks(names):
        what = f"the files of ranks are not there: {some(lost)}"
        yield Finding("error", "missing_file", what, str(folder), AGAIN)
    if absent := sorted(name for name in names if not (folder / name).is_file()):
        what = f"files that {METADATA} names are not there: {some(absent)}"
        yield Finding("error", "missing_file", what, str(folder), AGAIN)
    written = {path.name for path in folder.glob("*.distcp")}
    if (folder / METADATA).exists() and (extra := written - set(names)):
        what = f"files that {METADATA} does not name: {some(extra)}"
        yield Finding("warning", "extra_file", what, str(folder), "delete them, if they are left of an older save")
    yield from same_files([folder / name for name in names if (folder / name).is_file()])
    model, found = _opened(open_dcp, folder)
    yield from found
    if model is None:
        return
    yield from _checksums(lambda: damaged_tensors(model), folder)
    is_variant = not (folder / METADATA).exists()
    if is_variant and (whole := [name for name, one in model.tensors.items() if not DTYPES[one.dtype].is_float]):
        what = f"tensors of whole numbers, which torch's consolidation can't write: {some(whole)}"
        fix = "consolidate it with `outlive convert --to huggingface`"
        yield Finding("note", "whole_numbers", what, str(folder), fix)
    config = config_beside(folder, base)
    if is_variant and not config:
        what = "the whole shape of a tensor is written nowhere: the files of the last ranks could be missing unseen"
        yield Finding("note", "no_table", what, str(folder), "name the model whose config it has: --base DIR")
    yield from look_at_model(model.tensors, config, folder)


def _lost_ranks(names: Sequence[str]) -> list[str]:
    """The numbers of ranks between the first and the last of whose files there are some. ([] of .distcp files: there
    .metadata names them all.)"""
    ranks = {int(found[1]) for name in names if (found := _OF_RANK.search(name))}
    return [str(rank - 1) for rank in range(1, min(max(ranks, default=0), 10_000)) if rank not in ranks]


def _files_of_dcp(folder: Path) -> list[str]:
    """The files that .metadata names; [] where it can't be read, which `open_dcp` tells."""
    try:
        storage = read_metadata(folder / METADATA).get("storage_data")
    except OutliveError:
        return []
    infos = storage.values() if isinstance(storage, dict) else []
    paths = {info.get("relative_path") for info in infos if isinstance(info, Record)}
    return sorted(path for path in paths if is_plain_name(path))


def verify_state_dict(path: Path, base: Path | None) -> Iterator[Finding]:
    """A file of torch.save with a state dict, or a folder with pytorch_model.bin or several and an index."""
    folder = path if path.is_dir() else path.parent
    yield from compare_with_manifest(folder) if path.is_dir() else _of_file(path)
    names = _files_of_index(path)
    if absent := sorted(name for name in names if not (folder / name).is_file()):
        yield Finding("error", "missing_file", f"files that are not there: {some(absent)}", str(folder), AGAIN)
    there = [folder / name for name in names if (folder / name).is_file()]
    if path.is_dir() and (extra := {one.name for one in folder.glob("pytorch_model*.bin")} - set(names)):
        what = f"files that the index does not name: {some(extra)}"
        yield Finding("warning", "extra_file", what, str(folder), "delete them, if they are left of an older save")
    yield from same_files(there)
    model, found = _opened(open_state_dict, path)
    yield from found
    for file in there:
        yield from _checksums(lambda file=file: damaged_members(file), file)  # type: ignore[misc]
    if model is not None:
        yield from look_at_model(model.tensors, config_beside(folder, base), path)


def _files_of_index(path: Path) -> list[str]:
    if not path.is_dir():
        return [path.name]
    if not (path / INDEX).exists():
        return ["pytorch_model.bin"]
    try:
        places = read_json(path / INDEX).get("weight_map")
    except OutliveError:
        return []
    return sorted({name for name in places.values() if is_plain_name(name)}) if isinstance(places, dict) else []


def _of_file(path: Path) -> Iterator[Finding]:
    """What a manifest beside a single file says of it."""
    for finding in compare_with_manifest(path.parent):
        if finding.where == str(path) or finding.id in ("no_manifest", "damaged_manifest"):
            yield finding


def _opened(opened: Callable[[Path], Model], path: Path) -> tuple[Model | None, list[Finding]]:
    """The model at a path; or None, and why."""
    try:
        return opened(path), []
    except OutliveError as error:
        where = error.where or str(path)
        kind = "damaged_index" if where.endswith((METADATA, ".index.json")) else "damaged_file"
        return None, [Finding("error", kind, error.what, where, error.fix or AGAIN)]


def _checksums(damaged: Callable[[], Sequence[str]], where: Path) -> Iterator[Finding]:
    try:
        if names := damaged():
            what = f"bytes have changed since they were written, by the checksums beside them: {some(names)}"
            yield Finding("error", "other_checksum", what, str(where), AGAIN)
    except OutliveError:
        return  # a file that is no archive: of the format before torch 1.6, or one that was named already


def same_files(paths: Sequence[Path]) -> Iterator[Finding]:
    """Files with the same bytes: one rank's over another's."""
    by_size = defaultdict(list)
    for path in paths:
        by_size[path.stat().st_size].append(path)
    seen: dict[tuple[int, str], Path] = {}
    for size, alike in by_size.items():
        for path in alike if len(alike) > 1 and size else []:
            first = seen.setdefault((size, hash_file(path)), path)
            if first != path:
                what = f"it has the same bytes as {first.name}: one file was copied over another"
                yield Finding("error", "same_files", what, str(path), AGAIN)


def config_beside(folder: Path, base: Path | None) -> dict[str, Any]:
    """The config of the model that a checkpoint is of: `base`'s, or one that lies with it; {} where there is none."""
    for place in (base, folder, folder.parent / "model"):
        if place is not None and (place / CONFIG).is_file():
            try:
                return read_json(place / CONFIG)
            except OutliveError:
                return {}
    return {}


def look_at_model(tensors: Mapping[str, Tensor], config: Mapping[str, Any], where: Path) -> Iterator[Finding]:
    """Names, shapes, head and numbers of a checkpoint that may hold an optimizer's tensors, too."""
    weights = {name: one for name, one in tensors.items() if not _is_optimizer(name)}
    if not weights and not tensors:
        yield Finding("error", "no_weights", "it holds no tensor", str(where), AGAIN)
    if config:
        named = _named(weights, config)
        yield from look_at_names(config, named, where)
        yield from look_at_head(config, named, where)
    yield from look_at_values(weights, dict.fromkeys(weights, str(where)))
    others = {name: one for name, one in tensors.items() if name not in weights}
    for finding in look_at_values(others, dict.fromkeys(others, str(where))):
        if finding.level == "error" and finding.id != "zeroed" and finding.id != "zero_rows":
            yield finding  # an optimizer's numbers are often 0, and may be far apart


def _is_optimizer(name: str) -> bool:
    return name.startswith(OPTIMIZER) or name.endswith(_OF_ADAM)


def _named(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors without what an application put before their names."""
    try:
        return unwrapped(tensors, set(family_of(config).expected(config)))[0]
    except OutliveError:
        return dict(tensors)  # `look_at_names` says why
