"""From a row to its samples: what `prepare` stores and `inspect` shows is made here, one row at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from outlive.data.conversation import ROLES, Conversation, content_hash
from outlive.data.formats import FIELDS
from outlive.data.groups import OtherMethod
from outlive.data.ledger import Ledger
from outlive.data.lint_counts import LintCounts
from outlive.data.lints import all_text, lints_of
from outlive.data.naming import Naming
from outlive.data.near import sketches_of
from outlive.data.overlong import fit
from outlive.data.reading import conversation_of, each_row
from outlive.data.rows import ReadCounts, Row
from outlive.data.samples import Draft, Sample, SampleMaker
from outlive.data.token_lints import TokenLints
from outlive.run.errors import InputError
from outlive.text.spans import Refusal
from outlive.text.template import TemplateError

if TYPE_CHECKING:
    from outlive.data.record_batch import Column

# What a float32 holds: the largest number, and the whole numbers that it tells apart.
MAX_FLOAT, MAX_INT = float(np.finfo(np.float32).max), 2**24


class RowResult(NamedTuple):
    """What became of a row: its samples, or the refusal. `columns` are the method's values for each sample.

    `lints`: names, of the row alone until earlier rows are known. `sketch`: of its text, to be compared with theirs.
    """

    row: Row
    conversation: Conversation | None
    samples: list[Sample]
    refusal: Refusal | None
    columns: dict[str, float]
    content_hash: int
    lints: Sequence[str] = ()
    sketch: npt.NDArray[np.uint64] | None = None


class RowReader:
    """What turns a row into its samples, looking at nothing but the row. `source`: its name, for errors.

    `columns`: those that the method declares; rows carry them as numbers. `every_row`: lints that fit all rows.
    """

    def __init__(
        self, source: str, maker: SampleMaker, columns: Mapping[str, Column] | None = None, naming: Naming | None = None
    ) -> None:
        if naming is not None:
            naming.check(FIELDS, ROLES)
        self.source, self.maker, self.columns, self.naming = source, maker, columns or {}, naming
        self._declared = frozenset(self.columns)
        self._token_lints = TokenLints(maker.tokenizer, maker.policy.loss_on)
        self.every_row: Sequence[str] = self._token_lints.of_source

    def read(self, rows: Iterable[Row], ledger: Ledger) -> list[RowResult]:
        """The samples of each row, none longer than the policy's length, or the refusal, which is not counted yet.

        `ledger` has the format, or takes that of the first row that can be read. What happened to rows that are kept
        is counted in it. All rows are rendered, then all are tokenised, then all are looked at: see
        `SampleMaker.draft`.
        """
        self.maker.counts = ledger.counts
        drafted = [self._draft(row, ledger) for row in rows]
        self.maker.encode_ahead([one.draft for one in drafted if isinstance(one, _Drafted)])
        made = [one if isinstance(one, RowResult) else self._made(one, ledger) for one in drafted]
        kept = [one for one in made if isinstance(one, _Made)]
        sketches = iter(sketches_of([all_text(one.drafted.conversation) for one in kept]))
        lints = iter(self._token_lints.of_all([(one.drafted.conversation, one.whole) for one in kept]))
        return [one if isinstance(one, RowResult) else self._seen(one, next(lints), next(sketches)) for one in made]

    def _draft(self, row: Row, ledger: Ledger) -> _Drafted | RowResult:
        conversation = None
        try:
            conversation = conversation_of(row, ledger, self._declared, self.naming)
            values = _column_values(row.value or {}, self.columns)
            return _Drafted(row, conversation, self.maker.draft(conversation), values)
        except InputError as error:
            return self._refused(row, conversation, error)

    def _made(self, drafted: _Drafted, ledger: Ledger) -> _Made | RowResult:
        policy = self.maker.policy
        try:
            samples = whole = self.maker.finish(drafted.draft)
            if policy.sequence_length is not None:
                samples = fit(samples, policy.sequence_length, policy.overlong, ledger.counts)
        except InputError as error:
            return self._refused(drafted.row, drafted.conversation, error)
        return _Made(drafted, whole, samples)

    def _seen(self, made: _Made, of_tokens: list[str], sketch: npt.NDArray[np.uint64] | None) -> RowResult:
        """With what is worth a look, and what later rows are compared with."""
        row, conversation, draft, values = made.drafted
        lints = [*lints_of(conversation), *draft.lints, *of_tokens]
        return RowResult(row, conversation, made.samples, None, values, content_hash(conversation), lints, sketch)

    def _refused(self, row: Row, conversation: Conversation | None, error: InputError) -> RowResult:
        """The row's refusal. Raises what is no fault of one row: another method's rows, a template without end."""
        if isinstance(error, OtherMethod):
            raise InputError(error.what, where=self.source, fix=error.fix) from None
        if isinstance(error, TemplateError) and error.reason == "limit":
            raise error
        # what is no refusal comes from the tokenizer, which can't take the text
        refusal = error if isinstance(error, Refusal) else Refusal("bad_text", error.what)
        return RowResult(row, conversation, [], refusal, {}, 0)


class _Drafted(NamedTuple):
    """A row that can be read, before it is tokenised. `values`: of the method's columns."""

    row: Row
    conversation: Conversation
    draft: Draft
    values: dict[str, float]


class _Made(NamedTuple):
    """A row with its samples; `whole`: before any cut."""

    drafted: _Drafted
    whole: list[Sample]
    samples: list[Sample]


def read_samples(
    files: Sequence[Path],
    reader: RowReader,
    ledger: Ledger,
    limit: int | None = None,
    read: ReadCounts | None = None,
) -> Iterator[RowResult]:
    """The rows of files with their samples or refusals. The ledger is filled on the way and balanced at the end.

    `ledger.format` names the format; empty: that of the first readable row. `limit` is a number of rows.
    """
    lints = LintCounts()

    def outcome(row: Row) -> RowResult:
        (result,) = reader.read([row], ledger)
        if result.refusal is not None:
            return result
        lints.count(reader.every_row, row.index)
        return result._replace(lints=lints.add(row.index, result.lints, result.content_hash, result.sketch))

    return each_row(files, ledger, outcome, limit, read, lints)


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
