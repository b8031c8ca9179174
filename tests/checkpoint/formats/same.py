"""Compares what torch read with what was read without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from outlive.checkpoint.tensors.tensor import Tensor

torch = pytest.importorskip("torch")


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal, tensors bit for bit; dicts in their order."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, Tensor)
        assert (ours.shape, f"torch.{ours.dtype}") == (tuple(theirs.shape), str(theirs.dtype))
        assert np.ascontiguousarray(ours.array()).tobytes() == bits(theirs)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key, value in theirs.items():
            assert_same(ours[key], value)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        assert ours == theirs


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor in row-major order."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
