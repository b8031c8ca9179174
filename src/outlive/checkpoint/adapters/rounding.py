"""How much of what an adapter changes is left when the merged weights are rounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from outlive.checkpoint.adapters.adapter import Adapter
from outlive.checkpoint.adapters.lowrank import Floats, Merged, floats, rounded
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Given, Stacked

_MOST, _DEAR = 64, 4  # weights that are looked at; where what the start took has to be found for each
_ELEMENTS = 1 << 16  # of each
_LEAST = 0.9  # of the change, or the user is told


def kept_share(tensors: Mapping[str, Tensor], dtype: str | None = None, most: int = _MOST) -> float | None:
    """Of the adapter's change D of a base W that part which rounding leaves: ⟨round(W + D) - W, D⟩ / ⟨D, D⟩, over
    rows of about `most` weights all over the model. 1: all of it, but for noise. `dtype`: in what is written, else each
    weight's own.

    W lies on the grid of its dtype: where D is below half of the distance of two numbers, all of it is lost.
    """
    found = [each for tensor in tensors.values() for each in _merged(tensor)]
    kept = whole = 0.0
    for tensor in found[:: max(1, len(found) // most)]:
        rows, columns = (0, max(1, min(tensor.shape[0], _ELEMENTS // max(1, tensor.shape[1])))), (0, tensor.shape[1])
        exact = tensor.exact(rows, columns).astype(np.float64)
        base = floats(tensor.base, (rows, columns))
        target = dtype or tensor.dtype
        change, left = exact - base, _numbers(exact, target) - base
        kept += float((left * change).sum())
        whole += float(np.square(change).sum())
    return kept / whole if whole else None


def rounding_note(tensors: Mapping[str, Tensor], adapters: Sequence[Adapter], dtype: str | None = None) -> str | None:
    """What to tell the user of it; None where nearly all is kept."""
    dear = any(adapter.settings.start in ("pissa", "olora") for adapter in adapters)
    kept = kept_share(tensors, dtype, _DEAR if dear else _MOST)
    if kept is None or kept >= _LEAST:
        return None
    return (
        f"rounding leaves {max(kept, 0):.0%} of what the adapter changes: most of its sums are closer to the base's "
        "number than to the next one; --dtype fp32 keeps all of it"
    )


def _merged(tensor: Tensor) -> Iterator[Merged]:
    if isinstance(tensor, Merged):
        yield tensor
    elif isinstance(tensor, Stacked):
        for part in tensor.parts:
            yield from _merged(part)


def _numbers(values: Floats, dtype: str) -> Floats:
    given = Given(rounded(values, dtype), dtype)
    return floats(given, given.whole)
