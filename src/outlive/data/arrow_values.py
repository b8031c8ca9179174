"""Columns of Arrow as Python values: the same ones whichever packages are installed, and for every value there can be.

Python's own dates and times know neither nanoseconds nor years after 9999; pandas, where it is there, knows the former.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as types


def values_of(column: Any) -> list[Any]:
    """The values of a column. Times in nanoseconds, and those that Python has not, are text as Arrow writes it."""
    moments = _moments(column.type)
    if not moments:
        return list(column.to_pylist())
    if any(getattr(kind, "unit", "") == "ns" for kind in moments):
        return _as_text(column)
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError, LookupError):
        return [_value(column.slice(place, 1)) for place in range(len(column))]


def _value(one: Any) -> Any:
    try:
        return one.to_pylist()[0]
    except (ValueError, OverflowError, LookupError):
        return _as_text(one)[0]


def _as_text(column: Any) -> list[Any]:
    try:
        return list(column.cast(_with_text(column.type)).to_pylist())
    except pa.ArrowInvalid:  # a time zone that this machine has not: in UTC, as it is stored
        return list(column.cast(_without_zone(column.type)).cast(_with_text(column.type)).to_pylist())


def _moments(kind: Any) -> list[Any]:
    """The types of dates and times within a type."""
    if types.is_dictionary(kind):
        return _moments(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _moments(kind.storage_type)
    if kind.num_fields:
        return [one for number in range(kind.num_fields) for one in _moments(kind.field(number).type)]
    return [kind] if types.is_temporal(kind) and not types.is_interval(kind) else []


def _with_text(kind: Any) -> Any:
    return _replaced(kind, pa.string())


def _without_zone(kind: Any) -> Any:
    return _replaced(kind, None)


def _replaced(kind: Any, text: Any) -> Any:
    """The type with text in place of dates and times, or where `text` is None with times that have no zone."""
    if types.is_dictionary(kind):
        return _replaced(kind.value_type, text)
    if types.is_map(kind):
        return pa.map_(_replaced(kind.key_type, text), _replaced(kind.item_type, text))
    if types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([field.with_type(_replaced(field.type, text)) for field in fields])
    if types.is_large_list(kind):
        return pa.large_list(_replaced(kind.value_type, text))
    if types.is_list(kind) or types.is_fixed_size_list(kind) or types.is_list_view(kind):
        return pa.list_(_replaced(kind.value_type, text))
    if not _moments(kind):
        return kind
    if text is not None:
        return text
    return pa.timestamp(kind.unit) if types.is_timestamp(kind) else kind
