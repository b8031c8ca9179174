"""The load-balancing term of mixture-of-experts models, per segment, so that it adds up over any batch layout."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outlive.learn.loss_rule import Term


def router_term(
    router_logits: Sequence[torch.Tensor],
    bounds: Sequence[tuple[int, int]],
    top_k: int,
    coefficient: float,
    mode: str = "segment",
    share_of_targets: float = 1.0,
) -> Term:
    """Σ_segments n_s·E·Σ_e f_se·p_se, divided by the tokens of the global batch.

    f_se is the share of a segment's tokens (over all layers) sent to expert e, summed over the `top_k` choices; p_se
    the mean router probability: Switch Transformer (Fedus et al. 2021, arXiv:2101.03961, equations 4 to 6) as
    transformers computes it for one sequence. router_logits: one [T, E] per sparse layer; bounds: segments' (start,
    end) in T. mode "micro_batch": all tokens of the micro-batch as one, as Hugging Face does; it depends on the batch
    layout, and `share_of_targets`, this micro-batch's part of the global targets, weighs it.
    """
    if mode == "micro_batch":
        value = _balance(router_logits, 0, router_logits[0].shape[0], top_k)
        return Term("router_aux", value * share_of_targets, "constant", coefficient)
    parts = [_balance(router_logits, start, end, top_k) * (end - start) for start, end in bounds]
    total = torch.stack(parts).sum() if parts else 0.0 * router_logits[0].sum()
    return Term("router_aux", total, "tokens", coefficient)


def _balance(router_logits: Sequence[torch.Tensor], start: int, end: int, top_k: int) -> torch.Tensor:
    """E·Σ_e f_e·p_e of tokens start:end over all layers."""
    logits = torch.cat([layer[start:end] for layer in router_logits])
    probabilities = torch.softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    chosen = torch.topk(probabilities, top_k, dim=-1).indices
    num_experts = probabilities.shape[-1]
    sent = torch.bincount(chosen.flatten(), minlength=num_experts).to(probabilities.dtype) / len(logits)
    return num_experts * (sent * probabilities.mean(dim=0)).sum()
