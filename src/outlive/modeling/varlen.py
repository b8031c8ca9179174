"""Attention per document on a GPU: one call of PyTorch's variable-length kernel for all segments of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

# The kernel computes half precision, and heads of up to 256 numbers (FlashAttention 2).
_DTYPES = (torch.bfloat16, torch.float16)
_MAX_HEAD_DIM = 256


@dataclass(frozen=True)
class Varlen:
    """Segments as the kernel wants them: `cu_query` and `cu_key` int32 [n + 1], where each segment's tokens begin;
    `key_places` int64 [keys], the tokens that serve as keys, prefixes repeated; None where they are all in order."""

    cu_query: torch.Tensor
    cu_key: torch.Tensor
    max_query: int
    max_key: int
    key_places: torch.Tensor | None

    @classmethod
    def of(cls, lengths: Sequence[int], keys: Sequence[Sequence[int]], device: torch.device | str) -> Varlen:
        """From each segment's number of tokens, in their order, and the places of its keys, its own tokens last."""
        key_lengths = [len(places) for places in keys]
        with_prefix = key_lengths != list(lengths)
        flat = torch.tensor([place for places in keys for place in places], device=device) if with_prefix else None
        return cls(_starts(lengths, device), _starts(key_lengths, device), max(lengths), max(key_lengths), flat)


def serves(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether the kernel computes these: on a GPU, in half precision, with heads of its sizes."""
    head_dim = query.shape[-1]
    return query.is_cuda and query.dtype in _DTYPES and head_dim == value.shape[-1] and head_dim <= _MAX_HEAD_DIM


def varlen_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: Varlen,
    scaling: float | None,
    sliding_window: int | None,
    kernel: Any = None,
) -> torch.Tensor:
    """Causal attention per segment: query [1, Hq, T, D], key and value [1, Hkv, T, D] → [1, T, Hq, D].

    The kernel's causality is aligned at the end of the keys, so a prefix before a segment's own tokens is seen whole.
    """
    if kernel is None:
        from torch.nn.attention.varlen import varlen_attn

        kernel = varlen_attn
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    if layout.key_places is not None:
        k, v = k.index_select(0, layout.key_places), v.index_select(0, layout.key_places)
    result: torch.Tensor = kernel(
        q,
        k,
        v,
        layout.cu_query,
        layout.cu_key,
        layout.max_query,
        layout.max_key,
        scale=scaling,
        window_size=(-1 if sliding_window is None else sliding_window - 1, 0),
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return result.unsqueeze(0)


def _starts(lengths: Sequence[int], device: torch.device | str) -> torch.Tensor:
    total = torch.tensor([0, *lengths], device=device).cumsum(0)
    return total.to(torch.int32)
