"""Supervised fine-tuning, and pretraining, which is the same with weight on every token."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from outlive.data.batch import Batch
from outlive.learn.loss_rule import Term


def terms(batch: Batch, weighted_logprob: torch.Tensor, columns: Mapping[str, torch.Tensor]) -> list[Term]:
    """Cross-entropy: -Σ weight·log p(target) / Σ weight. `weighted_logprob` is the scalar Σ weight·log p(target)."""
    return [Term("nll", -weighted_logprob, "weight")]
