"""TargetLoss equals the plain formula in value and gradients, and never holds a [T, V] tensor."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch

from outlive.modeling import target_loss
from outlive.modeling.target_loss import Head, logprobs, weighted_sum

TRANSFORMS = [{}, {"scale": 0.3}, {"softcap": 3.0, "scale": 2.0}]


def _inputs(num: int = 150, with_bias: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)
        for shape in ((num, 16), (97, 16), (97,))
    )
    return hidden, weight, bias if with_bias else None


def _plain(hidden: torch.Tensor, head: Head, ids: torch.Tensor) -> torch.Tensor:
    logits = hidden @ head.weight.t() + (0 if head.bias is None else head.bias)
    logits = logits * head.scale
    if head.softcap is not None:
        logits = head.softcap * torch.tanh(logits / head.softcap)
    return torch.log_softmax(logits, dim=1).gather(1, ids[:, None]).squeeze(1)


@pytest.mark.parametrize("transforms", TRANSFORMS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_both_forms_equal_the_formula(transforms: dict[str, float], with_bias: bool) -> None:
    hidden, weight, bias = _inputs(with_bias=with_bias)
    head = Head(weight, bias, **transforms)
    ids = torch.randint(0, 97, (150,), generator=torch.Generator().manual_seed(1))
    weights = torch.rand(150, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    inputs = [tensor for tensor in (hidden, weight, bias) if tensor is not None]
    expected = (_plain(hidden, head, ids) * weights).sum()
    wanted = torch.autograd.grad(1.7 * expected, inputs)
    for value in (weighted_sum(hidden, head, ids, weights), (logprobs(hidden, head, ids) * weights).sum()):
        torch.testing.assert_close(value, expected, rtol=1e-13, atol=0)
        for got, want in zip(torch.autograd.grad(1.7 * value, inputs), wanted, strict=True):
            assert float((got - want).norm() / want.norm()) < 1e-14


def test_no_target_gives_zero_and_no_nan() -> None:
    hidden, weight, _ = _inputs(num=0)
    value = weighted_sum(hidden, Head(weight), torch.zeros(0, dtype=torch.int64), torch.zeros(0))
    value.backward()
    assert float(value.detach()) == 0.0
    assert weight.grad is not None
    assert float(weight.grad.abs().sum()) == 0.0


def test_frozen_head_gets_no_gradient_and_no_buffer() -> None:
    hidden, weight, _ = _inputs()
    frozen = weight.detach()
    value = weighted_sum(hidden, Head(frozen), torch.zeros(150, dtype=torch.int64), torch.ones(150))
    value.backward()
    assert hidden.grad is not None
    assert frozen.grad is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", ["weighted_sum", "logprobs"])
def test_peak_memory_is_bound_by_the_chunk(form: str, dtype: str) -> None:
    """At V = 151,936: peak ≤ chunk × V × 10 bytes beyond what goes in and comes out. 4,096 targets are many chunks."""
    script = f"""
        import torch
        from outlive.modeling import target_loss as t
        from outlive.run.machine import peak_memory
        torch.set_num_threads(1)
        V, H, N, dtype = 151936, 32, 4096, torch.{dtype}
        hidden = torch.randn(N, H, dtype=dtype, requires_grad=True)
        head = t.Head(torch.randn(V, H, dtype=dtype))
        ids, weight = torch.randint(0, V, (N,)), torch.ones(N)
        def run(n):
            h = hidden[:n]
            value = t.weighted_sum(h, head, ids[:n], weight[:n]) if "{form}" == "weighted_sum" \\
                else t.logprobs(h, head, ids[:n]).sum()
            value.backward()
        run(2)  # threads, code and buffers of the libraries
        before = peak_memory()
        run(N)
        after = peak_memory()
        print(after - before, t.CHUNK_LOGITS // V * V * 10)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    used, allowed = map(int, done.stdout.split())
    assert 0 < used <= allowed
    assert target_loss.CHUNK_LOGITS // 151936 >= 64
