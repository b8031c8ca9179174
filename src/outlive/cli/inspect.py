"""`outlive inspect`: what the model will see, token by token, and which tokens carry loss."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from outlive.cli.open_target import Item, Opened, Options, SourceRows
    from outlive.data.ledger import Ledger

TERMINAL_ROWS = 3
PAGE_ROWS, PAGE_TOKENS = 2000, 2_000_000  # of all sources together: what a browser opens at once
CHOICES = {
    "loss_on": ("assistant", "last_assistant", "completion", "all"),
    "turn_end": ("content", "end_of_turn", "suffix"),
    "overlong": ("drop", "truncate", "split"),
}


def command(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="Rows (.jsonl, a folder, a URL), a run file, a run, a store.")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder with the tokenizer.json.")] = None,
    chat_template: Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of the tokenizer's own.")] = None,
    loss_on: Annotated[str | None, typer.Option(help=" | ".join(CHOICES["loss_on"]))] = None,
    turn_end: Annotated[str | None, typer.Option(help=" | ".join(CHOICES["turn_end"]))] = None,
    sequence_length: Annotated[int | None, typer.Option(min=2, help="Tokens of one sequence.")] = None,
    overlong: Annotated[str | None, typer.Option(help=" | ".join(CHOICES["overlong"]))] = None,
    system: Annotated[str | None, typer.Option(help="A system text for chats that have none.")] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="Such as sharegpt; docs/formats.md lists them.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="How many rows of each source to show.")] = None,
    row: Annotated[int | None, typer.Option(min=0, help="Show only this row, counted from 0.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON Lines on stdout, one object a sample.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page for a browser.")] = None,
    special: Annotated[
        list[str] | None, typer.Option(metavar="TOKEN", help="A further special token; as often as needed.")
    ] = None,
    certify: Annotated[
        Path | None, typer.Option(metavar="TEMPLATE", help="Say what a chat template does with each shape of chat.")
    ] = None,
) -> None:
    """Show samples with the tokens that carry loss marked, what was left out and why, and what is worth a look."""
    from outlive.cli.open_target import Options, open_target

    if certify is not None or target is None:
        _certify(target, certify, tokenizer, special or [], as_json)
        return
    limit = row + 1 if row is not None else rows if as_json else None
    options = Options(
        tokenizer,
        chat_template,
        loss_on,
        turn_end,
        sequence_length,
        overlong,
        system,
        format_,
        limit,
        tuple(special or ()),
    )
    _check(options, rows, row, as_json, html)
    if html is not None:
        _check_page(html, target)
    opened = open_target(target, options)
    if as_json:
        _print_json(opened, row)
    elif html is not None:
        _write_page(opened, target, html, rows, row)
    else:
        _print(opened, rows or TERMINAL_ROWS, row)


def _certify(
    target: str | None, template: Path | None, tokenizer: Path | None, special: list[str], as_json: bool
) -> None:
    from outlive.cli.certify import certify_file
    from outlive.run.errors import InputError

    if template is None:
        raise InputError("TARGET is missing", fix="name rows, a run file, a run or a store")
    if target is not None:
        raise InputError("TARGET and --certify exclude each other", fix="give one of them")
    certify_file(template, tokenizer, special, as_json)


def _check(options: Options, rows: int | None, row: int | None, as_json: bool, html: Path | None) -> None:
    from outlive.data.formats import FORMATS
    from outlive.run.errors import InputError, nearest

    for name, known in {**CHOICES, "format": tuple(FORMATS)}.items():
        value = getattr(options, name)
        if value is not None and value not in known:
            near = nearest(value, known)
            fix = f"did you mean {near}?" if near else f"one of: {', '.join(known)}"
            raise InputError(f"{value!r} is not known", where=f"--{name.replace('_', '-')}", fix=fix)
    if rows is not None and row is not None:
        raise InputError("--rows and --row exclude each other", fix="give one of them")
    if as_json and html is not None:
        raise InputError("--json and --html exclude each other", fix="give one of them")


def _check_page(file: Path, target: str) -> None:
    """A page replaces an older page, and no other file: above all not the rows that it shows."""
    from outlive.run.errors import InputError

    fix = "name a new file, such as page.html"
    if file.suffix.lower() not in (".html", ".htm"):
        raise InputError("a page's name ends in .html", where=f"--html {file}", fix=fix)
    if os.path.lexists(file) and (not file.is_file() or (os.path.exists(target) and os.path.samefile(file, target))):
        raise InputError("a page is not written over this", where=f"--html {file}", fix=fix)


def _print_json(opened: Opened, row: int | None) -> None:
    from outlive.cli.show.json_lines import to_line

    shown, out = 0, sys.stdout.buffer
    for note in opened.notes:
        typer.echo(f"note: {note}", err=True)
    for source in opened.sources:
        for item in source.items:
            if row is None or item.row == row:
                out.write(to_line(item, opened.tokenizer, _beside(opened, source, item)))
                shown += 1
    out.flush()
    _refuse_nothing(shown, row)
    if row is None:
        for line in _account(opened):
            typer.echo(line, err=True)


def _beside(opened: Opened, source: SourceRows, item: Item) -> dict[str, Any]:
    """What stands beside a sample in its JSON object: the source and side where there are several, a text's format."""
    extra: dict[str, Any] = {"source": source.name} if len(opened.sources) > 1 else {}
    extra |= {"side": source.side} if source.side != "train" else {}
    return extra | ({"format": source.ledger.format} if item.conversation is not None else {})


