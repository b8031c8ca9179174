"""The Python API, for notebooks and for loops of one's own: the same parts that the command line joins together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from outlive.engines.native.build import Ready, get_ready
from outlive.engines.native.source import Step
from outlive.learn.methods import METHODS, Method
from outlive.learn.objective import Router, micro_batch_objective
from outlive.run.config import LoadedRun, Run
from outlive.run.engine import Result

__all__ = ["METHODS", "Method", "Ready", "Router", "Run", "Step", "batches", "objective", "prepare", "train"]

objective = micro_batch_objective


def prepare(run: Run) -> Ready:
    """Rows → stores → plan, with the ledger in `.prepared.ledgers`. Raises InputError for what can't be trained on."""
    return get_ready(run)


def batches(ready: Ready) -> Iterator[Step]:
    """The run's steps in order: micro-batches with the denominators of their global batch."""
    return iter(ready.source)


def train(run: Run, runs: Path | str = "runs", quiet: bool = False) -> Result:
    """What `outlive train` does: prepare, show, train, validate, save into runs/<name>."""
    from rich.console import Console

    from outlive.cli.train import train as train_verb

    return train_verb(LoadedRun(run), Path(runs), Console(quiet=quiet, highlight=False))
