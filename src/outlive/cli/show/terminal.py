"""Samples and ledgers in a terminal. Targets have a colour of their own; without colours they stand in ⟦ ⟧."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO

from rich.console import Console
from rich.text import Text

from outlive.cli.show.visible import Stretch, Vocabulary, cells, signed, stretches, with_signs
from outlive.run.sizes import counted

if TYPE_CHECKING:
    from outlive.data.conversation import Conversation
    from outlive.data.ledger import Ledger

SPECIAL = "magenta"
SIGN = "bright_black"
OPEN, CLOSE = "⟦", "⟧"


class Palette(NamedTuple):
    """Styles of targets: their text, signs and special tokens."""

    target: str
    sign: str
    special: str


# Foreground and background are both set, so that targets are readable on dark and on light terminals.
RICH = Palette("#d6ffe0 on #14532d", "#7fbf93 on #14532d", "bold #fde68a on #14532d")
SIXTEEN = Palette("black on green", "white on green", "bold black on green")


def make_console(file: TextIO | None = None, stderr: bool = False) -> Console:
    """A console that prints text as it is: no markup, no highlighting, no emoji codes."""
    return Console(file=file, stderr=stderr, markup=False, highlight=False, emoji=False)


def palette(console: Console) -> Palette | None:
    """The colours of a console; None where none reach the reader: in a file or pipe, under NO_COLOR, if it is dumb."""
    if console.color_system is None or console.no_color:
        return None
    return RICH if console.color_system in ("truecolor", "256") else SIXTEEN


def show_sample(
    console: Console, tokenizer: Vocabulary, tokens: Sequence[int], weights: Sequence[float], title: str
) -> None:
    """Print one sample: tokens [L] decoded, with its targets marked. weights[t] belongs to tokens[t] as a target."""
    num_targets = sum(1 for weight in weights if weight > 0)
    show_heading(console, title, f"{counted(len(tokens), 'token')}, {targets(num_targets, len(tokens))}")
    text = sample_text(list(stretches(cells(tokenizer, tokens, weights))), palette(console))
    _print_block(console, text)


def sample_text(parts: Sequence[Stretch], colours: Palette | None) -> Text:
    """The parts of a sample as one text, special tokens and white space visible."""
    text, open_weight = Text(tab_size=4), 0.0
    for part in parts:
        if part.weight != open_weight:
            _bracket(text, open_weight, part.weight, colours)
            open_weight = part.weight
        _append(text, part, colours)
    _bracket(text, open_weight, 0.0, colours)
    return text


def _append(text: Text, part: Stretch, colours: Palette | None) -> None:
    plain, sign = SPECIAL if part.special else "", SIGN
    if colours is None:
        plain = sign = ""
    elif part.weight > 0:
        plain, sign = colours.special if part.special else colours.target, colours.sign
    for piece, is_sign in with_signs(part.text, edges=True):
        style = sign if is_sign else plain
        if is_sign and piece.endswith("\n"):  # a coloured line break would paint the rest of the line
            text.append(piece[:-1], style)
            text.append("\n")
        else:
            text.append(piece, style)


def _bracket(text: Text, before: float, after: float, colours: Palette | None) -> None:
    """Where the weight changes: brackets where there is no colour, and the weight itself where it is not 1."""
    if before > 0 and colours is None:
        text.append(CLOSE)
    if after > 0:
        factor = "" if after == 1 else f"{after:g}×"
        text.append(f"{factor}{OPEN}" if colours is None else factor, SIGN)


def show_conversation(console: Console, conversation: Conversation, trained: Sequence[int], title: str) -> None:
    """Print a conversation as text, turn by turn; `trained` are the places of the turns that carry loss."""
    from outlive.data.texts import turns

    spoken = turns(conversation)
    show_heading(console, title, counted(len(spoken), "turn"))
    width = max(len(turn.role) for turn in spoken)
    for place, turn in enumerate(spoken):
        line = Text(tab_size=4)
        line.append(f"{turn.role:<{width}}  ", "bold cyan")
        body = sample_text([Stretch(turn.text, float(place in trained), False)], palette(console))
        indent = "\n" + " " * (width + 2)
        for number, part in enumerate(body.split("\n", allow_blank=True)):
            line.append(indent if number else "")
            line.append_text(part)
        console.print(line, soft_wrap=not console.is_terminal)
    console.print()


def show_refusal(console: Console, title: str, reason: str, detail: str) -> None:
    """Print that a row is left out, and why."""
    show_heading(console, title, "left out")
    _print_block(console, Text.assemble((reason, "bold yellow"), f": {signed(detail)}"))


def show_heading(console: Console, title: str, facts: str) -> None:
    """A line that separates: the title, and what is to be known at once."""
    width = min(console.width, 100)
    line = Text.assemble(("── ", SIGN), (signed(title), "bold"), "  ", (facts, "cyan"), " ")
    line.append("─" * max(0, width - line.cell_len), SIGN)
    console.print(line, soft_wrap=True)


def show_ledger(console: Console, ledgers: Sequence[Ledger]) -> None:
    """Print what became of every row, source by source, with the first rows that are wrong."""
    from outlive.data.lints import tokenizer_lines

    for ledger in ledgers:
        first, *others = ledger.lines()
        console.print(Text(signed(first), "bold"), soft_wrap=True)
        for line in others:
            style = "yellow" if line.startswith("  left out") else "cyan" if line.startswith("  worth a look") else ""
            console.print(Text(f"  {signed(line.strip())}", style), soft_wrap=True)
        for row in ledger.examples:
            place = f"{row['file']}:{row['line']}" if row.get("file") else f"line {row['line']}"
            told = f"{place}: {row['reason']}: {row['detail']}"
            console.print(Text(f"    {signed(told)}", SIGN), soft_wrap=True)
    for line in tokenizer_lines(lint for ledger in ledgers for lint in ledger.lints):
        console.print(Text(f"the tokenizer, worth a look: {line}", "cyan"), soft_wrap=True)


Table = Sequence[Sequence[str]]  # rows of cells


def show_facts(console: Console, facts: Mapping[str, str | Table]) -> None:
    """Print names and values in two columns. A table takes several lines, all but its last column flush right."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        lines = [signed(value)] if isinstance(value, str) else _laid_out(value)
        for place, line in enumerate(lines):
            console.print(Text.assemble((f"{'' if place else name:<{width}}", "cyan"), f"  {line}"), soft_wrap=True)


def _laid_out(rows: Table) -> list[str]:
    cleaned = [[signed(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cleaned, strict=True)]
    return [
        "  ".join([*(f"{cell:>{width}}" for cell, width in zip(row[:-1], widths, strict=False)), row[-1]])
        for row in cleaned
    ]


def targets(num_targets: int, num_tokens: int) -> str:
    """'68 targets (71%)'."""
    return f"{counted(num_targets, 'target')} ({num_targets / max(1, num_tokens):.0%})"


def _print_block(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=not console.is_terminal, end="\n" if text.plain.endswith("\n") else "\n\n")
