"""The objective of one micro-batch: forward, log-probabilities at the targets, the method's terms, the loss rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from outlive.data.batch import Batch
from outlive.learn.loss_rule import Term, objective
from outlive.learn.methods import Method
from outlive.learn.router import router_term
from outlive.modeling.causal import CausalModel


@dataclass(frozen=True)
class Router:
    """How the load-balancing term of a mixture-of-experts model enters; coefficient 0: not at all."""

    coefficient: float = 0.0
    top_k: int = 1
    mode: str = "segment"

    @classmethod
    def of(cls, config: Any, coefficient: float | None = None, mode: str = "segment") -> Router:
        """From the model's config. coefficient None: its router_aux_loss_coef, where it says output_router_logits."""
        top_k = getattr(config, "num_experts_per_tok", None)
        if not top_k:
            return cls()
        if coefficient is None:
            switched_on = getattr(config, "output_router_logits", False)
            coefficient = float(getattr(config, "router_aux_loss_coef", 0.0) or 0.0) if switched_on else 0.0
        return cls(coefficient, int(top_k), mode)


def micro_batch_objective(
    model: CausalModel, batch: Batch, method: Method, totals: Mapping[str, float], router: Router = Router()
) -> torch.Tensor:
    """This micro-batch's share of the global objective, a scalar to call `backward` on; shares are summed.

    `totals` are the denominators of the global batch (`loss_rule.count`). A micro-batch without targets gives 0.
    """
    tensors = model.tensors(batch)
    hidden = model.hidden(tensors, router=router.coefficient > 0)
    logprobs = model.score(hidden, tensors, method.reads)
    columns = {name: torch.from_numpy(values).to(model.device) for name, values in batch.columns.items()}
    terms = method.terms(batch, logprobs, columns)
    if router.coefficient > 0:
        terms = [*terms, _router_term(hidden.router_logits, batch, router, totals)]
    return objective(terms, totals)


def _router_term(logits: tuple[torch.Tensor, ...], batch: Batch, router: Router, totals: Mapping[str, float]) -> Term:
    bounds = [(segment.start, segment.end) for segment in batch.real_segments]
    share = batch.denominators()["weight"] / totals["weight"]
    return router_term(logits, bounds, router.top_k, router.coefficient, router.mode, share)
