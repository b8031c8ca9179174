"""A causal language model and how it is run: what trainer, validation and an own loop share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from outlive.checkpoint.export import Export
from outlive.modeling.export import export
from outlive.modeling.forward import Hidden, Tensors, causal_lm, head_of, hidden_states
from outlive.modeling.loading import find_model, isolates, load_config, load_model
from outlive.modeling.precision import compute_dtype
from outlive.modeling.target_loss import logprobs, weighted_sum
from outlive.run.home import outlive_home


@dataclass(frozen=True)
class CausalModel:
    """`model`: transformers' (or PEFT's around it). `dtype`: of the computation; weights in another are cast per use.

    `per_document`: whether documents share a forward, kept apart by attention; else each has a forward of its own.
    """

    model: Any
    dtype: torch.dtype
    per_document: bool
    device: torch.device

    def tensors(self, batch: Any) -> Tensors:
        return Tensors.of(batch, self.device)

    def hidden(self, tensors: Tensors, *, router: bool = False) -> Hidden:
        """Hidden states [T, H] of all tokens, in the computation's dtype."""
        with self.computing():
            return hidden_states(self.model, tensors, per_document=self.per_document, router=router)

    def score(self, hidden: Hidden, tensors: Tensors, reads: Literal["logprobs", "weighted_sum"]) -> torch.Tensor:
        """log p(target) at the targets: each, [num_targets], or their weighted sum, a scalar."""
        states = hidden.states.index_select(0, tensors.targets)
        head, dtype = head_of(self.model), self._product_dtype(hidden.states)
        if reads == "weighted_sum":
            return weighted_sum(states, head, tensors.target_ids, tensors.target_weight, dtype)
        return logprobs(states, head, tensors.target_ids, dtype)

    def computing(self) -> Any:
        """The context in which the model runs: products in `dtype`, whatever the weights are kept in."""
        low = self.dtype in (torch.bfloat16, torch.float16)
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=low)

    def _product_dtype(self, states: torch.Tensor) -> torch.dtype:
        return self.dtype if self.dtype in (torch.bfloat16, torch.float16) else states.dtype

    @property
    def config(self) -> Any:
        return causal_lm(self.model).config.get_text_config()

    def trained(self) -> dict[str, torch.nn.Parameter]:
        """The parameters that are trained, by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def export(self, state: Mapping[str, torch.Tensor] | None = None) -> Export:
        """What is written of it as model/ or adapter/; `state` replaces tensors by parameter name (a snapshot)."""
        return export(self.model, state)


def load(name: str, *, precision: str = "auto", device: torch.device | str | None = None) -> CausalModel:
    """The model of a folder, .gguf file or hub id, all of it trained: weights in fp32, computation as `precision`.

    precision: auto | fp32 | bf16. Raises InputError where there is no such model.
    """
    place = find_model(name, outlive_home())
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    dtype, _ = compute_dtype(precision, target)
    per_document = isolates(load_config(place)) is None
    model = load_model(place, torch.float32, per_document=per_document, device=target)
    return CausalModel(model.train(), dtype, per_document, target)
