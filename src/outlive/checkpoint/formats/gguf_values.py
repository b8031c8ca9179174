"""Values of a GGUF header as bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from outlive.checkpoint.formats.gguf_types import ARRAY, BOOL, SCALARS, STRING
from outlive.checkpoint.remedies import OTHER_FORMAT
from outlive.run.errors import InputError

_CODES = {np.dtype(raw): code for code, raw in SCALARS.items()}
_U32, _I32, _F32, _U64, _I64 = 4, 5, 6, 10, 11


def packed_text(text: str) -> bytes:
    """A text with its length in front. Raises InputError for one that is no text in UTF-8 (half a surrogate pair)."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the text {text[:40]!r} can't be written: {error.reason}", fix=OTHER_FORMAT) from None
    return struct.pack("<Q", len(data)) + data


def packed_value(key: str, value: Any) -> bytes | None:
    """The type of a value and the value; None for an empty list, which has no type.

    Numbers and arrays of numpy keep their width. Of Python, a float is a float32, an int a uint32 and the ints of a
    list are int32 (others where these don't do), a text is a text, a list of lists an array of arrays.
    """
    if isinstance(value, Sequence) and not isinstance(value, str) and not len(value):
        return None
    try:
        code, data = _packed(value, _U32)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise InputError(f"{key} can't be written into a GGUF file: {str(error)[:200]}", fix=OTHER_FORMAT) from None
    return struct.pack("<I", code) + data


def _packed(value: Any, integer: int) -> tuple[int, bytes]:
    if isinstance(value, str):
        return STRING, packed_text(value)
    if isinstance(value, np.ndarray) and value.ndim == 1:
        raw = value.dtype.newbyteorder("<")
        return ARRAY, struct.pack("<IQ", _CODES[_known(raw)], len(value)) + value.astype(raw).tobytes()
    if isinstance(value, list | tuple):
        return ARRAY, _packed_list(value)
    if isinstance(value, np.generic):
        raw = value.dtype.newbyteorder("<")
        return _CODES[_known(raw)], value.astype(raw).tobytes()
    if isinstance(value, bool):
        return BOOL, bytes([value])
    if isinstance(value, float):
        return _F32, struct.pack("<f", value)
    if isinstance(value, int):
        code = _width([value], integer)
        return code, np.array(value, SCALARS[code]).tobytes()
    raise TypeError(f"a {type(value).__name__} is no value of a header")


def _known(raw: np.dtype[Any]) -> np.dtype[Any]:
    if raw not in _CODES:
        raise TypeError(f"numbers of {raw.name} are no values of a header")
    return raw


def _packed_list(values: Sequence[Any]) -> bytes:
    """The type of the elements, their number, and the elements."""
    if values and all(type(value) is int for value in values):
        code = _width(values, _I32)
        return struct.pack("<IQ", code, len(values)) + np.array(values, SCALARS[code]).tobytes()
    packed = [_packed(value, _I32) for value in values]
    codes = {code for code, _ in packed}
    if len(codes) != 1:
        raise TypeError("elements of a list have to be of one type, and at least one")
    return struct.pack("<IQ", codes.pop(), len(values)) + b"".join(data for _, data in packed)


def _width(values: Sequence[int], usual: int) -> int:
    """The first type that holds all of the numbers."""
    low, high = min(values), max(values)
    order = [usual, _U32, _I32, _I64, _U64] if usual == _I32 else [usual, _I32, _U64, _I64]
    for code in order:
        limits = np.iinfo(SCALARS[code])
        if limits.min <= low and high <= limits.max:
            return code
    raise OverflowError("an integer has more than 64 bits")
