"""Counted dropout: what is dropped is a function of (seed, step, pack, layer), so it is the same in all layouts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from outlive.data.batch import PackPlace
from outlive.data.order import order_key
from outlive.run.errors import InputError


class Randomness:
    """Where training stands, for the dropout layers of one model: set before each forward."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.step = 0
        self.packs: Sequence[PackPlace] = ()

    def begin_step(self, step: int) -> None:
        """Seed every global generator by (seed, step): a loss of one's own may draw from them, and resumes exactly."""
        key = order_key(self.seed, "step", step)
        torch.manual_seed(key >> 1)
        random.seed(key)
        np.random.seed(key & 0xFFFFFFFF)  # the one that other people's code draws from

    def set(self, step: int, packs: Sequence[PackPlace]) -> None:
        self.step, self.packs = step, packs


class CountedDropout(torch.nn.Module):
    """Dropout of share `p` over a batch's packs laid end to end; it has no state and no parameters."""

    def __init__(self, p: float, layer: str, randomness: Randomness) -> None:
        super().__init__()
        self.p, self.layer, self.randomness = p, layer, randomness

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0:
            return x
        if x.shape[-2] != self.randomness.packs[-1].end:
            raise InputError(
                f"{self.layer} gets {x.shape[-2]} tokens of a batch of {self.randomness.packs[-1].end}: its dropout "
                "can't be counted",
                fix="set the dropout of the model's config to 0",
            )
        keep = torch.cat([self._keep(place, x.shape[-1]) for place in self.randomness.packs])
        return x * (keep.to(device=x.device, dtype=x.dtype) / (1 - self.p))

    def _keep(self, place: PackPlace, width: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(
            order_key(self.randomness.seed, "dropout", self.randomness.step, place.pack, self.layer) >> 1
        )
        return torch.rand(place.end - place.start, width, generator=generator) >= self.p


def count_dropout(model: Any, randomness: Randomness) -> int:
    """Replace the active dropout modules of `model` by counted ones. Returns how many."""
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, torch.nn.Dropout)]
    for name, module in found:
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, CountedDropout(module.p, name, randomness))
    return len(found)
