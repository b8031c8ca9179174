"""Pages of tokens: the first batch as it is trained on. `report_page` and `inspect_page` are beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from outlive.cli.show.report_page import report_page
from outlive.cli.show.style import page, table, text
from outlive.cli.show.visible import Cell, Vocabulary, cells, with_signs
from outlive.run.sizes import counted

if TYPE_CHECKING:
    from outlive.run.engine import TokensAndWeights

__all__ = ["first_batch_page", "report_page"]

STYLE = """
.tokens { white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; line-height: 1.75;
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 13.5px; }
.tokens b { font-weight: 400; border-radius: 3px; padding: 1px 0; color: var(--soft);
  box-shadow: inset -1px 0 0 var(--page); }
.tokens b.t { background: var(--target); color: var(--target-text); border-bottom: 2px solid var(--target-line); }
.tokens b.s { color: var(--special); font-weight: 600; } .tokens b.p { opacity: .5; }
.tokens b:hover { outline: 1.5px solid var(--one); } .tokens i { font-style: normal; color: var(--sign); }
.tokens b.t i { color: var(--target-line); }
.pack { margin: 14px 0 22px; } .pack > h2 { margin-bottom: 8px; }
.segment { border-left: 3px solid var(--line); padding: 2px 0 2px 12px; margin: 0 0 12px; }
.segment:nth-child(even) { border-left-color: var(--one); }
.segment > p { margin: 0 0 4px; font-size: 12.5px; color: var(--soft); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.bar { height: 5px; border-radius: 3px; background: var(--faint); overflow: hidden; margin: 2px 0 12px; }
.bar span { display: block; height: 100%; background: var(--target-line); }
.legend { display: flex; gap: 18px; flex-wrap: wrap; align-items: baseline; margin: 14px 0; }
"""
SCRIPT = """
document.addEventListener('mousemove', event => {
  const token = event.target.closest && event.target.closest('b[data-t]');
  if (!token) { tip(event, ''); return; }
  const [position, ids, weight] = token.dataset.t.split(' ');
  tip(event, 'position ' + position + '\\nid       ' + ids.replaceAll('+', ', ') + '\\nweight   ' + (weight || '0'));
});
"""
LEGEND = (
    '<div class="legend tokens"><b class="t">target: carries loss</b><b>context: no loss</b>'
    '<b class="s">&lt;special token&gt;</b><span><i>↵ → ·</i> line break, tab, spaces</span>'
    '<span class="soft">point at a token for its id, position and weight</span></div>'
)


def first_batch_page(tokenizer: Vocabulary, packs: TokensAndWeights, about: Mapping[str, object]) -> str:
    """The whole first step: every pack, its segments apart, every token with id, position and weight.

    `about` is shown on top as names and values. Positions count within each segment, as the model sees them.
    """
    sections = []
    total = sum(map(len, packs.tokens))
    num_targets = sum(1 for weights in packs.weights for weight in weights if weight > 0)
    for number, columns in enumerate(zip(packs.tokens, packs.weights, packs.segments, strict=True), start=1):
        sections.append(_pack(tokenizer, f"Pack {number} of {len(packs.tokens)}", *columns))
    first = (
        f"{len(packs.tokens):,} packs of the first step as they are"
        if len(packs.tokens) != 1
        else "one pack of the first step as it is"
    )
    size = f"{counted(total, 'token')}, {_share(num_targets, total)}"
    lead = f"<h1>First batch</h1><p>The {first} trained on: {size}.</p>"
    body = lead + table(dict(about)) + LEGEND + "".join(sections)
    return page("First batch", body, STYLE, SCRIPT)


def _pack(
    tokenizer: Vocabulary, title: str, tokens: Sequence[int], weights: Sequence[float], segments: Sequence[int]
) -> str:
    parts, place, number = [], 0, 0
    for segment, run in groupby(segments):
        size = len(list(run))
        cut = slice(place, place + size)
        if segment < 0:
            padding = counted(size, "token")
            parts.append(f'<div class="segment"><p>{padding} of padding</p></div>')
        else:
            number += 1
            parts.append(segment_html(tokenizer, f"sample {number}", tokens[cut], weights[cut]))
        place += size
    num_targets = sum(1 for weight in weights if weight > 0)
    facts = f"{counted(len(tokens), 'token')} in {counted(number, 'sample')}, {_share(num_targets, len(tokens))}"
    return (
        f'<section class="pack"><h2>{text(title)} <span class="soft">· {facts}</span></h2>'
        f"{_bar(num_targets, len(tokens))}<div>{''.join(parts)}</div></section>"
    )


def segment_html(tokenizer: Vocabulary, title: str, tokens: Sequence[int], weights: Sequence[float]) -> str:
    """One sample under its title. weights[t] belongs to tokens[t] as a target."""
    num_targets = sum(1 for weight in weights if weight > 0)
    facts = f"{text(title)} · {counted(len(tokens), 'token')}, {_share(num_targets, len(tokens))}"
    shown = tokens_html(cells(tokenizer, tokens, weights))
    return f'<div class="segment"><p>{facts}</p><div class="tokens">{shown}</div></div>'


def tokens_html(found: Iterable[Cell]) -> str:
    """Cells as HTML: one element each, with position, ids and weight for the pointer."""
    return "".join(_cell(cell) for cell in found)


def _cell(cell: Cell) -> str:
    classes = ("t" if cell.weight > 0 else "") + (" s" if cell.special else "")
    classes += " p" if 0 < cell.weight < 1 else ""
    ids = "+".join(map(str, cell.ids))
    weight = f" {cell.weight:g}" if cell.weight else ""
    name = f' class="{classes.strip()}"' if classes else ""
    return f'<b{name} data-t="{cell.position} {ids}{weight}">{_signs(cell.text)}</b>'


def _signs(value: str) -> str:
    return "".join(f"<i>{text(piece)}</i>" if is_sign else text(piece) for piece, is_sign in with_signs(value))


def _bar(part: int, whole: int) -> str:
    return f'<div class="bar"><span style="width:{100 * part / max(1, whole):.1f}%"></span></div>'


def _share(num_targets: int, num_tokens: int) -> str:
    return f"{counted(num_targets, 'target')} ({num_targets / max(1, num_tokens):.0%})"
