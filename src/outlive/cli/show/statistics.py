"""Counts over the samples that were seen: tokens, targets, lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outlive.run.sizes import counted

if TYPE_CHECKING:
    from outlive.cli.open_target import Item


class Lengths:
    """Lengths in tokens of all samples, and how many of the tokens are targets."""

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.num_targets = 0

    def add(self, item: Item) -> None:
        """Count a sample; refusals and texts without tokens are passed over."""
        if item.tokens is None or item.weights is None:
            return
        self.lengths.append(len(item.tokens))
        self.num_targets += int((item.weights > 0).sum())

    def lines(self) -> Iterator[str]:
        """For people; nothing where there was no sample."""
        if not self.lengths:
            return
        num_tokens, ordered = sum(self.lengths), sorted(self.lengths)
        yield (
            f"{counted(len(ordered), 'sample')}, {counted(num_tokens, 'token')}, {self.num_targets:,} of them targets "
            f"({self.num_targets / num_tokens:.1%})"
        )
        yield f"tokens of a sample: {ordered[0]} to {ordered[-1]}, median {ordered[len(ordered) // 2]}"
