"""What an engine is: its facts, what it can't do, the job it gets and the result it gives, all plain data."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from outlive.run.errors import InputError

if TYPE_CHECKING:
    from outlive.run.config import Run

Files = dict[str, str]
"""Texts by file name: an engine's own config or script."""


@dataclass(frozen=True)
class EngineFacts:
    """What is known about an engine: one row of the map of the stack."""

    name: str
    does: tuple[str, ...]
    """Methods and features that it has."""
    hides: tuple[str, ...] = ()
    """What it does without saying so, and what can't be seen from outside."""
    exit: str = ""
    """How one leaves it: which files it writes that other tools read."""
    needs: tuple[str, ...] = ()
    """Hardware and packages that it can't do without."""
    limits: tuple[str, ...] = ()
    last_release: str | None = None
    """Version and date, as "0.9.0, 2026-08-01"."""
    successor: str | None = None
    """What replaces it, when it is no longer developed."""


@dataclass(frozen=True)
class Problem:
    """One thing that stands against a run: an error stops it (exit code 2), a warning is shown."""

    severity: Literal["error", "warning"]
    what: str
    where: str | None = None
    fix: str | None = None

    def error(self) -> InputError:
        """This problem as the error that stops the run."""
        return InputError(self.what, where=self.where, fix=self.fix)


@dataclass(frozen=True)
class TokensAndWeights:
    """Model sequences as an engine really trains them: weights[i][t] belongs to tokens[i][t] as a target."""

    tokens: list[list[int]]
    weights: list[list[float]]
    segments: list[list[int]]
    """segments[i][t]: which sample of sequence i token t belongs to, from 0; -1 is padding."""


@dataclass(frozen=True)
class Job:
    """One piece of work for an engine: everything is prepared and checked, all paths are local."""

    run: Run
    folder: Path
    """The run folder."""
    model: Path
    """Folder or .gguf file of the model; for a fresh model, the folder of its config."""
    tokenizer: Path
    stores: list[Path]
    """The stores of training samples, in the order of the run's data.train, whose weights apply."""
    validation_stores: list[Path] = field(default_factory=list)
    attempt: int = 1
    resume_from: Path | None = None
    """The checkpoint to go on from."""

    def to_json(self) -> str:
        """The job as JSON text."""
        from outlive.run.config import plain

        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return json.dumps({**_texts(values), "run": plain(self.run)}, indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job of a JSON text. InputError when it is none."""
        from outlive.run.config import Run

        values = _values(text, cls)
        paths = {key: _path(values.get(key)) for key in ("folder", "model", "tokenizer")}
        stores = {key: [Path(path) for path in values.get(key, [])] for key in ("stores", "validation_stores")}
        run = Run.model_validate(values["run"])
        return cls(**{**values, **paths, **stores, "resume_from": _path(values.get("resume_from")), "run": run})


@dataclass(frozen=True)
class Result:
    """What an engine made of a job."""

    status: Literal["done", "stopped", "failed"]
    """stopped: at a point from which it can go on (exit code 75)."""
    steps: int
    tokens: int
    """Tokens trained on, padding not counted."""
    target_tokens: int
    seconds: float
    """Time of training, without loading and saving."""
    loss: float | None = None
    """The last step's objective; None when it is not finite."""
    validation_loss: float | None = None
    output: Path | None = None
    """The folder to serve: model/ or adapter/ of the last checkpoint."""
    message: str | None = None
    """Why it stopped or failed."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Further values for the report, as JSON."""

    def to_json(self) -> str:
        """The result as JSON text."""
        return json.dumps(_texts(dataclasses.asdict(self)), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """The result of a JSON text. InputError when it is none."""
        values = _values(text, cls)
        return cls(**{**values, "output": _path(values.get("output"))})


@dataclass(frozen=True)
class Imported:
    """Another tool's config as a run, and what became of each of its keys."""

    run: Run
    report: dict[str, str]


class Engine(Protocol):
    """Who turns the crank."""

    facts: EngineFacts

    def check(self, run: Run) -> list[Problem]:
        """All that it can't do of a run, before anything heavy is loaded."""
        ...

    def first_batch(self, job: Job) -> TokensAndWeights:
        """The first step's sequences as this engine would really train them."""
        ...

    def train(self, job: Job) -> Result:
        """Do the job."""
        ...


class Framework(Engine, Protocol):
    """An engine that is someone else's program, with configs of its own."""

    def write(self, job: Job) -> Files:
        """Its own config or script for a job."""
        ...

    def read(self, files: Path) -> Imported:
        """Its config as a run, with a report of every key."""
        ...


def _texts(values: dict[str, Any]) -> dict[str, Any]:
    return {key: _text(value) for key, value in values.items()}


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _path(value: Any) -> Path | None:
    return None if value is None else Path(value)


def _values(text: str, kind: type[Job] | type[Result]) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        fix = "give the file as the engine's job wrote it"
        raise InputError(f"a {kind.__name__.lower()} is a JSON file: {error}", fix=fix) from error
    fields = dataclasses.fields(kind)
    required = {
        entry.name
        for entry in fields
        if entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
    }
    if not isinstance(values, dict) or not required <= values.keys() <= {entry.name for entry in fields}:
        what = f"a {kind.__name__.lower()} has the keys {', '.join(entry.name for entry in fields)}"
        raise InputError(what, fix="give the file as the engine's job wrote it")
    return values
