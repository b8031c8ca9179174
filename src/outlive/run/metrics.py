"""metrics.jsonl: one record per step, the same for every engine; written line by line, read after any crash."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from outlive.run.errors import InputError
from outlive.run.files import disk_error

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


_FIELDS = {entry.name for entry in dataclasses.fields(Record)}
_TEXTS = {"kind", "name"}


def to_line(record: Record) -> str:
    """A record as one line of JSON. NaN and infinities, which JSON lacks, become null and are named in `nonfinite`."""
    values = {key: value for key, value in dataclasses.asdict(record).items() if value is not None}
    nonfinite = {
        key: str(value) for key, value in values.items() if isinstance(value, float) and not math.isfinite(value)
    }
    values.update(dict.fromkeys(nonfinite))
    if nonfinite:
        values["nonfinite"] = nonfinite
    return json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n"


def from_values(values: dict[str, Any]) -> Record:
    """The record of a line's values, without keys that this version does not know. ValueError if it is none."""
    if values.get("kind") not in KINDS or type(values.get("step")) is not int:
        raise ValueError("a record has a kind and a step")
    named = values.get("nonfinite", {})
    nonfinite = {key: float(str(value)) for key, value in named.items()} if isinstance(named, dict) else {}
    known = {key: value for key, value in {**values, **nonfinite}.items() if key in _FIELDS}
    for key, value in known.items():
        if key not in _TEXTS and value is not None and type(value) not in (int, float):
            raise ValueError(f"{key} is {json.dumps(value)[:40]}, not a number")
    return Record(**known)


class Writer:
    """Appends records to a metrics file; each is in the file when `write` returns.

    A last line that a crash cut is taken off first: it was never a whole record. WorkError when the disk refuses.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = open(self.path, "ab", buffering=0)  # noqa: SIM115  (closed by close)
            _end_last_line(self.path)
        except OSError as error:
            raise disk_error(error, self.path) from error

    def write(self, record: Record) -> None:
        """Append one record, as one write, so that lines of two processes never mix."""
        line = to_line(record).encode()
        try:
            if self.file.write(line) != len(line):
                raise OSError(28, os.strerror(28))  # the disk took a part of it: it is full
        except OSError as error:
            raise disk_error(error, self.path) from error

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
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise InputError("there are no metrics", where=str(path), fix="name a run folder that has trained") from error
    except OSError as error:
        raise disk_error(error, path, "read the metrics") from error
    records: list[Record] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        is_last = number == len(lines)
        if not line and is_last:
            break
        try:
            records.append(from_values(_object(line)))
        except ValueError as error:
            if is_last:
                return Metrics(records, cut=number)
            raise InputError(f"this is no record: {error}", where=f"{path}:{number}", fix="remove the line") from error
    return Metrics(records)


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("a record is a JSON object")
    return value


def _end_last_line(path: Path) -> None:
    with open(path, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return
        tail_at = max(0, size - (1 << 16))
        file.seek(tail_at)
        tail = file.read()
        last = tail[tail.rfind(b"\n") + 1 :]
        if not last:
            return
        try:
            from_values(_object(last))
        except ValueError:
            file.truncate(size - len(last))
        else:
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
