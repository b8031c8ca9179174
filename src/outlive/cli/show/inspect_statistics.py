"""The statistics of `inspect`'s page: sizes, lengths, what was left out, what is worth a look, and the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from outlive.cli.show.style import text
from outlive.cli.show.visible import signed

if TYPE_CHECKING:
    from outlive.data.ledger import Ledger

MAX_BINS = 24


def statistics_html(lengths: Sequence[int], num_targets: int | None, ledgers: Sequence[Ledger]) -> str:
    """All rows that were read, not only those that the page shows. Buttons filter the samples of the page.

    lengths: in tokens, of which `num_targets` are targets; in characters where `num_targets` is None.
    """
    unit = "characters" if num_targets is None else "tokens"
    parts = [_tiles(lengths, num_targets, ledgers), _histogram(lengths, unit), _lints(ledgers), _refused(ledgers)]
    parts.append(_ledger(ledgers))
    return f'<details id="statistics" open><summary>Statistics</summary>{"".join(parts)}</details>'


def bins(lengths: Sequence[int], limit: int = MAX_BINS) -> list[tuple[int, int, int]]:
    """(first, last, how many) of equally wide bins from 0 on, at most `limit`; widths are 1, 2 or 5 times 10^k."""
    if not lengths:
        return []
    width, longest = 1, max(lengths)
    while longest // width + 1 > limit:
        width = width * 5 // 2 if str(width)[0] == "2" else width * 2
    counts = Counter(length // width for length in lengths)
    return [(place * width, (place + 1) * width - 1, counts[place]) for place in range(longest // width + 1)]


def _tiles(lengths: Sequence[int], num_targets: int | None, ledgers: Sequence[Ledger]) -> str:
    tiles = []
    if ledgers:
        rows, kept = sum(ledger.rows for ledger in ledgers), sum(ledger.kept for ledger in ledgers)
        tiles += [(f"{rows:,}", "rows"), (f"{kept:,}", "kept"), (f"{rows - kept:,}", "left out")]
    if lengths:
        total, ordered, unit = sum(lengths), sorted(lengths), "characters" if num_targets is None else "tokens"
        tiles += [(f"{len(ordered):,}", "samples"), (f"{total:,}", unit)]
        if num_targets is not None:
            tiles.append((f"{num_targets / max(1, total):.1%}", f"of them targets ({num_targets:,})"))
        tiles.append((f"{ordered[len(ordered) // 2]:,}", f"{unit}, the median ({ordered[0]:,} to {ordered[-1]:,})"))
    shown = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for value, name in tiles)
    return f'<dl class="tiles">{shown}</dl>'


def _histogram(lengths: Sequence[int], unit: str) -> str:
    found = bins(lengths)
    if not found:
        return ""
    most = max(number for _, _, number in found)
    bars = "".join(_bar(first, last, number, most, unit) for first, last, number in found)
    return (
        f'<h2>Lengths <span class="soft">{unit} of a sample; a bar filters</span></h2>'
        '<div class="histogram" data-roving role="group" aria-label="Lengths of samples">'
        f'{bars}</div><p class="axis soft"><span>0</span><span>{found[-1][1] + 1:,}</span></p>'
    )


def _bar(first: int, last: int, number: int, most: int, unit: str) -> str:
    span = f"{first:,} to {last:,}" if last > first else f"{first:,}"
    label = f"{span} {unit}: {number:,} sample{'' if number == 1 else 's'}"
    height = max(100 * number / most, 2 if number else 0)
    return (
        f'<button type="button" data-filter="min={first}&amp;max={last}" aria-label="{label}" title="{label}">'
        f'<i style="height:{height:.1f}%"></i></button>'
    )


def _lints(ledgers: Sequence[Ledger]) -> str:
    from outlive.data.lints import OF_TOKENIZER, tokenizer_lines

    items = []
    for ledger in ledgers:
        for lint in ledger.lints:
            if lint["id"] in OF_TOKENIZER:
                continue
            rows = ", ".join(_row(row) for row in lint["rows"])
            items.append(
                f"<li>{_button('lint', lint['id'])} <b>{lint['count']:,}</b> {_of(ledger, ledgers)}"
                f'<p>{text(lint["about"])}</p><p class="soft">first: row {rows}</p></li>'
            )
    for line in tokenizer_lines(lint for ledger in ledgers for lint in ledger.lints):
        name, _, about = line.partition(": ")
        items.append(f'<li><b>{text(name)}</b> <span class="soft">the tokenizer</span><p>{text(about)}</p></li>')
    return f'<h2>Worth a look</h2><ul class="findings">{"".join(items)}</ul>' if items else ""


def _refused(ledgers: Sequence[Ledger]) -> str:
    from outlive.data.refusals import meaning

    items = []
    for ledger in ledgers:
        for reason, number in ledger.refused.most_common():
            first = [example for example in ledger.examples if example["reason"] == reason]
            examples = "".join(
                f'<p class="soft">row {_row(example["row"])}: {text(signed(example["detail"]))}</p>'
                for example in first
            )
            items.append(
                f"<li>{_button('refused', reason)} <b>{number:,}</b> {_of(ledger, ledgers)}"
                f"<p>{text(meaning(reason))}</p>{examples}</li>"
            )
    return f'<h2>Left out</h2><ul class="findings">{"".join(items)}</ul>' if items else ""


def _ledger(ledgers: Sequence[Ledger]) -> str:
    lines = [line for ledger in ledgers for line in _ledger_lines(ledger)]
    return f"<details><summary>Ledger</summary><pre>{text(chr(10).join(lines))}</pre></details>" if lines else ""


def _ledger_lines(ledger: Ledger) -> Iterable[str]:
    return (signed(line) if not place else "  " + signed(line.strip()) for place, line in enumerate(ledger.lines()))


def _button(key: str, value: str) -> str:
    return f'<button type="button" class="chip" data-filter="{key}={text(value)}">{text(value)}</button>'


def _row(row: int) -> str:
    return f'<button type="button" class="link" data-filter="q=%23{row}">{row}</button>'


def _of(ledger: Ledger, ledgers: Sequence[Ledger]) -> str:
    return f'<span class="soft">in {text(signed(ledger.source))}</span>' if len(ledgers) > 1 else ""
