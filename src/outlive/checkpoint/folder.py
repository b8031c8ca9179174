"""The folder of a run's checkpoints: which are whole, which is the best, which can go, and what is left of failures."""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlive.checkpoint.manifest import COPY_AGAIN, check_sizes, read_manifest
from outlive.run.errors import InputError
from outlive.run.files import disk_error, free_space, sync_folder

__all__ = [
    "Saved", "best", "broken_checkpoints", "free_space", "remove", "saved_checkpoints", "size_of", "superfluous",
    "sweep",
]  # fmt: skip
_STEP = re.compile(r"step-([0-9]{1,18})")
# Of a builder or of an atomic file (.tmp), and of a remover (.removed).
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{16}\.(tmp|removed)")


@dataclass(frozen=True)
class Saved:
    """A whole checkpoint. `manifest`: what its writer said of it ("validation_loss" …), and its files."""

    step: int
    path: Path
    manifest: dict[str, Any]

    def served(self) -> Path | None:
        """Its model/ or adapter/, which servers open; None where it has only a state."""
        return next((self.path / part for part in ("model", "adapter") if (self.path / part).is_dir()), None)


def saved_checkpoints(folder: Path) -> list[Saved]:
    """The whole checkpoints in `folder` (runs/<name>/checkpoints), by step: each file there, with its size."""
    saved = []
    for step, path in _steps(folder):
        with contextlib.suppress(InputError):
            saved.append(Saved(step, path, _manifest(step, path)))
    return saved


def broken_checkpoints(folder: Path) -> list[tuple[Path, str]]:
    """The checkpoints that `saved_checkpoints` leaves out, by step, each with the reason."""
    broken = []
    for step, path in _steps(folder):
        try:
            _manifest(step, path)
        except InputError as error:
            broken.append((path, error.what if error.where == str(path) else f"{error.what} ({error.where})"))
    return broken


def best(saved: Sequence[Saved], measure: str = "validation_loss") -> Saved | None:
    """The one whose `measure` is lowest; of equals the later. Those without it, or with NaN, don't count."""
    found = [(value, -one.step, one) for one in saved if (value := _finite(one.manifest.get(measure))) is not None]
    return min(found, key=lambda entry: entry[:2])[2] if found else None


def superfluous(saved: Sequence[Saved], keep: int | None, best: Saved | None) -> list[Saved]:
    """Those that can go: older than the newest `keep` (None: all are kept), and not the best."""
    if keep is None:
        return []
    ordered = sorted(saved, key=lambda one: one.step)
    return [one for one in ordered[: max(0, len(ordered) - keep)] if best is None or one.path != best.path]


def remove(saved: Saved) -> None:
    """Remove a checkpoint. It is renamed away first: no stop leaves half of it under its name. Raises WorkError."""
    hidden = saved.path.with_name(f".{saved.path.name}.{secrets.token_hex(8)}.removed")
    try:
        os.rename(saved.path, hidden)
        sync_folder(hidden.parent)  # the new name is on the disk before anything below it is gone
        hidden.unlink() if hidden.is_symlink() else shutil.rmtree(hidden)  # what a link leads to is not ours
    except OSError as error:
        raise disk_error(error, saved.path, "remove") from error


def sweep(folder: Path) -> list[str]:
    """Remove what killed builders and removers left in `folder`; return the names. The caller has the run to itself."""
    try:
        names = sorted(name for name in os.listdir(folder) if _LEFTOVER.fullmatch(name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise disk_error(error, folder, "read") from error
    for name in names:
        path = folder / name
        try:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        except OSError as error:
            raise disk_error(error, path, "remove") from error
    return names


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; 0 where there is none."""
    path = Path(path)
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _steps(folder: Path) -> list[tuple[int, Path]]:
    try:
        found = [(match, name) for name in os.listdir(folder) if (match := _STEP.fullmatch(name))]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise disk_error(error, folder, "read") from error
    return sorted((int(match[1]), folder / name) for match, name in found)


def _manifest(step: int, path: Path) -> dict[str, Any]:
    """The checkpoint's manifest. Raises InputError where it is not whole, or not the one of its step."""
    manifest = read_manifest(path)
    if not manifest["files"]:
        raise InputError("the manifest is damaged: it names no file", where=str(path), fix=COPY_AGAIN)
    if (named := manifest.get("step", step)) != step:
        raise InputError(f"the manifest is one of step {named}", where=str(path), fix="give it its own name back")
    check_sizes(path, manifest)
    return manifest


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
