"""Numbers gone wrong: steps whose loss or gradient is no number, and parameters that training does not move."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from outlive.data.batch import Batch
from outlive.run.errors import WorkError

SAMPLED = 1024  # weights looked at per parameter: enough for a share to within a few percent, whatever its size
ROUNDED = "its updates round to 0"
MOVED_LITTLE = 0.5  # below this share of moved weights, rounding decides what is learned


def why_skipped(loss: float, grad_norm: float) -> str | None:
    """Why a step must not change the weights: its loss or gradient is NaN or infinite. None where all is well."""
    for name, value in (("loss", loss), ("gradient", grad_norm)):
        if not math.isfinite(value):
            return f"the {name} is {value}"
    return None


def finite(value: float | None) -> float | None:
    """`value`, or None where it is NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


@dataclass
class Skipped:
    """The steps that were skipped so far, and how many in a row; more than `limit` of them end the run."""

    limit: int
    total: int = 0
    in_a_row: int = 0

    def count(self, step: int, why: str | None) -> None:
        """Count step `step` (1-based). Raises WorkError at the `limit`-th skipped step in a row."""
        if why is None:
            self.in_a_row = 0
            return
        self.total, self.in_a_row = self.total + 1, self.in_a_row + 1
        if self.in_a_row >= self.limit:
            raise WorkError(
                f"{self.in_a_row} steps in a row changed no weights, the last of them step {step}: {why}",
                where="events.jsonl names the samples of each skipped step",
                fix="lower optimizer.lr, lengthen optimizer.warmup, or look at these samples with `outlive inspect`",
            )


def suspects(batches: Sequence[Batch], shares: torch.Tensor) -> list[str]:
    """The sample ids of the micro-batches whose share of the loss is no number; of all where each share is one.

    shares: [num_micro_batches].
    """
    broken = [batch for batch, share in zip(batches, shares.tolist(), strict=True) if not math.isfinite(share)]
    return sorted({segment.sample_id for batch in broken or batches for segment in batch.segments})


class Movement:
    """What a sample of every trained parameter held at the start, to see what training moves.

    A weight whose updates are smaller than half the distance to the next number of its format never moves: so bf16
    weights lose most of a fine-tune at small learning rates, while loss and gradients look healthy.
    """

    def __init__(self, trained: Mapping[str, torch.nn.Parameter]) -> None:
        self.places = {name: _places(p.numel(), p.device) for name, p in trained.items()}
        self.start = {name: self._sample(name, p) for name, p in trained.items()}

    def _sample(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().reshape(-1)[self.places[name]].clone()

    def standing_still(self, trained: Mapping[str, torch.nn.Parameter], state: Mapping[Any, Any]) -> list[str]:
        """A sentence for each parameter whose gradients round to nothing, or that no gradient has reached.

        `state`: the optimizer's, with exp_avg_sq, which is 0 exactly where no gradient ever was.
        """
        found = []
        for name, parameter in trained.items():
            reached = self._sample(name, state[parameter]["exp_avg_sq"]) > 0
            if not bool(reached.any()):
                found.append(f"{name}: no gradient has reached it")
                continue
            moved = (self._sample(name, parameter) != self.start[name])[reached].float().mean().item()
            if moved < MOVED_LITTLE:
                dtype = str(parameter.dtype).removeprefix("torch.")
                found.append(f"{name}: {ROUNDED} in {dtype} ({moved:.0%} of its weights moved)")
        return found

    def changed_shares(self, trained: Mapping[str, torch.Tensor], dtype: torch.dtype) -> tuple[float, float]:
        """The share of the sampled weights that differ from the start: as they are, and both rounded to `dtype`."""
        exact = rounded = count = 0
        for name, parameter in trained.items():
            now, start = self._sample(name, parameter), self.start[name]
            exact += int((now != start).sum())
            rounded += int((now.to(dtype) != start.to(dtype)).sum())
            count += len(now)
        return exact / max(count, 1), rounded / max(count, 1)


def _places(size: int, device: torch.device) -> torch.Tensor:
    """Up to SAMPLED flat indices, evenly spread."""
    count = min(size, SAMPLED)
    return (torch.arange(count, device=device, dtype=torch.float64) * (size / max(count, 1))).long()
