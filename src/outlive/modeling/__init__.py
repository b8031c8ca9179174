"""The model as the trainer and the evals share it: loading, attention per document, TargetLoss, decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlive.modeling.causal import load as load

__all__ = ["load"]


def __getattr__(name: str) -> object:
    if name == "load":  # torch is imported when it is used, not when the package is
        from outlive.modeling.causal import load

        return load
    raise AttributeError(name)
