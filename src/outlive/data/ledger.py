"""The ledger: what became of every row. Nothing is dropped, cut or changed without standing here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from outlive.data.bad_rows import excerpt_of
from outlive.data.lint_counts import LintCounts
from outlive.data.lints import lint_lines
from outlive.data.refusals import LENGTH_REASONS, meaning
from outlive.data.rows import ReadCounts, Row
from outlive.run.sizes import counted
from outlive.text.refusal import Refusal

MAX_EXAMPLES = 5

_NAMES = {
    "truncated": "rows cut to data.sequence_length",
    "split": "rows split into parts",
    "tokens_cut": "tokens cut off",
    "targets_cut": "target tokens cut off",
    "targets_left_out": "target tokens of rows that were left out for their length",
    "developer_as_system": "rows whose developer turn is given to the template as the system's, the name it knows",
    "null_keys": "rows with keys without a value left out of their objects (a table gives each object the keys of all)",
    "prefix_not_shared": "groups whose answers do not share the prompt's tokens, which stand in each",
    "parts_without_target": "parts without a target left out",
    "unrolled": "rows unrolled, one sample per trained turn (in the whole text a turn is not what a server would send)",
    "joint_differs": "rows whose tokens differ from tokenising the whole text at once",
    "joint_unseen": "of these, rows whose bounds alone did not show it: more may be uncounted",
    "unknown_tokens": "rows with text that the tokenizer does not know, and replaces by its unknown token",
    "special_token_in_content": "rows with a special token's text inside a message",
}


@dataclass
class Ledger:
    """Counts of one source: rows = kept + bad + overlong, always. `counts`: what happened to rows that were kept."""

    source: str
    format: str = ""
    format_reason: str = ""
    rows: int = 0
    kept: int = 0
    validation_rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    unused_columns: Counter[str] = field(default_factory=Counter)
    blank_lines: int = 0
    crlf_lines: int = 0
    bom: bool = False
    note: str = ""
    lints: list[dict[str, Any]] = field(default_factory=list)

    @property
    def bad(self) -> int:
        """Rows that are wrong, whatever their length."""
        return sum(number for reason, number in self.refused.items() if reason not in LENGTH_REASONS)

    @property
    def overlong(self) -> int:
        """Rows left out since they, or their targets, do not fit the sequence length."""
        return sum(number for reason, number in self.refused.items() if reason in LENGTH_REASONS)

    def take(self, row: Row, refusal: Refusal | None) -> None:
        """Count a row: kept, or left out; the first bad ones are kept with their place and the text in question."""
        self.rows += 1
        if refusal is None:
            self.kept += 1
            return
        self.refused[refusal.reason] += 1
        if refusal.reason not in LENGTH_REASONS and len(self.examples) < MAX_EXAMPLES:
            about = {"line": row.line, "row": row.index, "reason": refusal.reason, "detail": refusal.detail}
            about |= {"file": row.file} if row.file else {}
            self.examples.append({**about, "excerpt": excerpt_of(row, refusal)})

    def add(self, later: Ledger) -> None:
        """Take over the counts of rows of the same source that follow those counted here."""
        if not self.format:
            self.format, self.format_reason, self.note = later.format, later.format_reason, later.note
        self.note = self.note or later.note
        self.rows += later.rows
        self.kept += later.kept
        self.validation_rows += later.validation_rows
        self.refused.update(later.refused)
        self.counts.update(later.counts)
        self.unused_columns.update(later.unused_columns)
        self.examples += later.examples[: MAX_EXAMPLES - len(self.examples)]

    def finish(self, read: ReadCounts, lints: LintCounts | None = None) -> None:
        """Take over what reading counted and what is worth a look, and hold the balance of rows."""
        if read.null_keys:
            self.counts["null_keys"] += read.null_keys
        self.lints = lints.to_json() if lints is not None else []
        self.blank_lines, self.crlf_lines, self.bom = read.blank_lines, read.crlf_lines, read.bom
        if self.rows != self.kept + self.bad + self.overlong:
            raise AssertionError(f"the ledger does not balance: {self}")

    def to_json(self) -> dict[str, Any]:
        return {key: dict(value) if isinstance(value, Counter) else value for key, value in vars(self).items()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Ledger:
        counters = {"refused", "counts", "unused_columns"}
        values: dict[str, Any] = {key: Counter(item) if key in counters else item for key, item in value.items()}
        return cls(**values)

    def lines(self) -> list[str]:
        """The ledger for people: one fact a line, zeros left out."""
        known = f"format {self.format} ({self.format_reason})" if self.format else "none of them in a known format"
        lines = [
            f"{self.source}: {counted(self.rows, 'row')}, {known}",
            f"  kept: {self.kept}",
        ]
        if self.note:
            lines.insert(1, f"  {self.note}")
        if self.validation_rows:
            lines.append(f"  of these for validation: {self.validation_rows}")
        for reason, number in self.refused.most_common():
            lines.append(f"  left out, {reason}: {number}" + (f" ({about})" if (about := meaning(reason)) else ""))
        lines += [f"  {_NAMES[name]}: {number}" for name, number in self.counts.items() if number]
        for name, number in self.unused_columns.items():
            lines.append(f"  column not used: {name} ({counted(number, 'row')})")
        notes = [("blank lines", self.blank_lines), ("lines with CRLF", self.crlf_lines), ("byte order mark", self.bom)]
        lines += [f"  {name}: {int(number)}" for name, number in notes if number]
        return lines + [f"  worth a look: {line}" for line in lint_lines(self.lints)]
