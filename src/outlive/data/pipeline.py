"""From a file's rows to samples, one row at a time: what `prepare` stores and `inspect` shows is the same stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from outlive.data.conversation import ROLES, Conversation, content_hash
from outlive.data.formats import FIELDS
from outlive.data.groups import OtherMethod
from outlive.data.ledger import Ledger
from outlive.data.lints import LintCounts
from outlive.data.naming import Naming
from outlive.data.overlong import fit
from outlive.data.reading import conversation_of, each_row
from outlive.data.rows import ReadCounts, Row
from outlive.data.samples import Sample, SampleMaker
from outlive.data.token_lints import TokenLints
from outlive.run.errors import InputError
from outlive.text.spans import Refusal
from outlive.text.template import TemplateError

if TYPE_CHECKING:
    from outlive.data.store import Column

# What a float32 holds: the largest number, and the whole numbers that it tells apart.
MAX_FLOAT, MAX_INT = float(np.finfo(np.float32).max), 2**24


class RowResult(NamedTuple):
    """What became of a row: its samples, or the refusal. `columns` are the method's values for each sample."""

    row: Row
    conversation: Conversation | None
    samples: list[Sample]
    refusal: Refusal | None
    columns: dict[str, float]
    content_hash: int
    lints: Sequence[str] = ()


def read_samples(
    path: Path,
    maker: SampleMaker,
    ledger: Ledger,
    columns: Mapping[str, Column] | None = None,
    limit: int | None = None,
    read: ReadCounts | None = None,
    naming: Naming | None = None,
) -> Iterator[RowResult]:
    """The rows of a file with their samples or refusals. The ledger is filled on the way and balanced at the end.

    `ledger.format` names the format; empty: that of the first readable row. `limit` is a number of rows.
    """
    maker.counts = ledger.counts
    if naming is not None:
        naming.check(FIELDS, ROLES)
    reader = _Reader(path, maker, ledger, columns or {}, naming, LintCounts(), TokenLints(maker.tokenizer))
    return each_row(path, ledger, reader.read, limit, read, reader.lints)


@dataclass(frozen=True)
class _Reader:
    """What turns a row into its samples."""

    path: Path
    maker: SampleMaker
    ledger: Ledger
    columns: Mapping[str, Column]
    naming: Naming | None
    lints: LintCounts
    token_lints: TokenLints

    def read(self, row: Row) -> RowResult:
        """The samples of a row, or why it is refused."""
        conversation, maker = None, self.maker
        try:
            conversation = conversation_of(row, self.ledger, frozenset(self.columns), self.naming)
            values = _column_values(row.value or {}, self.columns)
            samples = maker.make(conversation)
            seen = [*maker.lints, *self.token_lints.of(conversation, samples)]
            if maker.policy.sequence_length is not None:
                samples = fit(samples, maker.policy.sequence_length, maker.policy.overlong, maker.counts)
        except Refusal as refusal:
            return RowResult(row, conversation, [], refusal, {}, 0)
        except OtherMethod as error:
            raise InputError(error.what, where=str(self.path), fix=error.fix) from None
        except InputError as error:  # the tokenizer can't take the text
            if isinstance(error, TemplateError) and error.reason == "limit":  # the template's fault, not this row's
                raise
            return RowResult(row, conversation, [], Refusal("bad_text", error.what), {}, 0)
        key = content_hash(conversation)
        names = self.lints.add(conversation, row.index, key, seen)
        self.lints.count(self.token_lints.of_source, row.index)
        return RowResult(row, conversation, samples, None, values, key, names)


def _column_values(row: Mapping[str, object], columns: Mapping[str, Column]) -> dict[str, float]:
    values = {}
    for name in columns:
        value = row.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Refusal("bad_column", f"the method reads the number '{name}'; the row has {value!r}")
        if abs(value) > (MAX_INT if isinstance(value, int) else MAX_FLOAT):
            raise Refusal("bad_column", f"'{name}' is kept as a float32, which can't hold {value!r}")
        values[name] = value
    return values
