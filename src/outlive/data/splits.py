"""Folders of several splits are no one source: their test rows would be trained on. Told by what `datasets` and our
exports write beside the rows, or by the files' names."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from outlive.data.hub import SPLITS, is_of
from outlive.run.errors import InputError


def refuse_splits(folder: Path, names: Sequence[str], rows: Sequence[str]) -> None:
    """Raise InputError where a folder holds several splits. `names`: of all that is in it, within `folder`; `rows`: of
    these the files of rows."""
    for name in sorted(names):
        inside = folder / os.path.dirname(name)
        if os.path.basename(name) == "manifest.json":
            _refuse_export(inside, _object(folder / name))
        elif os.path.basename(name) == "dataset_dict.json":
            splits = _object(folder / name).get("splits")
            if isinstance(splits, list) and len(splits) > 1:
                raise _several(inside, [str(split) for split in splits], inside / str(splits[0]))
    named = {name: split_of(name) for name in rows}
    found = list(dict.fromkeys(split for split in named.values() if split))
    if "train" in found and len(found) > 1 and None not in named.values():
        first = next(name for name, split in named.items() if split == "train")
        raise _several(folder, found, folder / first)


def left_by_datasets(folder: Path, names: Sequence[str]) -> set[str]:
    """The Arrow files that lie beside a data set which `datasets` has saved, and are none of its own: results that it
    keeps of earlier work on it, with the same rows again."""
    others = set[str]()
    for name in names:
        if os.path.basename(name) != "state.json":
            continue
        inside, listed = os.path.dirname(name), _object(folder / name).get("_data_files")
        if isinstance(listed, list) and all(isinstance(file, dict) for file in listed):
            own = {os.path.join(inside, str(file.get("filename"))) for file in listed}
            others |= {
                file
                for file in names
                if os.path.dirname(file) == inside and file.endswith(".arrow") and file not in own
            }
    return others


def split_of(name: str) -> str | None:
    """The split that a file's name says, or else that of the folder next to it; None where none or several do."""
    for part in reversed(PurePath(name).parts):
        found = [split for split, words in SPLITS.items() if is_of(part, words)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _refuse_export(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise InputError for an export of ours that has several sides, or holds no rows."""
    sides = manifest.get("sides")
    if "export_version" not in manifest or not isinstance(sides, dict):
        return
    form = str(manifest.get("format"))
    if form == "megatron":
        fix = "name the rows that it was made of, or export them with --export jsonl"
        raise InputError("this is an export for Megatron, of which no rows are read", where=str(folder), fix=fix)
    if len(sides) > 1:
        raise _several(folder, list(sides), folder / (next(iter(sides)) + {"hf": ""}.get(form, f".{form}")))


def _several(folder: Path, splits: Sequence[str], one: Path) -> InputError:
    return InputError(
        f"the folder holds several splits, not one source: {', '.join(splits)}",
        where=str(folder),
        fix=f"name one, such as {one}; rows to validate on are named under data.validation",
    )


def _object(path: Path) -> dict[str, Any]:
    """A JSON file's object; an empty one where it holds none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
