"""Samples longer than the sequence length: dropped, cut, or split. Always whole groups, always counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from outlive.data.sample import Sample
from outlive.text.spans import Refusal

Overlong = Literal["drop", "truncate", "split"]


def fit(samples: Sequence[Sample], length: int, how: Overlong, counts: Counter[str]) -> list[Sample]:
    """The samples of one row, none longer than `length` tokens.

    drop: the row is refused (reason `overlong`), and so is a group, whatever `how` says: half of it means nothing.
    truncate: the first `length` tokens stay. split: parts of `length` tokens; each repeats the last token before its
    cut as context, so that no target is lost. Parts without a target are left out and counted. Raises
    Refusal(overlong) or Refusal(no_target_left).
    """
    coupled = any(sample.coupled for sample in samples)
    lengths = [len(sample.tokens) for sample in samples]
    longest = sum(lengths) if coupled else max(lengths)  # a group lies in one pack, all of it
    if longest <= length:
        return list(samples)
    targets = _targets(samples)
    if how == "drop" or coupled:
        counts["targets_left_out"] += targets
        raise Refusal("overlong", f"{longest} tokens, data.sequence_length is {length}")
    cut = [part for sample in samples for part in _cut(sample, length, how)]
    kept = [sample for sample in cut if sample.weights.any()]
    counts["truncated" if how == "truncate" else "split"] += 1
    counts["tokens_cut"] += sum(len(sample.tokens) for sample in samples) - _covered(cut, samples)
    counts["targets_cut"] += targets - _targets(cut)
    counts["parts_without_target"] += len(cut) - len(kept)
    if not kept:
        raise Refusal("no_target_left", f"no target is left in the first {length} of {longest} tokens")
    return [sample._replace(part=part) for part, sample in enumerate(kept)]


def _targets(samples: Sequence[Sample]) -> int:
    return sum(int(np.count_nonzero(sample.weights)) for sample in samples)


def _cut(sample: Sample, length: int, how: Overlong) -> list[Sample]:
    if len(sample.tokens) <= length:
        return [sample]
    if how == "truncate":
        return [sample._replace(tokens=sample.tokens[:length], weights=sample.weights[:length])]
    parts = []
    for start in range(0, len(sample.tokens) - 1, length - 1):
        tokens, weights = sample.tokens[start : start + length], sample.weights[start : start + length].copy()
        weights[0] = 0.0
        parts.append(sample._replace(tokens=tokens, weights=weights))
    return parts


def _covered(cut: Sequence[Sample], samples: Sequence[Sample]) -> int:
    repeated = len(cut) - len(samples)  # each further part repeats one token
    return sum(len(sample.tokens) for sample in cut) - repeated
