"""The Python API, for notebooks and for loops of one's own: the same parts that the command line joins together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from outlive.cli.show.notebook import Shown, first_samples
from outlive.engines.native.build import Ready, get_ready
from outlive.engines.native.engine import first_packs
from outlive.engines.native.source import Step
from outlive.learn.loss_rule import Term
from outlive.learn.methods import METHODS, Method
from outlive.learn.objective import Router, micro_batch_objective
from outlive.run.config import LoadedRun, Run
from outlive.run.engine import Result

__all__ = [
    "METHODS",
    "Method",
    "Ready",
    "Router",
    "Run",
    "Shown",
    "Step",
    "Term",
    "batches",
    "generate",
    "objective",
    "prepare",
    "show",
    "train",
]

objective = micro_batch_objective


def prepare(run: Run) -> Ready:
    """Rows → stores → plan, with the ledger in `.prepared.ledgers`. Raises InputError for what can't be trained on."""
    return get_ready(run)


def show(ready: Ready, n: int = 2) -> Shown:
    """The first `n` samples of the first step, decoded, with the tokens that carry loss marked.

    In a notebook it is shown as HTML, elsewhere as text.
    """
    return Shown(ready.tokenizer, first_samples(first_packs(ready), n))


def batches(ready: Ready) -> Iterator[Step]:
    """The run's steps in order: micro-batches with the denominators of their global batch.

    Each call begins where the run begins, so that a cell of a notebook can be run again.
    """
    cursor, tokens = ready.source.begin
    return iter(dataclasses.replace(ready.source, cursor=cursor, tokens=tokens))


def train(
    run: Run,
    runs: Path | str = "runs",
    quiet: bool = False,
    resume: int | str | None = None,
    accept: str | Sequence[str] = (),
) -> Result:
    """What `outlive train` does: prepare, show, train, validate, save into runs/<name>.

    resume: a step, "latest", "best", or "auto" (which starts what is not there yet); accept: the keys of the run file
    that may differ from the saved run. A run that a signal stopped has the status "stopped".
    """
    from rich.console import Console

    from outlive.cli.train import train as train_verb

    console = Console(quiet=quiet, highlight=False)
    place, accepted = None if resume is None else str(resume), [accept] if isinstance(accept, str) else accept
    return train_verb(LoadedRun(run), Path(runs), console, resume=place, accept=accepted)


def generate(
    model: Path | str,
    prompt: str,
    *,
    system: str | None = None,
    max_tokens: int = 256,
    temperature: float = 0.0,
    seed: int = 0,
) -> str:
    """The answer of a run, a checkpoint, a model or adapter folder, a .gguf file or a hub id to a user's turn.

    The prompt is rendered as a server renders it; `system` is the run's own by default. temperature 0 takes the
    likeliest token each time. Raises InputError where there is no such model.
    """
    from outlive.cli.generate import answer, opened

    served, own_system = opened(str(model))
    said_before = own_system if system is None else system
    found = answer(served, prompt, said_before, max_new_tokens=max_tokens, temperature=temperature, seed=seed)
    return str(found["answer"])
