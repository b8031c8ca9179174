"""On a GPU: the variable-length kernel against the definition, and packed training against one document at a time."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from outlive.modeling.attention import Segments, segment_attention


def inputs(lengths: list[int], heads: int = 32, kv_heads: int = 8, head_dim: int = 128) -> list[torch.Tensor]:
    total = sum(lengths)
    shapes = [(1, n, total, head_dim) for n in (heads, kv_heads, kv_heads)]
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for shape in shapes]


def attend(tensors: list[torch.Tensor], segments: Segments, window: int | None) -> list[torch.Tensor]:
    """The result and the gradients of a fixed sum."""
    result, _ = segment_attention(torch.nn.Module(), *tensors, None, sliding_window=window, segments=segments)
    return [result, *torch.autograd.grad(result.float().square().sum(), tensors)]


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("no GPU here")
    print(torch.cuda.get_device_name(), torch.__version__)
    bounds = [(0, 500, -1), (500, 700, 0), (700, 1000, 0), (1000, 2048, -1)]
    for window in (None, 128):
        tensors, segments = inputs([2048]), Segments.of(bounds, "cuda")
        assert segments.varlen is not None
        fused = attend(tensors, segments, window)
        grouped = attend(tensors, Segments(segments.groups, segments.order), window)
        for name, a, b in zip(("out", "dq", "dk", "dv"), fused, grouped, strict=True):
            error = float((a - b).norm() / b.norm())
            print(f"window {window}: {name} differs by {error:.1e} (relative, bf16)")
            assert error < 2e-2
    lengths = [512] * 16 + [100 + 7 * n for n in range(64)]
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    segments = Segments.of([(s, s + n, -1) for s, n in zip(starts, lengths, strict=True)], "cuda")
    tensors = inputs(lengths)
    seconds: dict[str, list[float]] = {"one call": [], "a call per group": []}
    for _ in range(6):
        for name, layout in (("one call", segments), ("a call per group", Segments(segments.groups, segments.order))):
            torch.cuda.synchronize()
            started = time.perf_counter()
            attend(tensors, layout, None)
            torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - started)
    for name, found in seconds.items():
        print(
            f"{sum(lengths)} tokens in {len(lengths)} documents, {name}: {statistics.median(found[1:]) * 1000:.1f} ms"
        )


if __name__ == "__main__":
    main()