def _print(opened: Opened, rows: int, row: int | None) -> None:
    from outlive.cli.show.statistics import Lengths
    from outlive.cli.show.terminal import make_console, show_facts, show_ledger

    console, lengths, shown = make_console(), Lengths(), 0
    show_facts(console, opened.facts)
    for note in opened.notes:
        console.print(f"note: {note}", style="yellow", soft_wrap=True)
    console.print()
    for source in opened.sources:
        seen: set[int] = set()
        for item in source.items:
            seen.add(item.row)
            lengths.add(item)
            if item.row == row if row is not None else len(seen) <= rows:
                _show(console, opened, source, item)
                shown += 1
    _refuse_nothing(shown, row)
    if row is not None:
        return
    show_ledger(console, _ledgers(opened))
    for line in lengths.lines():
        console.print(line, soft_wrap=True)


def _show(console: Console, opened: Opened, source: SourceRows, item: Item) -> None:
    from outlive.cli.show.terminal import show_conversation, show_refusal, show_sample

    title = title_of(opened, source, item)
    if item.refusal is not None:
        show_refusal(console, title, item.refusal.reason, item.refusal.detail)
    elif item.conversation is not None:
        show_conversation(console, item.conversation, item.trained, title)
    elif opened.tokenizer is not None and item.tokens is not None and item.weights is not None:
        show_sample(console, opened.tokenizer, item.tokens.tolist(), item.weights.tolist(), title)
    if item.lints:
        console.print(f"worth a look: {', '.join(item.lints)}\n", style="cyan", soft_wrap=True)


def title_of(opened: Opened, source: SourceRows, item: Item) -> str:
    """'row 3', with its part, role, side and source where there is more than one."""
    title = f"row {item.row}" + (f", part {item.part}" if item.part else "")
    title += f", {item.about['role']}" if item.about.get("role") else ""
    title += f", {source.side}" if source.side != "train" else ""
    return f"{title} of {Path(source.name).name}" if len(opened.sources) > 1 else title


def _write_page(opened: Opened, target: str, file: Path, rows: int | None, row: int | None) -> None:
    from outlive.cli.show.inspect_page import inspect_page
    from outlive.cli.show.inspect_payload import Shown, length_of
    from outlive.cli.show.inspect_statistics import statistics_html
    from outlive.cli.show.terminal import make_console, show_ledger
    from outlive.run.files import write_atomic

    lengths, num_targets, shown, notes = list[int](), 0, list[Shown](), list(opened.notes)
    for place, source in enumerate(opened.sources):
        room = _Room(rows, len(opened.sources))
        for item in source.items:
            lengths += [size] if (size := length_of(item)) is not None else []
            num_targets += int((item.weights > 0).sum()) if item.weights is not None else 0
            if item.row == row if row is not None else room.takes(item):
                shown.append(Shown(item, place, _beside(opened, source, item)))
        if row is None and room.is_full:
            notes.append(f"{source.name}: the page has the first {room.rows:,} rows; --rows N says how many")
    _refuse_nothing(len(shown), row)
    targets = num_targets if opened.tokenizer is not None else None
    statistics = statistics_html(lengths, targets, _ledgers(opened)) if row is None else ""
    sources = [source.name + (f" · {source.side}" if source.side != "train" else "") for source in opened.sources]
    title = Path(target).name or Path(target).resolve().name
    write_atomic(file, inspect_page(title, opened.tokenizer, shown, sources, opened.facts, notes, statistics))
    if row is None:
        show_ledger(make_console(), _ledgers(opened))
    typer.echo(f"wrote {file}")


class _Room:
    """Whole rows of one source that go on a page: `limit` of them, or as many as a browser opens at once."""

    def __init__(self, limit: int | None, num_sources: int) -> None:
        self._limit = limit or max(1, PAGE_ROWS // num_sources)
        self._tokens = None if limit else PAGE_TOKENS // num_sources
        self.rows, self.is_full = 0, False
        self._row = -1

    def takes(self, item: Item) -> bool:
        """Whether an item is among them; to be asked of each in order."""
        if not self.is_full and item.row != self._row:
            spent = self._tokens is not None and self._tokens <= 0 and self.rows > 0
            self.is_full = spent or self.rows == self._limit
            self.rows += not self.is_full
            self._row = item.row
        if self._tokens is not None and not self.is_full:
            self._tokens -= len(item.tokens) if item.tokens is not None else 0
        return not self.is_full


def _refuse_nothing(shown: int, row: int | None) -> None:
    from outlive.run.errors import InputError

    if not shown:
        what = "there is no row" if row is None else f"there is no row {row}; rows count from 0"
        raise InputError(what, fix="name rows that the source has" if row is None else "give a smaller --row")


def _ledgers(opened: Opened) -> list[Ledger]:
    return [source.ledger for source in opened.sources if source.ledger.source]


def _account(opened: Opened) -> Iterator[str]:
    from outlive.data.lints import tokenizer_lines

    ledgers = _ledgers(opened)
    for ledger in ledgers:
        yield from ledger.lines()
    for line in tokenizer_lines(lint for ledger in ledgers for lint in ledger.lints):
        yield f"the tokenizer, worth a look: {line}"
