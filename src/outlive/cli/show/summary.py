"""How a run went, in numbers and in a sentence: from its records alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlive.run.metrics import Record

RISE = 1.02  # a validation loss that ends more than 2 % above its best has risen


@dataclass(frozen=True)
class Losses:
    """First, last and lowest finite loss, and the step of the lowest."""

    first: float
    last: float
    best: float
    best_step: int
    count: int


@dataclass(frozen=True)
class Summary:
    """A run in numbers. Times are seconds, memory bytes; rates are over training steps alone."""

    steps: int
    planned_steps: int | None
    epochs: int | None
    attempts: int
    tokens: int
    target_tokens: int
    train_seconds: float
    tokens_per_second: float | None
    memory: int | None
    loss: Losses | None
    validation: Losses | None
    nonfinite_steps: list[int]
    skipped_steps: list[int]
    """Steps that changed no weights."""
    skipped_why: list[str]
    """Their reasons, each once."""
    start: float | None
    """Mean loss of the first steps (a tenth of all, ten at most)."""
    end: float | None
    """Mean loss of the last steps."""

    def to_json(self) -> dict[str, Any]:
        """The summary with its verdict and its warnings."""
        return asdict(self) | {"verdict": self.verdict(), "warnings": self.warnings()}

    def verdict(self) -> str:
        """One sentence: whether it learned."""
        if not self.steps:
            return "No step was trained."
        if self.start is None or self.end is None:
            return f"The loss was never finite in {_steps(self.steps)}."
        change = "fell" if self.end < self.start else "rose"
        sentence = f"The loss {change} from {self.start:.3f} to {self.end:.3f} in {_steps(self.steps)}"
        if self.steps == 1:
            sentence = f"The loss of the only step was {self.end:.3f}"
        if self.validation is not None:
            first, last = self.validation.first, self.validation.last
            sentence += (
                f"; on validation it {'fell' if last < first else 'rose'} from {first:.3f} to {last:.3f}"
                if self.validation.count > 1
                else f"; on validation it was {last:.3f}"
            )
        return sentence + "."

    def warnings(self) -> list[str]:
        """What a reader should not overlook."""
        found = []
        if self.nonfinite_steps:
            found.append(f"the loss was not finite at {_steps_named(self.nonfinite_steps)}")
        if self.skipped_steps:
            why = "; ".join(self.skipped_why)
            number = len(self.skipped_steps)
            found.append(f"{_steps(number)} changed no weights: {_steps_named(self.skipped_steps)} ({why})")
        if self.steps > 1 and self._no_fall():
            found.append("the loss did not fall: look at the learning rate and at the first batch's targets")
        if self.validation is not None and self.validation.last > self.validation.best * RISE:
            best = self.validation
            found.append(
                f"the validation loss rose from {best.best:.3f} (step {best.best_step}) to {best.last:.3f}: "
                "fewer steps may be better"
            )
        if self.planned_steps is not None and self.steps < self.planned_steps:
            found.append(f"{self.steps} of {self.planned_steps} planned steps are done")
        return found

    def _no_fall(self) -> bool:
        # Single steps can differ by their rows more than by what was learned; validation is on the same rows each time.
        if self.validation is not None and self.validation.best < self.validation.first:
            return False
        return self.start is not None and self.end is not None and self.end >= self.start


def current(records: Sequence[Record]) -> list[Record]:
    """The records that count: what a later attempt did again replaces what the earlier one had done."""
    kept: list[Record] = []
    for record in records:
        if kept and record.attempt > kept[-1].attempt:
            kept = [old for old in kept if old.step < record.step or (old.kind, old.step) == ("validation", 0)]
        kept.append(record)
    return kept


def summarise(records: Sequence[Record], planned_steps: int | None = None) -> Summary:
    """The summary of a run's records, as `current` gives them. `planned_steps`: of the whole run, where known."""
    steps = [record for record in records if record.kind == "train"]
    validations = [record for record in records if record.kind == "validation" and record.name is None]
    timed = [record for record in steps if record.seconds and record.tokens]
    seconds = sum(record.seconds or 0.0 for record in steps)
    finite = [record.loss for record in steps if record.loss is not None and math.isfinite(record.loss)]
    some = max(1, min(10, len(finite) // 10))
    return Summary(
        steps=max((record.step for record in steps), default=0),
        planned_steps=planned_steps,
        epochs=max((record.epoch + 1 for record in steps if record.epoch is not None), default=None),
        attempts=max((record.attempt for record in records), default=0),
        tokens=sum(record.tokens or 0 for record in steps),
        target_tokens=sum(record.target_tokens or 0 for record in steps),
        train_seconds=seconds,
        tokens_per_second=sum(r.tokens or 0 for r in timed) / sum(r.seconds or 0.0 for r in timed) if timed else None,
        memory=max((record.memory for record in steps if record.memory), default=None),
        loss=_losses(steps),
        validation=_losses(validations),
        nonfinite_steps=[r.step for r in steps if r.loss is not None and not math.isfinite(r.loss)],
        skipped_steps=[r.step for r in steps if r.skipped],
        skipped_why=list(dict.fromkeys(r.skipped for r in steps if r.skipped)),
        start=fmean(finite[:some]) if finite else None,
        end=fmean(finite[-some:]) if finite else None,
    )


def _losses(records: Sequence[Record]) -> Losses | None:
    known = [(record.loss, record.step) for record in records if record.loss is not None and math.isfinite(record.loss)]
    if not known:
        return None
    best, step = min(known)
    return Losses(known[0][0], known[-1][0], best, step, len(known))


def _steps(number: int) -> str:
    return f"{number:,} step{'' if number == 1 else 's'}"


def _steps_named(steps: Sequence[int]) -> str:
    names = ", ".join(map(str, steps[:5]))
    return f"step{'' if len(steps) == 1 else 's'} {names}" + (f" and {len(steps) - 5} more" if len(steps) > 5 else "")
