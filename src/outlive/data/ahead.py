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
    """The sample of a text's pieces, and whether it is shown that these are the ids of the whole text, too."""

    text: CutText
    sample: Sample
    agree: bool


def made_ahead(texts: Sequence[CutText], ids_of: Mapping[str, Ids], joints: Joints) -> list[Ready]:
    """The samples of texts whose pieces have one weight each and the ids `ids_of`. The first token's weight is 0.

    A sample's tokens and weights are views of arrays that hold those of all.
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
    return [
        Ready(text, Sample(tokens[start:end], weights[start:end]), agrees)
        for text, start, end, agrees in zip(texts, starts.tolist(), ends.tolist(), agree, strict=True)
    ]
