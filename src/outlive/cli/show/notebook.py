"""Samples as an object that shows itself: in a notebook as HTML, at a prompt as text; targets are marked in both."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from outlive.cli.show.pages import LEGEND, segment_html
from outlive.cli.show.pages import STYLE as PAGE_STYLE
from outlive.cli.show.style import VARIABLES
from outlive.cli.show.terminal import show_sample
from outlive.cli.show.visible import Vocabulary

if TYPE_CHECKING:
    from outlive.run.engine import TokensAndWeights

WIDTH = 100
FRAME = ".outlive { background: var(--page); color: var(--text); padding: 4px 12px; border-radius: 8px; }"


class ShownSample(NamedTuple):
    """One sample: weights[t] belongs to tokens[t] as a target."""

    title: str
    tokens: Sequence[int]
    weights: Sequence[float]


@dataclass(frozen=True, repr=False)
class Shown:
    """Samples, decoded, with the tokens that carry loss marked."""

    tokenizer: Vocabulary
    samples: Sequence[ShownSample]

    def __repr__(self) -> str:
        console = Console(file=io.StringIO(), width=WIDTH, markup=False, highlight=False, emoji=False, no_color=True)
        for sample in self.samples:
            show_sample(console, self.tokenizer, sample.tokens, sample.weights, sample.title)
        file = console.file
        assert isinstance(file, io.StringIO)
        return file.getvalue().rstrip()

    def _repr_html_(self) -> str:
        parts = [segment_html(self.tokenizer, sample.title, sample.tokens, sample.weights) for sample in self.samples]
        # A notebook has styles of its own: ours hold below one element only.
        style = VARIABLES.replace(":root", ".outlive") + FRAME + f".outlive {{ {PAGE_STYLE} }}"
        return f'<div class="outlive"><style>{style}</style>{LEGEND}{_with_titles("".join(parts))}</div>'


def first_samples(packs: TokensAndWeights, n: int) -> list[ShownSample]:
    """The first `n` samples of some model sequences; padding is left out."""
    found: list[ShownSample] = []
    for tokens, weights, segments in zip(packs.tokens, packs.weights, packs.segments, strict=True):
        place = 0
        for segment, run in groupby(segments):
            cut = slice(place, place := place + len(list(run)))
            if segment >= 0:
                found.append(ShownSample(f"sample {len(found) + 1} of the first step", tokens[cut], weights[cut]))
            if len(found) == n:
                return found
    return found


def _with_titles(html: str) -> str:
    """What the pages' script shows at the pointer, as the title of each token: notebooks run no script of ours."""
    pattern = re.compile(r'data-t="(\d+) ([\d+]+)(?: ([\d.e+-]+))?"')
    return pattern.sub(lambda m: f'title="position {m[1]}, id {m[2]}, weight {m[3] or 0}"', html)
