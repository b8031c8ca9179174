"""Samples of many rendered chats at once: their ids put together and weighted, and their bounds looked at, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from outlive.data.part_weights import CutText
from outlive.data.sample import Sample
from outlive.text.joints import Joints

Ids = npt.NDArray[np.int32]


class Ready(NamedTuple):
    """The sample of a text's pieces, and whether it is shown that these are the ids of the whole text, too.

    `learns`: whether any token is a target. `has_unknown`: whether a token is the one asked for.
    """

    text: CutText
    sample: Sample
    agree: bool
    learns: bool
    has_unknown: bool


def made_ahead(
    texts: Sequence[CutText], ids_of: Mapping[str, Ids], joints: Joints, unknown: int | None = None
) -> list[Ready]:
    """The samples of texts whose pieces have one weight each and the ids `ids_of`. The first token's weight is 0.

    A sample's tokens and weights are views of arrays that hold those of all. `unknown`: an id to be looked for.
    """
    if not texts:
        return []
    pieces = [[piece.text for piece in text.pieces] for text in texts]
    encoded = [[ids_of[piece] for piece in own] for own in pieces]
    flat = [ids for own in encoded for ids in own]
    lengths = np.fromiter(map(len, flat), np.int64, len(flat))
    tokens = np.concatenate(flat)
    weights = np.repeat(np.array([piece.weight for text in texts for piece in text.pieces], np.float32), lengths)
    last = np.cumsum([len(own) for own in pieces]) - 1
    ends = np.cumsum(lengths)[last]
    starts = np.concatenate(([0], ends[:-1]))
    weights[starts[starts < ends]] = 0.0  # nothing predicts the first token
    agree = joints.agree_all(pieces, encoded)
    learns = _holds(weights != 0, starts, ends)
    has_unknown = _holds(tokens == unknown, starts, ends) if unknown is not None else [False] * len(texts)
    return [
        Ready(text, Sample(tokens[start:end], weights[start:end]), agrees, learn, lacks)
        for text, start, end, agrees, learn, lacks in zip(
            texts, starts.tolist(), ends.tolist(), agree, learns, has_unknown, strict=True
        )
    ]


def _holds(marked: npt.NDArray[np.bool_], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> list[bool]:
    """Whether anything is marked from each start to its end."""
    before = np.concatenate(([0], np.cumsum(marked)))
    found: list[bool] = (before[ends] > before[starts]).tolist()
    return found
