"""Attention per document, behind transformers' attention interface: no token sees another document.

The model's own code calls `segment_attention` in every attention layer. Which tokens belong together comes in as the
keyword `segments`, which transformers hands through from the model's forward. There is no mask to get wrong: documents
that must not see each other are never in one call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from outlive.modeling.varlen import Varlen, serves, varlen_attention

NAME = "outlive_segments"


@dataclass(frozen=True)
class SegmentGroup:
    """Segments of equal shape, attended in one call. `query` int64 [n, Lq] and `key` int64 [n, Lk] are places in the
    batch's tokens; the last Lq keys of each are its own tokens, what goes before is the prefix that it continues."""

    query: torch.Tensor
    key: torch.Tensor

    @property
    def has_prefix(self) -> bool:
        return self.query.shape[1] != self.key.shape[1]


@dataclass(frozen=True)
class Segments:
    """Who sees whom in a batch of T tokens: the groups, and `order` int64 [T], where each token's result stands among
    the groups' results laid end to end; None where that is their own order. `varlen` says the same to a GPU's kernel,
    and is None elsewhere."""

    groups: tuple[SegmentGroup, ...]
    order: torch.Tensor | None
    varlen: Varlen | None = None

    @classmethod
    def of(cls, bounds: Sequence[tuple[int, int, int]], device: torch.device | str = "cpu") -> Segments:
        """From (start, end, prefix) of each segment; prefix is the number of the segment that it continues, or -1."""
        by_shape: dict[tuple[int, int], list[tuple[list[int], list[int]]]] = defaultdict(list)
        keys: list[list[int]] = []
        for start, end, prefix in bounds:
            query = list(range(start, end))
            keys.append([*(keys[prefix] if prefix >= 0 else []), *query])
            by_shape[len(query), len(keys[-1])].append((query, keys[-1]))
        groups = [
            SegmentGroup(
                torch.tensor([query for query, _ in members], device=device),
                torch.tensor([key for _, key in members], device=device),
            )
            for members in by_shape.values()
        ]
        laid = torch.cat([group.query.flatten() for group in groups])
        in_order = bool((laid[1:] > laid[:-1]).all())
        on_gpu = torch.device(device).type == "cuda"
        varlen = Varlen.of([end - start for start, end, _ in bounds], keys, device) if on_gpu else None
        return cls(tuple(groups), None if in_order else torch.argsort(laid), varlen)


def segment_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    segments: Segments | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each segment. query [1, Hq, T, D], key and value [1, Hkv, T, D] → [1, T, Hq, D].

    `sliding_window` counts tokens, the query's own among them. `softcap` (Gemma 2) and `s_aux` (attention sinks, one
    logit per head) take the plain formula. All else is fused: on a GPU in half precision one call for all segments,
    elsewhere one call per group of equal segments.
    """
    if segments is None or query.shape[0] != 1 or dropout:
        raise ValueError(f"{NAME} wants one row of laid-out segments, named by `segments`, and no attention dropout")
    if not (is_causal if is_causal is not None else getattr(module, "is_causal", True)):
        raise ValueError(f"{NAME} is causal, but {type(module).__name__} is not")
    fused = softcap is None and s_aux is None
    if fused and segments.varlen is not None and serves(query, value):
        return varlen_attention(query, key, value, segments.varlen, scaling, sliding_window), None
    results = []
    for group in segments.groups:
        q, k, v = _take(query, group.query), _take(key, group.key), _take(value, group.key)
        k, v = (_repeated(x, q.shape[1] // k.shape[1]) for x in (k, v))
        mask = _mask(group, sliding_window)
        if fused:
            result = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling)
        else:
            result = _plain_attention(q, k, v, mask, scaling, softcap, s_aux)
        results.append(result.transpose(1, 2).flatten(0, 1))
    laid = torch.cat(results) if len(results) > 1 else results[0]
    return (laid if segments.order is None else laid.index_select(0, segments.order)).unsqueeze(0), None


def _take(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """[1, H, T, D] at places [n, L] → [n, H, L, D]."""
    num, length = places.shape
    if num == 1 and int(places[0, -1]) - int(places[0, 0]) == length - 1:
        return x.narrow(2, int(places[0, 0]), length)  # one contiguous segment: a view
    return x[0].index_select(1, places.flatten()).view(x.shape[1], num, length, x.shape[3]).transpose(0, 1)


def _repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    """Key and value heads, each shared by `times` query heads: [n, Hkv, L, D] → [n, Hkv·times, L, D]."""
    return x if times == 1 else x[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2)


def _mask(group: SegmentGroup, sliding_window: int | None) -> torch.Tensor | None:
    """Which keys each query sees, bool [Lq, Lk]; None where plain causality says it all."""
    num_query, num_key = group.query.shape[1], group.key.shape[1]
    windowed = sliding_window is not None and sliding_window < num_key
    if not windowed and not group.has_prefix:
        return None
    place = torch.arange(num_key - num_query, num_key, device=group.query.device)[:, None]
    other = torch.arange(num_key, device=group.query.device)[None, :]
    mask = other <= place
    return mask & (place - other < sliding_window) if sliding_window is not None else mask


def _plain_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    softcap: float | None,
    s_aux: torch.Tensor | None,
) -> torch.Tensor:
    """softmax(cap(q·kᵀ·scale))·v with an optional sink logit per head, which takes probability and gives nothing."""
    scores = q @ k.transpose(2, 3) * (scaling if scaling is not None else q.shape[-1] ** -0.5)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    if s_aux is not None:
        sinks = s_aux.to(scores.dtype)[None, :, None, None].expand(scores.shape[0], -1, scores.shape[2], 1)
        scores = torch.cat([scores, sinks], dim=-1)
    wide = torch.promote_types(scores.dtype, torch.float32)
    probabilities = torch.softmax(scores, dim=-1, dtype=wide).to(v.dtype)
    return probabilities[..., : k.shape[2]] @ v


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """The mask of transformers is not built: who sees whom is said by `segments`."""


def register() -> None:
    """Make the attention known to transformers under NAME. Calling it again changes nothing."""
    AttentionInterface.register(NAME, segment_attention)
    AttentionMaskInterface.register(NAME, _no_mask)
