"""A sample: what of a row becomes one stretch of tokens, and how much each token counts as a target."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Sample(NamedTuple):
    """`tokens` int32 [L]; `weights` float32 [L], where weights[t] ≥ 0 belongs to tokens[t] as a target, weights[0] = 0.

    `group`, `role`, `prefix`: for samples that belong together (a preference pair, branches of one prompt). `prefix`
    is the place, within the group, of the sample that this one continues; -1: none. A branch repeats the last token
    of its prefix's text as its own first token, so that its first target has a position that predicts it.
    """

    tokens: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    part: int = 0
    role: str = ""
    prefix: int = -1

    @property
    def coupled(self) -> bool:
        """Whether the sample belongs to a group: its loss or its context reaches into another sample of the row."""
        return bool(self.role) or self.prefix >= 0


def sample_of(ids: list[int], weights: list[float] | float, part: int = 0) -> Sample:
    """A sample of ids and their weights, or one weight for all."""
    values = np.full(len(ids), weights, np.float32) if isinstance(weights, float) else np.array(weights, np.float32)
    return Sample(np.array(ids, dtype=np.int32), values, part)
