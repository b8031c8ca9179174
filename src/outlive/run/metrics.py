"""metrics.jsonl: one record per step, the same for every engine; written line by line, read after any crash."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from outlive.run import lines
from outlive.run.errors import InputError
from outlive.run.files import disk_error, write_atomic

Kind = Literal["train", "validation", "eval", "rollout"]
KINDS = ("train", "validation", "eval", "rollout")


@dataclass(frozen=True)
class Record:
    """One line of metrics.jsonl. None where a kind has no such value.

    tokens and target_tokens are of this step, over all ranks. Rates leave out validation and saves.
    """

    kind: Kind
    step: int
    """Optimizer steps done."""
    attempt: int = 1
    """Which start of the run this is: 1, and one more after each resume."""
    tokens: int | None = None
    """Tokens of this step, padding not counted."""
    target_tokens: int | None = None
    """Tokens of this step that carry loss."""
    loss: float | None = None
    """The step's objective."""
    grad_norm: float | None = None
    """Norm of the whole gradient, before clipping."""
    lr: float | None = None
    """Learning rate of this step."""
    target_tokens_per_second: float | None = None
    real_tokens_per_second: float | None = None
    """Tokens per second, padding not counted."""
    memory: int | None = None
    """Peak bytes of the process so far."""
    time: float = field(default_factory=time.time)
    """When it was written, in seconds since 1970."""
    epoch: int | None = None
    """Pass over the training data, from 0."""
    seconds: float | None = None
    """Time of this step or validation."""
    name: str | None = None
    """Which validation set or task, where there are several."""
    skipped: str | None = None
    """Why this step changed no weights, as "the gradient is nan"; None for a step that did."""


_FIELDS = {entry.name for entry in dataclasses.fields(Record)}
_TEXTS = {"kind", "name", "skipped"}
SUPERSEDED = "superseded.jsonl"


def to_line(record: Record) -> str:
    """A record as one line of JSON. NaN and infinities, which JSON lacks, become null and are named in `nonfinite`."""
    return lines.to_line({key: value for key, value in dataclasses.asdict(record).items() if value is not None})


def from_values(values: dict[str, Any]) -> Record:
    """The record of a line's values, without keys that this version does not know. ValueError if it is none."""
    if values.get("kind") not in KINDS or type(values.get("step")) is not int:
        raise ValueError("a record has a kind and a step")
    known = {key: value for key, value in {**values, **lines.nonfinite_of(values)}.items() if key in _FIELDS}
    for key, value in known.items():
        if value is not None and type(value) not in ((str,) if key in _TEXTS else (int, float)):
            raise ValueError(f"{key} is {json.dumps(value)[:40]}, not a {'text' if key in _TEXTS else 'number'}")
    return Record(**known)


class Writer:
    """Appends records to a metrics file; each is in the file when `write` returns, on the disk after `sync`.

    A last line that a crash cut is taken off first: it was never a whole record. WorkError when the disk refuses.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.file = lines.Appender(self.path, from_values)

    def write(self, record: Record) -> None:
        """Append one record, as one write, so that lines of two processes never mix."""
        self.file.write(to_line(record).encode())

    def sync(self) -> None:
        """Wait until all records are on the disk: a checkpoint must not know of steps that the metrics lost."""
        self.file.sync()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Metrics:
    """A metrics file's records in order; `cut` is the 1-based number of a last line that a crash cut, or None."""

    records: list[Record]
    cut: int | None = None


def read(path: Path | str) -> Metrics:
    """All records of a metrics file. A cut last line is left out and named; InputError for any other bad line."""
    found = _lines(Path(path))
    cut = next((line.number for line in found if line.value is None), None)
    return Metrics([line.value for line in found if line.value is not None], cut)


def supersede(path: Path | str, step: int, owes_validation: bool = False) -> int:
    """Before a run goes on at `step`: move the records of later steps to superseded.jsonl beside `path`; how many.

    `owes_validation`: the validation of `step` itself is done again, and its records move too.
    So metrics.jsonl stays one curve. The moved records are on the disk before the file without them takes the other's
    place: after a kill between the two a second call moves them again, and `read_superseded` shows them once.
    InputError for a bad line, WorkError when the disk refuses. The caller holds the run's claim.
    """
    path = Path(path)
    if not path.exists():
        return 0
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):  # of a call that was killed
        leftover.unlink(missing_ok=True)
    whole = [line for line in _lines(path) if line.value is not None]
    first = (step, "validation") if owes_validation else None
    moved: list[bytes] = []
    kept: list[bytes] = []
    for line in whole:
        again = line.value.step > step or (line.value.step, line.value.kind) == first
        (moved if again else kept).append(line.raw)
    if moved:
        with lines.Appender(path.with_name(SUPERSEDED), from_values) as file:
            file.write(b"".join(raw + b"\n" for raw in moved))
            file.sync()
        write_atomic(path, b"".join(raw + b"\n" for raw in kept))
    return len(moved)


def read_superseded(path: Path | str) -> list[Record]:
    """The records that resumes took out of `path` (a metrics file), in the order of their moves, each once."""
    path = Path(path).with_name(SUPERSEDED)
    if not path.exists():
        return []
    once = {line.raw: line.value for line in _lines(path) if line.value is not None}
    return list(once.values())


def _lines(path: Path) -> list[lines.Line]:
    try:
        return list(lines.read_lines(path, from_values))
    except FileNotFoundError as error:
        raise InputError("there are no metrics", where=str(path), fix="name a run folder that has trained") from error
    except OSError as error:
        raise disk_error(error, path, "read the metrics") from error
