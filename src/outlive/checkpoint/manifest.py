"""The manifest of a folder: every file's size and hash. It is written last; a folder without one is not finished."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outlive.run.errors import InputError
from outlive.run.files import hash_file, write_atomic

NAME = "manifest.json"


def write_manifest(folder: Path, about: Mapping[str, Any] | None = None) -> None:
    """Write manifest.json for all files below `folder`: {"files": {path: {size, xxh3_128}}, **about}."""
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "xxh3_128": hash_file(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != NAME
    }
    write_atomic(folder / NAME, json.dumps({**(about or {}), "files": files}, indent=1, ensure_ascii=False))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder. Raises InputError where there is none."""
    try:
        manifest: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
        manifest["files"]
    except FileNotFoundError:
        raise InputError("the folder is not finished: it has no manifest.json", where=str(folder)) from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"the manifest is damaged: {error}", where=str(folder / NAME)) from None
    return manifest


def verify_manifest(folder: Path) -> None:
    """Compare every file with the manifest. Raises InputError naming the first that is missing, cut or changed."""
    for name, expected in read_manifest(folder)["files"].items():
        path = folder / name
        if not path.is_file():
            raise InputError("a file of the checkpoint is missing", where=str(path))
        if path.stat().st_size != expected["size"] or hash_file(path) != expected["xxh3_128"]:
            raise InputError("a file of the checkpoint is damaged: its hash is another", where=str(path))
