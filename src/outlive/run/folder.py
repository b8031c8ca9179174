"""The run folder: where each file of a run lies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from outlive.run.errors import InputError
from outlive.run.files import disk_error

MAX_NAME = 100


def name_mistake(name: str) -> str | None:
    """Why `name` can't be a run's name, or None when it can. A name is one folder on any file system."""
    if not name.strip():
        return "a name can't be empty"
    if len(name) > MAX_NAME or len(name.encode(errors="replace")) > 240:
        return f"a name has at most {MAX_NAME} characters"
    if any(character in '/\\:*?"<>|' or not character.isprintable() for character in name):
        return f"{name!r} can't be a folder's name: no slashes, no line breaks and none of :*?\"<>|"
    if name[0] in ".- " or name[-1] in ". ":
        return f"{name!r} can't be a folder's name: no dot, dash or space in front, no dot or space at the end"
    return None


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run, whether they exist or not."""

    root: Path

    @property
    def run_yaml(self) -> Path:
        """The resolved run."""
        return self.root / "run.yaml"

    @property
    def lock(self) -> Path:
        """Versions, machine and hashes."""
        return self.root / "lock.json"

    @property
    def data(self) -> Path:
        """Which stores and plans were used."""
        return self.root / "data.json"

    @property
    def metrics(self) -> Path:
        """One record per step, see `outlive.run.metrics`."""
        return self.root / "metrics.jsonl"

    @property
    def events(self) -> Path:
        """What happened besides steps."""
        return self.root / "events.jsonl"

    @property
    def first_batch(self) -> Path:
        """The first batch as it was trained on."""
        return self.root / "first_batch.html"

    @property
    def report(self) -> Path:
        """The run's report."""
        return self.root / "report.html"

    @property
    def checkpoints(self) -> Path:
        """The folder of all checkpoints."""
        return self.root / "checkpoints"

    @property
    def evals(self) -> Path:
        """The folder of eval results."""
        return self.root / "evals"

    def checkpoint(self, step: int) -> Path:
        """The checkpoint after `step` optimizer steps."""
        return self.checkpoints / f"step-{step:08d}"


def create(name: str, root: Path | str = "runs") -> RunFolder:
    """Make `root/name` for a new run.

    InputError when it exists (naming what goes on with it, and a free name) or when the name can't be a folder's. Of
    two runs that start at once, one gets it.
    """
    refuse_existing(name, root)
    folder = Path(root) / name
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except OSError as error:
        if os.path.lexists(folder):
            raise _exists(folder) from error
        raise disk_error(error, folder, "make the run folder") from error
    return RunFolder(folder)


def refuse_existing(name: str, root: Path | str = "runs") -> None:
    """Raise what `create` would raise for this name, without making anything: before the work that comes first."""
    if reason := name_mistake(name):
        raise InputError(reason, where="name", fix="set another name: name=…")
    if os.path.lexists(root) and not Path(root).is_dir():
        raise InputError("run folders are made here, and this is no folder", where=str(root), fix="set --runs FOLDER")
    folder = Path(root) / name
    if os.path.lexists(folder):
        raise _exists(folder)


def _exists(folder: Path) -> InputError:
    fix = f"go on with it: outlive train {folder} --resume; or start under another name: name={_next_name(folder)}"
    return InputError("this run exists already", where=str(folder), fix=fix)


def _next_name(folder: Path) -> str:
    stem, dash, number = folder.name.rpartition("-")
    if not (dash and number.isdigit() and number.isascii()):
        stem, number = folder.name, "1"
    stem = stem[: MAX_NAME - 12]
    candidate = int(number[:9]) + 1
    while (folder.parent / f"{stem}-{candidate}").exists():
        candidate += 1
    return f"{stem}-{candidate}"
