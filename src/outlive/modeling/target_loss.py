"""TargetLoss: the head and the loss as one, with logits only at target positions, in chunks, never [T, V].

Two forms. `weighted_sum` gives Σ weight·log p(target) and makes the gradient in the forward, so that logits are
computed once. `logprobs` gives log p(target) of each target and computes the logits again in the backward, for losses
that are no weighted sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

CHUNK_LOGITS = 2**26  # logits of one chunk: 256 MiB in fp32
_ROWS = 16


@dataclass(frozen=True)
class Head:
    """logits = softcap·tanh(scale·(h·weightᵀ + bias) / softcap); weight [V, H], bias [V] or None.

    `scale` is Cohere's logit_scale or the inverse of Granite's logits_scaling; `softcap` is Gemma 2's.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    scale: float = 1.0
    softcap: float | None = None


def weighted_sum(
    hidden: torch.Tensor, head: Head, target_ids: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Σ weight·log softmax(logits)[target], a scalar of at least float32.

    hidden [N, H] at target positions, target_ids int64 [N], weight [N]. `dtype` is that of the head's product; the
    softmax runs in at least float32. Peak memory beyond the gradients: chunk × V × 10 bytes.
    """
    how = _how(head, hidden, dtype)
    apply: Any = _WeightedSum.apply
    result: torch.Tensor = apply(hidden, head.weight, head.bias, target_ids, weight, how)
    return result


def logprobs(
    hidden: torch.Tensor, head: Head, target_ids: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """log softmax(logits)[target] of each target, [N], at least float32. Arguments as in `weighted_sum`."""
    apply: Any = _Logprobs.apply
    result: torch.Tensor = apply(hidden, head.weight, head.bias, target_ids, _how(head, hidden, dtype))
    return result


@dataclass(frozen=True)
class _How:
    """How chunks are computed: the head's transforms, the product's dtype, targets a chunk, whether with gradients."""

    scale: float
    softcap: float | None
    dtype: torch.dtype
    chunk: int
    grad: bool


def _how(head: Head, hidden: torch.Tensor, dtype: torch.dtype | None) -> _How:
    chunk = max(64, min(1024, CHUNK_LOGITS // head.weight.shape[0]))
    return _How(head.scale, head.softcap, dtype or hidden.dtype, chunk, torch.is_grad_enabled())


def _chunks(num: int, how: _How) -> Iterator[slice]:
    return (slice(begin, begin + how.chunk) for begin in range(0, num, how.chunk))


def _logits(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, how: _How) -> torch.Tensor:
    """The logits of a chunk, [n, V] in at least float32."""
    logits = hidden.to(how.dtype) @ weight.t()
    if bias is not None:
        logits += bias
    logits = logits.to(torch.promote_types(how.dtype, torch.float32))
    if how.scale != 1.0:
        logits.mul_(how.scale)
    if how.softcap is not None:
        logits.div_(how.softcap).tanh_().mul_(how.softcap)
    return logits


def _target_logprobs(logits: torch.Tensor, target_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """log p(target) [n] and the log-normaliser [n, 1] of logits [n, V]."""
    # A few rows at a time: logsumexp makes two more copies of what it is given.
    normaliser = torch.cat([torch.logsumexp(rows, dim=1, keepdim=True) for rows in torch.split(logits, _ROWS)])
    return logits.gather(1, target_ids[:, None]).sub(normaliser).squeeze(1), normaliser


def _logits_gradient_(
    logits: torch.Tensor, normaliser: torch.Tensor, target_ids: torch.Tensor, coefficient: torch.Tensor, how: _How
) -> torch.Tensor:
    """Gradient of Σ coefficient·log p(target) to the head's product, [n, V] in its dtype; `logits` is used up.

    d log p(target) / d logits = onehot(target) - softmax(logits); the transforms follow by the chain rule.
    """
    if how.softcap is None:
        gradient = logits.sub_(normaliser).exp_()
    else:
        gradient = (logits - normaliser).exp_()
        gradient.mul_(logits.div_(how.softcap).square_().neg_().add_(1.0))
        # logits now hold the derivative of the cap: what onehot(target) is to be multiplied with.
    at_target = gradient.gather(1, target_ids[:, None])
    slope = 1.0 if how.softcap is None else logits.gather(1, target_ids[:, None])
    gradient.scatter_(1, target_ids[:, None], at_target - slope)
    gradient.mul_(coefficient.to(gradient.dtype)[:, None] * -how.scale)
    return gradient.to(how.dtype)


class _Gradients:
    """Gradients of hidden states, head weight and bias, summed over chunks; None for what needs none."""

    def __init__(self, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, needs: tuple[bool, ...]):
        self.hidden = torch.zeros_like(hidden) if needs[0] else None
        self.weight = torch.zeros_like(weight) if needs[1] else None
        self.bias = torch.zeros_like(bias) if bias is not None and needs[2] else None

    def add(self, chunk: slice, gradient: torch.Tensor, hidden: torch.Tensor, weight: torch.Tensor) -> None:
        if self.hidden is not None:
            self.hidden[chunk] = gradient @ weight
        if self.weight is not None:
            product_hidden = hidden.to(gradient.dtype)
            if self.weight.dtype == gradient.dtype:
                self.weight.addmm_(gradient.t(), product_hidden)
            else:
                self.weight += gradient.t() @ product_hidden
        if self.bias is not None:
            self.bias += gradient.sum(dim=0)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        target_ids: torch.Tensor,
        target_weight: torch.Tensor,
        how: _How,
    ) -> torch.Tensor:
        needs = tuple(need and how.grad for need in ctx.needs_input_grad[:3])
        gradients = _Gradients(hidden, weight, bias, needs)
        total = torch.zeros((), dtype=torch.promote_types(how.dtype, torch.float32), device=hidden.device)
        with torch.autocast(hidden.device.type, enabled=False):
            product_weight = weight.to(how.dtype)
            for chunk in _chunks(len(target_ids), how):
                logits = _logits(hidden[chunk], product_weight, bias, how)
                logprob, normaliser = _target_logprobs(logits, target_ids[chunk])
                total += (logprob * target_weight[chunk]).sum()
                if any(needs):
                    gradient = _logits_gradient_(logits, normaliser, target_ids[chunk], target_weight[chunk], how)
                    gradients.add(chunk, gradient, hidden[chunk], product_weight)
                    del gradient
                del logits  # else they would still be there when the next chunk's come
        ctx.save_for_backward(gradients.hidden, gradients.weight, gradients.bias)
        return total

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, bias = (None if g is None else g * upstream.to(g.dtype) for g in ctx.saved_tensors)
        return hidden, weight, bias, None, None, None


class _Logprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        target_ids: torch.Tensor,
        how: _How,
    ) -> torch.Tensor:
        ctx.save_for_backward(hidden, weight, bias, target_ids)
        ctx.how = how
        result = torch.empty(len(target_ids), dtype=torch.promote_types(how.dtype, torch.float32), device=hidden.device)
        with torch.autocast(hidden.device.type, enabled=False):
            product_weight = weight.to(how.dtype)
            for chunk in _chunks(len(target_ids), how):
                # No name for the logits: they are to be gone when the next chunk's come.
                result[chunk] = _target_logprobs(_logits(hidden[chunk], product_weight, bias, how), target_ids[chunk])[
                    0
                ]
        return result

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, bias, target_ids = ctx.saved_tensors
        how: _How = ctx.how
        gradients = _Gradients(hidden, weight, bias, ctx.needs_input_grad[:3])
        with torch.autocast(hidden.device.type, enabled=False):
            product_weight = weight.to(how.dtype)
            for chunk in _chunks(len(target_ids), how):
                logits = _logits(hidden[chunk], product_weight, bias, how)
                _, normaliser = _target_logprobs(logits, target_ids[chunk])
                gradient = _logits_gradient_(logits, normaliser, target_ids[chunk], upstream[chunk], how)
                gradients.add(chunk, gradient, hidden[chunk], product_weight)
                del gradient, logits
        return gradients.hidden, gradients.weight, gradients.bias, None, None
