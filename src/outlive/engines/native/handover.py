"""What the end of a run hands over: the merged model, and what rounding to the export's dtype does to the training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from outlive.checkpoint.export import Export
from outlive.engines.native.build import Ready
from outlive.engines.native.loop import Training, validate
from outlive.engines.native.numbers import Movement
from outlive.learn.adapters import add_adapter
from outlive.modeling.causal import CausalModel
from outlive.modeling.export import export
from outlive.modeling.loading import load_model, quiet_peft
from outlive.modeling.names import canonical

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
VALIDATION_TOKENS = 4096  # scored in fp32, which a CPU computes slowly: enough to see a loss move
LOST = 0.1  # a rounding that takes back more than this share of the gain, or of the changed weights, is a warning


@dataclass(frozen=True)
class Rounding:
    """What the cast to the export's dtype does: shares of sampled weights that differ from the base, and losses in
    fp32 on some validation rows, before and after it. Losses are None where there are no validation rows."""

    dtype: str
    changed_before: float
    changed_after: float
    loss_before: float | None
    loss_after: float | None

    def loses(self, gain: float | None) -> bool:
        """Whether the rounding takes back more than it may. `gain`: by how much training lowered that loss."""
        if self.loss_before is not None and self.loss_after is not None and gain is not None and gain > 0:
            return self.loss_after - self.loss_before > LOST * gain
        return self.changed_after < (1 - LOST) * self.changed_before

    def sentence(self) -> str:
        """For the user."""
        text = (
            f"export in {self.dtype}: {self.changed_after:.1%} of the weights differ from the base model's, "
            f"{self.changed_before:.1%} before the rounding"
        )
        if self.loss_before is not None and self.loss_after is not None:
            text += f"; validation loss (computed in fp32) {self.loss_before:.4f} before, {self.loss_after:.4f} after"
        return text


def merged(ready: Ready, training: Training, note: Callable[[Rounding], None]) -> Export:
    """The base model, read again in fp32, with the adapter merged in; `note` is told what the cast will do to it.

    W + (alpha / rank)·B·A per adapted layer (Hu et al. 2021, arXiv:2106.09685, section 4.1), in fp32.
    """
    run, device = ready.run, training.model.device
    model = load_model(ready.place, torch.float32, per_document=training.model.per_document, device=device)
    assert run.adapter is not None
    model = add_adapter(model, run.adapter, run.seed)
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in training.model.trained().items():
            own[name].copy_(parameter)
    loss_before = _loss(training, model)
    base = Movement({_merged_name(name): p for name, p in own.items() if ".base_layer." in name})
    with quiet_peft():
        model = model.merge_and_unload()
    weights = dict(model.named_parameters())
    shares = base.changed_shares({name: weights[name] for name in base.start}, DTYPES[run.export.dtype])
    if run.export.dtype != "fp32":  # what is rounded here would be rounded to the same when it is written
        note(Rounding(run.export.dtype, *shares, loss_before, _rounded_loss(training, model, run.export.dtype)))
    return export(model)


def rounding(training: Training, dtype: str) -> Rounding:
    """What the cast of all weights to `dtype` does. The weights of `training` are rounded by this: call it last."""
    shares = training.movement.changed_shares(training.model.trained(), DTYPES[dtype])
    before = _loss(training, training.model.model)
    return Rounding(dtype, *shares, before, _rounded_loss(training, training.model.model, dtype))


def _merged_name(name: str) -> str:
    return canonical(name).replace(".base_layer.", ".")


@torch.no_grad()
def _rounded_loss(training: Training, model: Any, dtype: str) -> float | None:
    for parameter in model.parameters():
        parameter.copy_(parameter.to(DTYPES[dtype]))
    return _loss(training, model)


def _loss(training: Training, model: Any) -> float | None:
    """The validation loss of `model`, computed in fp32, on the first validation packs."""
    if training.validation is None:
        return None
    packs = max(1, VALIDATION_TOKENS // training.validation.plan.layout.sequence_length)
    causal = CausalModel(model, torch.float32, training.model.per_document, training.model.device)
    loss = validate(replace(training, model=causal), replace(training.validation, num_packs=packs), 0).loss
    return loss if loss is not None and math.isfinite(loss) else None
