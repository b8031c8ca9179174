"""The manifest of a folder: every file's size and hash. It is written last; a folder without one is not finished."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from outlive.run.errors import InputError, WorkError
from outlive.run.files import hash_file, write_atomic

NAME = "manifest.json"
COPY_AGAIN = "use another checkpoint, or copy this one again from where it was made"


def write_manifest(folder: Path, about: Mapping[str, Any] | None = None) -> None:
    """Write manifest.json for all files below `folder`: {"files": {path: {size, xxh3_128}}, **about}."""
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "xxh3_128": hash_file(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != NAME
    }
    write_atomic(folder / NAME, manifest_text(about or {}, files))


def manifest_text(about: Mapping[str, Any], files: Mapping[str, Any]) -> str:
    """The manifest as JSON. A number that is not finite, for which JSON has no word, becomes null."""
    return json.dumps(_plain({**about, "files": files}), indent=1, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder. Raises InputError where there is none."""
    try:
        manifest: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
        for name, entry in manifest["files"].items():
            _check_entry(name, entry["size"], entry["xxh3_128"])
    except FileNotFoundError:
        raise InputError(
            "the folder is not finished: it has no manifest.json", where=str(folder), fix=COPY_AGAIN
        ) from None
    except OSError as error:
        what = f"the manifest can't be read: {error.strerror}"
        raise InputError(what, where=str(folder / NAME), fix=COPY_AGAIN) from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        what = f"the manifest is damaged: {type(error).__name__}: {error}"
        raise InputError(what, where=str(folder / NAME), fix=COPY_AGAIN) from None
    return manifest


def _check_entry(name: str, size: object, digest: object) -> None:
    """Raise ValueError for a file that lies elsewhere, and for a size or hash that can't be one."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name:
        raise ValueError(f"{name!r} is no file of this folder")
    if type(size) is not int or size < 0 or not isinstance(digest, str):
        raise ValueError(f"{name} has no size and hash")


def check_sizes(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Compare every file's size with the manifest: quick. InputError naming the first that is missing or cut."""
    for name, expected in manifest["files"].items():
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError:
            raise InputError("a file of the checkpoint is missing", where=str(path), fix=COPY_AGAIN) from None
        if size != expected["size"]:
            what = f"a file of the checkpoint is damaged: it has {size} bytes instead of {expected['size']}"
            raise InputError(what, where=str(path), fix=COPY_AGAIN)


def verify_manifest(folder: Path) -> None:
    """Compare every file's hash with the manifest. InputError naming the first that is missing, cut or changed."""
    manifest = read_manifest(folder)
    check_sizes(folder, manifest)
    for name, expected in manifest["files"].items():
        try:
            digest = hash_file(folder / name)
        except WorkError as error:  # as a disk that loses sectors says: not the end, where there are other checkpoints
            what = f"a file of the checkpoint can't be read: {error.what}"
            raise InputError(what, where=str(folder / name), fix=COPY_AGAIN) from error
        if digest != expected["xxh3_128"]:
            what = "a file of the checkpoint is damaged: its hash is another"
            raise InputError(what, where=str(folder / name), fix=COPY_AGAIN)
