"""The lints of a source, counted in the order of its rows; here earlier rows are known, so duplicates are found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from outlive.data.lints import LINTS, MAX_EXAMPLES, lint_lines
from outlive.data.near import Near
from outlive.data.seen import Seen

Sketch = npt.NDArray[np.uint64]


@dataclass
class LintCounts:
    """How many rows each lint fits, and the first rows of each, 0-based. Memory is bounded, whatever the rows."""

    counts: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)
    _seen: Seen = field(default_factory=Seen)
    _near: Near = field(default_factory=Near)

    def add(self, row: int, names: Iterable[str], content_hash: int, sketch: Sketch | None) -> list[str]:
        """The names of all lints of a row, counted: those that are known already, and whether it came before.

        Rows have to come in order. `sketch`: of the row's text, None where that is too short to be compared.
        """
        found = list(dict.fromkeys((*names, *self._earlier(row, content_hash, sketch))))
        self.count(found, row)
        return found

    def _earlier(self, row: int, content_hash: int, sketch: Sketch | None) -> list[str]:
        if self._seen.add(content_hash):
            return ["duplicate"]
        if sketch is not None and self._near.add(sketch, row) is not None:
            return ["near_duplicate"]
        return []

    def recall(self, row: int, content_hash: int, sketch: Sketch | None) -> None:
        """Take up a row that was counted before: later ones are compared with it."""
        self._earlier(row, content_hash, sketch)

    @property
    def compares(self) -> bool:
        """Whether further rows' sketches are kept, for later rows to be compared with."""
        return not self._near.is_full

    def count(self, names: Sequence[str], row: int) -> None:
        """Count lints of a row, each once."""
        for name in names:
            self.counts[name] = self.counts.get(name, 0) + 1
            rows = self.rows.setdefault(name, [])
            if len(rows) < MAX_EXAMPLES:
                rows.append(row)

    def to_json(self) -> list[dict[str, Any]]:
        """Each lint that fits any row, the commonest first: id, count, the first rows, one sentence."""
        order = sorted(self.counts, key=lambda name: (-self.counts[name], name))  # however they came to be counted
        return [
            {"id": name, "count": self.counts[name], "rows": self.rows[name], "about": LINTS[name]} for name in order
        ]

    def take_up(self, lints: Iterable[Mapping[str, Any]]) -> None:
        """The counts as `to_json` gave them."""
        for lint in lints:
            self.counts[lint["id"]], self.rows[lint["id"]] = lint["count"], list(lint["rows"])

    def lines(self) -> list[str]:
        """One line for each lint that fits any row, the commonest first."""
        return lint_lines(self.to_json())
