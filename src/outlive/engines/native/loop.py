"""The loop. Read it top to bottom: a global batch, forward and backward of each micro-batch, clip, step, record; once
in a while validate and save."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from outlive.engines.native.numbers import Movement, Skipped, finite, suspects, why_skipped
from outlive.engines.native.schedule import learning_rate
from outlive.engines.native.source import FixedBatches, PlanSource, Step
from outlive.learn.methods import Method
from outlive.learn.objective import Router, micro_batch_objective
from outlive.modeling.causal import CausalModel
from outlive.modeling.dropout import Randomness
from outlive.run.config import Optimizer
from outlive.run.errors import OutliveError, WorkError
from outlive.run.machine import peak_memory
from outlive.run.metrics import Record

TOLD_SECONDS = 1.0  # of waiting for data


@dataclass
class Training:
    """All that the loop works on. `validation`: the micro-batches of the validation rows, or None."""

    model: CausalModel
    method: Method
    router: Router
    source: PlanSource
    optimizer: torch.optim.Optimizer
    schedule: Optimizer
    randomness: Randomness
    validation: FixedBatches | None
    skipped: Skipped
    movement: Movement
    owes_validation: bool = True
    """Whether the place that `source` begins at is still to be validated."""


class Keeper(Protocol):
    """Who keeps what the loop makes."""

    def event(self, kind: str, **values: Any) -> None:
        """Write down what happened."""

    def stop_asked(self) -> bool:
        """Whether the run is to end after this step, and go on some other day."""

    def due(self, step: int) -> bool:
        """Whether the state after `step` steps is to be saved. Raises WorkError where an earlier save has failed."""

    def validates(self) -> bool:
        """Whether what is saved is validated first."""

    def save(self, training: Training, validation_loss: float | None, last: bool) -> None:
        """Save the state as it is now."""


def train(training: Training, record: Callable[[Record], None], keeper: Keeper | None = None) -> int:
    """Train to the end of the source; every step and every validation is recorded. Returns the number of steps done."""
    num_steps = training.source.num_steps()
    training.model.model.train()
    if keeper is not None and keeper.stop_asked():
        return training.source.cursor.step  # nothing was done that is not saved
    if training.validation is not None and training.owes_validation:
        record_validation(training, training.validation, training.source.cursor.step, record)
    for step in training.source:
        started = time.perf_counter()
        training.randomness.begin_step(step.cursor.step)
        lr = learning_rate(training.schedule, step.cursor.step, num_steps)
        for group in training.optimizer.param_groups:
            group["lr"] = lr
        shares = forward_backward(training, step)
        grad_norm = float(clip(training.model.trained().values(), training.schedule.clip))
        loss = float(shares.sum())
        skipped = why_skipped(loss, grad_norm)
        if skipped is None:
            training.optimizer.step()
        training.optimizer.zero_grad()
        seconds = time.perf_counter() - started
        record(_train_record(step, loss, grad_norm, lr, skipped, seconds))
        _count_skipped(training, step, shares, skipped, keeper)

        # once in a while:
        done = step.cursor.step + 1
        last = done == num_steps
        due = keeper is not None and keeper.due(done)
        ends_pass = training.source.cursor.epoch > step.cursor.epoch
        wanted = last or ends_pass or (due and keeper is not None and keeper.validates())
        if keeper is not None and not last:
            wait_for_data(training, keeper, done, wanted)
        stopping = keeper is not None and not last and keeper.stop_asked()
        training.owes_validation = wanted and stopping  # whoever sent the signal does not wait for long
        validation_loss = None
        if training.validation is not None and wanted and not stopping:
            validation_loss = record_validation(training, training.validation, done, record)
        if keeper is not None and (due or last or stopping):
            keeper.save(training, validation_loss, last)
        if stopping:
            break
    return training.source.cursor.step


def wait_for_data(training: Training, keeper: Keeper, done: int, owes_validation: bool) -> None:
    """Wait where the next step's samples are still being prepared, or until the run is asked to stop. Where the
    preparation has failed, what is trained so far is saved first."""
    try:
        seconds = training.source.wait(keeper.stop_asked)
    except OutliveError as error:
        training.owes_validation = owes_validation
        keeper.save(training, None, False)
        what = f"the preparation of the data has failed: {error.what}"
        raise WorkError(what, where=error.where, fix=error.fix) from error
    if seconds > TOLD_SECONDS:
        keeper.event("waited_for_data", step=done, seconds=round(seconds, 1))


def _count_skipped(
    training: Training, step: Step, shares: torch.Tensor, skipped: str | None, keeper: Keeper | None
) -> None:
    number = step.cursor.step + 1
    if skipped is not None and keeper is not None:
        keeper.event("skipped_step", step=number, why=skipped, sample_ids=suspects(step.micro_batches, shares))
    training.skipped.count(number, skipped)


def forward_backward(training: Training, step: Step) -> torch.Tensor:
    """Each micro-batch's share of the step's global objective, [num_micro_batches]; the gradient of their sum is added
    up in the parameters."""
    shares = torch.zeros(len(step.micro_batches), device=training.model.device)
    for place, batch in enumerate(step.micro_batches):
        training.randomness.set(step.cursor.step, batch.packs)
        share = micro_batch_objective(training.model, batch, training.method, step.totals, training.router)
        share.backward()  # type: ignore[no-untyped-call]
        shares[place] = share.detach()
    return shares


def clip(parameters: Iterable[torch.nn.Parameter], max_norm: float | None) -> torch.Tensor:
    """The norm of the whole gradient, before it is scaled down to `max_norm` where it is larger."""
    return torch.nn.utils.clip_grad_norm_(list(parameters), float("inf") if max_norm is None else max_norm)


def record_validation(
    training: Training, batches: FixedBatches, step: int, record: Callable[[Record], None]
) -> float | None:
    """Validate and record it; the loss, or None where it is no number. Before the first step that is a WorkError."""
    entry = validate(training, batches, step)
    record(entry)
    if finite(entry.loss) is not None:
        return entry.loss
    if step == 0:
        raise WorkError(
            f"the validation loss is {entry.loss} before any training",
            fix="look for broken weights in the model, or for broken rows with `outlive inspect`",
        )
    return None


@torch.no_grad()
def validate(training: Training, batches: FixedBatches, step: int) -> Record:
    """The objective on the validation rows, under the same rule, without dropout."""
    started = time.perf_counter()
    totals = batches.totals
    training.model.model.eval()
    shares = [
        micro_batch_objective(training.model, batch, training.method, totals, training.router) for batch in batches
    ]
    training.model.model.train()
    return Record(
        kind="validation",
        step=step,
        tokens=int(totals["tokens"]),
        target_tokens=batches.num_targets,
        loss=float(sum(shares)),
        seconds=time.perf_counter() - started,
    )


def _train_record(step: Step, loss: float, grad_norm: float, lr: float, skipped: str | None, seconds: float) -> Record:
    return Record(
        kind="train",
        step=step.cursor.step + 1,
        epoch=step.cursor.epoch,
        tokens=step.num_tokens,
        target_tokens=step.num_targets,
        loss=loss,
        grad_norm=grad_norm,
        lr=lr,
        skipped=skipped,
        target_tokens_per_second=step.num_targets / seconds,
        real_tokens_per_second=step.num_tokens / seconds,
        memory=peak_memory(),
        seconds=seconds,
    )
