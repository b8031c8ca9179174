"""The attention of one module behind its interface: fused, plain and variable-length forms agree, prefixes included."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from outlive.modeling.attention import Segments, segment_attention
from outlive.modeling.varlen import Varlen, varlen_attention

BOUNDS = [(0, 5, -1), (5, 9, 0), (9, 16, 0), (16, 21, -1), (21, 22, -1), (22, 26, 2)]
NUM = 26


def _inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    heads = (4, 2, 2)
    q, k, v = (torch.randn(1, n, NUM, 8, dtype=torch.float64, generator=generator) for n in heads)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def _expected(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int | None, softcap: float | None
) -> torch.Tensor:
    """By a mask over all pairs of tokens, from the definition: same chain of segments, not later, in the window."""
    chains: list[set[int]] = []
    place = torch.zeros(NUM, dtype=torch.int64)
    for number, (start, end, prefix) in enumerate(BOUNDS):
        chains.append({number} | (chains[prefix] if prefix >= 0 else set()))
        first = int(place[BOUNDS[prefix][1] - 1]) + 1 if prefix >= 0 else 0
        place[start:end] = first + torch.arange(end - start)
    segment = torch.tensor([number for number, (start, end, _) in enumerate(BOUNDS) for _ in range(end - start)])
    seen = torch.tensor([[int(segment[j]) in chains[int(segment[i])] for j in range(NUM)] for i in range(NUM)])
    seen &= place[None, :] <= place[:, None]
    if window is not None:
        seen &= place[:, None] - place[None, :] < window
    scores = q @ k.repeat_interleave(2, dim=1).transpose(2, 3) * 0.3
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1)
    return (weights @ v.repeat_interleave(2, dim=1)).transpose(1, 2)


def _same(found: torch.Tensor, expected: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    upstream = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for got, want in zip(
        torch.autograd.grad(found, inputs, upstream), torch.autograd.grad(expected, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_equals_the_definition(window: int | None, softcap: float | None) -> None:
    inputs = _inputs()
    found, _ = segment_attention(
        torch.nn.Module(),
        *inputs,
        None,
        scaling=0.3,
        sliding_window=window,
        softcap=softcap,
        segments=Segments.of(BOUNDS),
    )
    _same(found, _expected(*inputs, window, softcap), inputs)


def _documented_kernel(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_q: torch.Tensor, cu_k: torch.Tensor, *_: Any, **how: Any
) -> torch.Tensor:
    """What PyTorch documents of its variable-length kernel, in plain operations: [T, H, D], aligned at the end."""
    left, right = how["window_size"]
    assert right == 0
    assert how["enable_gqa"] == (q.shape[1] != k.shape[1])
    results = []
    for number in range(len(cu_q) - 1):
        own = q[cu_q[number] : cu_q[number + 1]].transpose(0, 1)
        keys, values = (
            x[cu_k[number] : cu_k[number + 1]].transpose(0, 1).repeat_interleave(q.shape[1] // x.shape[1], dim=0)
            for x in (k, v)
        )
        place = torch.arange(keys.shape[1] - own.shape[1], keys.shape[1])[:, None]
        other = torch.arange(keys.shape[1])[None, :]
        seen = (other <= place) & ((place - other <= left) | (left < 0))
        scores = (own @ keys.transpose(1, 2) * how["scale"]).masked_fill(~seen, float("-inf"))
        results.append((torch.softmax(scores, dim=-1) @ values).transpose(0, 1))
    return torch.cat(results)


@pytest.mark.parametrize("window", [None, 3])
def test_the_gpu_form_says_the_same(window: int | None) -> None:
    """Its kernel needs a GPU; what it is told (offsets, keys, window, scale) is held by the kernel's documentation."""
    inputs = _inputs()
    keys: list[list[int]] = []
    for start, end, prefix in BOUNDS:
        keys.append([*(keys[prefix] if prefix >= 0 else []), *range(start, end)])
    layout = Varlen.of([end - start for start, end, _ in BOUNDS], keys, "cpu")
    found = varlen_attention(*inputs, layout, 0.3, window, kernel=_documented_kernel)
    _same(found, _expected(*inputs, window, None), inputs)


def test_a_sink_takes_probability_and_gives_nothing() -> None:
    q, k, v = _inputs()
    sinks = torch.full((4,), 100.0, dtype=torch.float64)
    found, _ = segment_attention(torch.nn.Module(), q, k, v, None, s_aux=sinks, segments=Segments.of(BOUNDS))
    assert float(found.detach().abs().max()) < 1e-20


def test_what_it_cannot_do_is_refused() -> None:
    q, k, v = _inputs()
    segments = Segments.of(BOUNDS)
    for wrong in (
        {"segments": None},
        {"segments": segments, "dropout": 0.1},
        {"segments": segments, "is_causal": False},
    ):
        with pytest.raises(ValueError, match="outlive_segments"):
            segment_attention(torch.nn.Module(), q, k, v, None, **wrong)
