"""Small runs through the real verb, in this process, for tests of saves and resumes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from outlive.cli.train import train
from outlive.run.config import load_run
from outlive.run.engine import Result
from outlive.run.folder import RunFolder
from outlive.run.metrics import read

SMALL = {
    "data.sequence_length": "96",
    "data.validation": "0.1",
    "batch.tokens": "288",
    "batch.micro_tokens": "96",
    "stop.steps": "8",
    "optimizer.lr": "1e-3",
    "checkpoint.every": "3",
    "precision": "fp32",
    "name": "run",
}


class Verb:
    """`outlive train` on one model and file of rows; what it printed is in `said`."""

    def __init__(self, root: Path, model: Path, rows: Path, **settings: str) -> None:
        self.root, self.model, self.rows, self.settings = root, model, rows, {**SMALL, **settings}
        self.folder = RunFolder(root / "runs" / "run")
        self.said = ""

    def train(self, *changes: str, resume: str | None = None, accept: Sequence[str] = ()) -> Result:
        given = {**self.settings, **dict(change.split("=", 1) for change in changes)}
        overrides = [f"{key}={value}" for key, value in given.items()]
        loaded = load_run(None, overrides, model=str(self.model), data=str(self.rows))
        printed = StringIO()
        try:
            console = Console(file=printed, width=500)
            return train(loaded, self.root / "runs", console, resume, accept)
        finally:
            self.said = printed.getvalue()

    def curve(self) -> list[tuple[Any, ...]]:
        """(kind, step, loss, gradient norm) of every record."""
        return [(one.kind, one.step, one.loss, one.grad_norm) for one in read(self.folder.metrics).records]

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.folder.events.read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["kind"] == kind]

    def steps(self) -> list[int]:
        """The steps of the checkpoints that are there."""
        return sorted(int(path.name.removeprefix("step-")) for path in self.folder.checkpoints.iterdir())
