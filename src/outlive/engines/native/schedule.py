"""AdamW and the learning rate of each step: pure functions of the run file."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from outlive.run.config import Optimizer


def make_optimizer(parameters: Iterable[torch.nn.Parameter], section: Optimizer) -> torch.optim.Optimizer:
    """AdamW, fused. Weight decay acts on matrices, not on biases and norms, which have no scale to keep small."""
    trained = list(parameters)
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": section.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=section.lr, betas=section.betas, eps=section.eps, fused=True
    )


def learning_rate(section: Optimizer, step: int, num_steps: int) -> float:
    """The learning rate of step `step` (from 0) of `num_steps`: linear warm-up, then the schedule.

    Where the run file names schedule_steps, they take the place of `num_steps`; the steps after them stay at the end.

    The last step of the warm-up has the peak. cosine: lr·(r + (1-r)·(1 + cos(π·t))/2) with r = min_lr_ratio and t the
    share of the steps after the warm-up (Loshchilov and Hutter 2016, arXiv:1608.03983); linear: r + (1-r)·(1-t).
    """
    num_steps = section.schedule_steps or num_steps
    warmup = math.ceil(section.warmup * num_steps) if section.warmup < 1 else int(section.warmup)
    if step < warmup:
        return section.lr * (step + 1) / warmup
    if section.schedule == "constant":
        return section.lr
    progress = min(1.0, (step - warmup) / max(1, num_steps - warmup))
    falling = (1 + math.cos(math.pi * progress)) / 2 if section.schedule == "cosine" else 1 - progress
    return section.lr * (section.min_lr_ratio + (1 - section.min_lr_ratio) * falling)
