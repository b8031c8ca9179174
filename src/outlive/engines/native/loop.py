"""The loop. Read it top to bottom: a global batch, forward and backward of each micro-batch, clip, step, record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from outlive.engines.native.schedule import learning_rate
from outlive.engines.native.source import FixedBatches, PlanSource, Step
from outlive.learn.methods import Method
from outlive.learn.objective import Router, micro_batch_objective
from outlive.modeling.causal import CausalModel
from outlive.modeling.dropout import Randomness
from outlive.run.config import Optimizer
from outlive.run.errors import WorkError
from outlive.run.machine import peak_memory
from outlive.run.metrics import Record


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


def train(training: Training, record: Callable[[Record], None]) -> int:
    """Train to the end of the source; every step, and every validation, is recorded. Returns the number of steps."""
    num_steps = training.source.num_steps()
    training.model.model.train()
    if training.validation is not None:
        record_validation(training, training.validation, 0, record)
    for step in training.source:
        started = time.perf_counter()
        lr = learning_rate(training.schedule, step.cursor.step, num_steps)
        for group in training.optimizer.param_groups:
            group["lr"] = lr
        loss = forward_backward(training, step)
        grad_norm = clip(training.model.trained().values(), training.schedule.clip)
        training.optimizer.step()
        training.optimizer.zero_grad()
        record(_train_record(step, float(loss), float(grad_norm), lr, time.perf_counter() - started))
        refuse_nonfinite(step.cursor.step + 1, loss=float(loss), gradient_norm=float(grad_norm))

        # once in a while:
        last = step.cursor.step + 1 == num_steps
        if training.validation is not None and (last or training.source.cursor.epoch > step.cursor.epoch):
            record_validation(training, training.validation, step.cursor.step + 1, record)
    return num_steps


def refuse_nonfinite(step: int, **values: float) -> None:
    """Raise WorkError where a number is NaN or infinite: from then on the weights are, too, and stay so."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise WorkError(
                f"the {name.replace('_', ' ')} of step {step} is {value}: nothing is saved",
                fix="lower optimizer.lr, lengthen optimizer.warmup, or look for broken rows in first_batch.html",
            )


def forward_backward(training: Training, step: Step) -> torch.Tensor:
    """The global objective of one step, and its gradient summed into the parameters."""
    total = torch.zeros((), device=training.model.device)
    for batch in step.micro_batches:
        training.randomness.set(step.cursor.step, batch.packs)
        share = micro_batch_objective(training.model, batch, training.method, step.totals, training.router)
        share.backward()  # type: ignore[no-untyped-call]
        total += share.detach()
    return total


def clip(parameters: Iterable[torch.nn.Parameter], max_norm: float | None) -> torch.Tensor:
    """The norm of the whole gradient, before it is scaled down to `max_norm` where it is larger."""
    return torch.nn.utils.clip_grad_norm_(list(parameters), float("inf") if max_norm is None else max_norm)


def record_validation(training: Training, batches: FixedBatches, step: int, record: Callable[[Record], None]) -> None:
    """Validate and record it. Raises WorkError where the loss is no number."""
    entry = validate(training, batches, step)
    record(entry)
    refuse_nonfinite(step, validation_loss=entry.loss if entry.loss is not None else math.nan)


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


def _train_record(step: Step, loss: float, grad_norm: float, lr: float, seconds: float) -> Record:
    return Record(
        kind="train",
        step=step.cursor.step + 1,
        epoch=step.cursor.epoch,
        tokens=step.num_tokens,
        target_tokens=step.num_targets,
        loss=loss,
        grad_norm=grad_norm,
        lr=lr,
        target_tokens_per_second=step.num_targets / seconds,
        real_tokens_per_second=step.num_tokens / seconds,
        memory=peak_memory(),
        seconds=seconds,
    )
