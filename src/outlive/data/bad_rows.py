"""Bad rows as an error: each with its line, the text that is meant and what helps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outlive.data.json_places import Span, find_fault, find_value, lone_surrogate
from outlive.data.refusals import LENGTH_REASONS, REMEDIES
from outlive.data.rows import Row
from outlive.run.errors import InputError
from outlive.run.excerpt import Excerpt
from outlive.run.files import writable
from outlive.text.refusal import Refusal

if TYPE_CHECKING:
    from outlive.data.ledger import Ledger


def excerpt_of(row: Row, refusal: Refusal) -> dict[str, Any]:
    """The part of a row's line that a refusal is about, as JSON can carry it (see `Excerpt`)."""
    raw = row.raw or (json.dumps(row.value, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace")
                      if row.value is not None else b"")  # fmt: skip
    text = raw.rstrip(b"\r\n").decode("utf-8", "backslashreplace")
    column, length = row.column, row.length
    if column is None and (span := _span(text, refusal)):
        column, length = span.start + 1, span.length
    cut = Excerpt("", row.line, text, column, length).cut()
    about = {"column": cut.column, "length": min(cut.length, len(cut.text)), "start": cut.start, "more": cut.more}
    return {"text": writable(cut.text), **about}


def bad_rows_error(ledgers: Sequence[Ledger]) -> InputError:
    """The InputError for sources with bad rows: the first ones of each, the reasons counted, and what helps."""
    mistakes = [_mistake(ledger, example) for ledger in ledgers for example in ledger.examples]
    lines, remedies = [], []
    for ledger in ledgers:
        reasons = ", ".join(f"{reason}: {number}" for reason, number in ledger.refused.most_common())
        rows = "row" if ledger.rows == 1 else "rows"
        lines.append(f"{ledger.source}: {ledger.bad} of {ledger.rows} {rows} cannot be trained on ({reasons})")
        remedies += [REMEDIES[reason] for reason in ledger.refused if reason in REMEDIES.keys() - LENGTH_REASONS]
    remedies.append("mend the rows, or set data.bad_rows=drop to leave them out, counted")
    return InputError("\n".join(lines), fix="; or ".join(dict.fromkeys(remedies)), mistakes=mistakes)


def nothing_left_error(ledgers: Sequence[Ledger]) -> InputError:
    """The InputError for sources of which no row is kept."""
    lines = "\n".join(line for ledger in ledgers for line in ledger.lines())
    reasons = {reason for ledger in ledgers for reason in ledger.refused}
    remedies = [REMEDIES[reason] for reason in REMEDIES if reason in reasons]
    return InputError(f"no row is left to train on\n{lines}", fix="; or ".join(remedies) or "see the reasons above")


def _mistake(ledger: Ledger, example: dict[str, Any]) -> InputError:
    about, file = example.get("excerpt"), example.get("file") or ledger.source
    excerpts = [Excerpt(file, example["line"], **about)] if about else []
    what = f"{example['reason']}: {example['detail']}" if example["detail"] else example["reason"]
    return InputError(what, where=f"{file}:{example['line']}", excerpts=excerpts)


def _span(text: str, refusal: Refusal) -> Span | None:
    if refusal.reason == "bad_json":
        return find_fault(text)
    if refusal.reason == "bad_text":
        return lone_surrogate(text)
    return find_value(text, refusal.path) if refusal.path else None
