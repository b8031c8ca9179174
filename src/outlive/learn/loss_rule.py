"""The loss rule, owned here: objective = Σ coefficient · sum / denominator, denominators counted over the global batch.

Methods return sums, never means. Since the denominators are known before the first backward, gradients of micro-batches
and ranks are summed, never averaged: 1×32, 4×8 and 32×1 are the same step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from outlive.data.batch import Batch

Denominator = Literal["weight", "tokens", "segments", "groups", "constant"]


@dataclass(frozen=True)
class Term:
    """A part of the objective: `sum` over what is here (a scalar tensor), to be divided by the global `denominator`."""

    name: str
    sum: torch.Tensor
    denominator: Denominator
    coefficient: float = 1.0


def count(batches: Iterable[Batch]) -> dict[str, float]:
    """The denominators of a global batch, from all of its micro-batches on all ranks."""
    totals = {"weight": 0.0, "tokens": 0.0, "segments": 0.0, "groups": 0.0}
    for batch in batches:
        for name, value in batch.denominators().items():
            totals[name] += value
    return {**totals, "constant": 1.0}


def objective(terms: Sequence[Term], totals: Mapping[str, float]) -> torch.Tensor:
    """Σ coefficient · sum / totals[denominator]: this micro-batch's share of the global objective, a scalar."""
    total = terms[0].sum.new_zeros(())
    for term in terms:
        if totals[term.denominator] <= 0:
            raise ValueError(f"the term {term.name} is divided by {term.denominator}, and the batch has none")
        total = total + term.sum * (term.coefficient / totals[term.denominator])
    return total
