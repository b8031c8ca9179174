"""The page of `inspect`: every sample token by token, with search, filters and statistics, in one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from outlive.cli.show.inspect_payload import Shown, as_script, payload
from outlive.cli.show.style import DARK, LIGHT, page, table, text
from outlive.cli.show.visible import HIDDEN, signed

if TYPE_CHECKING:
    from outlive.text.tokenizer import Tokenizer

STYLES = ("inspect.css",)
SCRIPTS = ("data.js", "sample.js", "filters.js", "list.js")
# The switch stands above what the system asks for.
_THEMES = (
    f":root[data-theme=light] {{ color-scheme: light;{LIGHT} }}\n:root[data-theme=dark] {{ color-scheme: dark;{DARK} }}"
)


def inspect_page(
    title: str,
    tokenizer: Tokenizer | None,
    shown: Sequence[Shown],
    sources: Sequence[str],
    facts: Mapping[str, object],
    notes: Sequence[str] = (),
    statistics: str = "",
) -> str:
    """One HTML file that loads nothing. `sources` are names by `Shown.source`; `statistics` is HTML."""
    data = {"unit": "tokens" if tokenizer is not None else "characters", "hidden": HIDDEN, "sources": list(sources)}
    data |= {"about": _meanings(shown)} | payload(shown, tokenizer)
    body = "".join(
        [
            f'<header><h1>{text(signed(title))}</h1><button type="button" id="theme">Theme: system</button></header>',
            "".join(f'<p class="warn">{text(signed(note))}</p>' for note in notes),
            f"<details><summary>How this was made</summary>{_facts(facts)}</details>" if facts else "",
            statistics,
            _form(shown, sources, tokenizer is not None),
            _legend(tokenizer is not None),
            '<ol id="samples" aria-label="Samples"></ol><p id="nothing" class="panel" hidden></p>',
            "<noscript><p class='warn'>The samples are shown by a script of this page: allow it to run.</p></noscript>",
            f'<script type="application/json" id="data">{as_script(data)}</script>',
        ]
    )
    return page(f"{signed(title)} · inspect", body, _THEMES + _read(STYLES), _read(SCRIPTS))


def _read(names: Sequence[str]) -> str:
    folder = files("outlive.cli.show") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _facts(facts: Mapping[str, object]) -> str:
    return table({name: signed(str(value)) for name, value in facts.items()})


def _meanings(shown: Sequence[Shown]) -> dict[str, str]:
    from outlive.data.lints import LINTS
    from outlive.data.refusals import DATA_REASONS
    from outlive.text.refusal import REASONS

    used = {name for one in shown for name in one.item.lints}
    used |= {one.item.refusal.reason for one in shown if one.item.refusal is not None}
    return {name: about for name, about in {**REASONS, **DATA_REASONS, **LINTS}.items() if name in used}


def _form(shown: Sequence[Shown], sources: Sequence[str], has_tokens: bool) -> str:
    lints = sorted({name for one in shown for name in one.item.lints})
    reasons = sorted({one.item.refusal.reason for one in shown if one.item.refusal is not None})
    unit = "tokens" if has_tokens else "characters"
    fields = [
        _select("targets", "Targets", [("with", "with targets"), ("without", "without targets")]),
        _select("lint", "Worth a look", [("*", "any"), *((name, name) for name in lints)]) if lints else "",
        _select(
            "refused", "Left out", [("no", "not left out"), ("*", "any reason"), *((name, name) for name in reasons)]
        )
        if reasons
        else "",
        _select("source", "Source", [(str(place), signed(name)) for place, name in enumerate(sources)])
        if len(sources) > 1
        else "",
        f'<label>Least {unit}<input name="min" type="number" min="0" inputmode="numeric"></label>',
        f'<label>Most {unit}<input name="max" type="number" min="0" inputmode="numeric"></label>',
    ]
    return (
        '<form id="filters" role="search"><div class="search"><input name="q" type="search" autocomplete="off" '
        'spellcheck="false" aria-label="Search the text, or a row such as #12" '
        'placeholder="Search text, or #row ( / )">'
        '<button type="button" id="more" aria-expanded="false" aria-controls="fields">Filters</button>'
        f'<button type="button" id="clear">Clear</button></div><div id="fields">{"".join(fields)}</div>'
        '<p id="status" role="status"></p></form>'
    )


def _select(name: str, label: str, options: Sequence[tuple[str, str]]) -> str:
    shown = "".join(f'<option value="{text(value)}">{text(option)}</option>' for value, option in options)
    return f'<label>{label}<select name="{name}"><option value="">all</option>{shown}</select></label>'


def _legend(has_tokens: bool) -> str:
    return f'<details class="legend"><summary>Signs and keys</summary>{"".join(_signs(has_tokens))}</details>'


def _signs(has_tokens: bool) -> Iterator[str]:
    part = "token" if has_tokens else "turn"
    yield f'<p class="tokens"><b class="t b e">target</b> a {part} that carries loss: in ⟦ ⟧, underlined'
    if has_tokens:
        yield '; <b class="t w b e">dashed</b> with a weight other than 1'
    yield f" · <b>context</b> a {part} that carries none"
    if has_tokens:
        yield ' · <b class="s">&lt;|special|&gt;</b> a special token'
    yield "</p><p><i>↵ → ·</i> line break, tab, spaces that are easily overlooked; ⟨U+202E⟩ other hidden characters</p>"
    keys = "<kbd>/</kbd> search · <kbd>n</kbd> <kbd>p</kbd> next and previous sample · <kbd>Tab</kbd> through the page"
    if has_tokens:
        keys += " · <kbd>←</kbd> <kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd> <kbd>Home</kbd> <kbd>End</kbd> token by token"
        keys += " · <kbd>t</kbd> to the next run of targets · <kbd>Esc</kbd> closes"
    yield f"<p>{keys}</p>"
    if has_tokens:
        yield "<p>Point at a token, tap it or go to it by keys for its id, text, weight and turn: the message that it "
        yield "comes from, by its place in the row from 0, and its role. Where messages are not known (plain text, a "
        yield "store) it is the target run instead: targets that follow each other without a break.</p>"
