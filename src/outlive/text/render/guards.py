"""What the methods, operators and formats that a template may use can make: counted before they make it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEscapeFormatter, SandboxedFormatter
from markupsafe import EscapeFormatter, Markup

from outlive.text.render import limits
from outlive.text.render.measure import LimitReached
from outlive.text.render.meter import Meter

_DIGITS = re.compile(r"\d+")
_PERCENT = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|\d+)?(?:\.(\*|\d+))?")
# A codec such as idna or punycode takes quadratic time.
_CODECS = ("utf8", "utf16", "utf32", "ascii", "latin1", "iso88591")
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_SMALL = 10_000  # shorter texts cost less to read than to count
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "-": operator.sub,
    "/": operator.truediv,
    "//": operator.floordiv,
}


def operate(meter: Meter, symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right` for the operators of templates."""
    if symbol == "+":
        return meter.added(left, right)
    if symbol == "*":
        _repeats(meter, left, right)
        return meter.number(left * right)
    if symbol == "%":
        if isinstance(left, str | bytes):
            percent(meter, left, right)
            return meter.made(left % right)
        return left % right
    if symbol == "**":
        if type(left) is int and type(right) is int and right > 0:
            meter.bits(abs(left).bit_length() * right if abs(left) > 1 else 1)
        return meter.number(left**right)
    return meter.number(_OPERATORS[symbol](left, right))


def _repeats(meter: Meter, left: Any, right: Any) -> None:
    if isinstance(left, int) and not isinstance(right, int | float):
        left, right = right, left
    if isinstance(left, str | bytes) and isinstance(right, int):
        meter.spend(len(left) * max(right, 0))
    elif isinstance(left, list | tuple) and isinstance(right, int):
        meter.spend(len(left) * max(right, 0) * limits.COPIED_ENTRY)
    elif isinstance(left, int) and isinstance(right, int):
        meter.bits(left.bit_length() + right.bit_length())


def width(meter: Meter, value: Any) -> None:
    """Refuse a width, a number of entries or a number of decimals that is more than may still be made."""
    if isinstance(value, int):
        meter.fits(value)


def percent(meter: Meter, text: str | bytes, values: Any) -> None:
    """`text % values`: as many fields as it has, each as long as the longest value, and as wide as it says."""
    given = list(values) if isinstance(values, tuple) else list(values.values()) if type(values) is dict else [values]
    meter.read(text)
    meter.read(given)
    longest = max((meter.weigh(value).characters if not _short(value) else 400 for value in given), default=0)
    fields = _PERCENT.findall(text if isinstance(text, str) else text.decode("latin-1"))
    widths = sum(number for field in fields for part in field if (number := _number(part, given)) > 0)
    meter.step(len(fields))
    meter.fits(len(text) + len(fields) * longest * (5 if isinstance(text, Markup) else 1) + widths)


def _short(value: Any) -> bool:
    return isinstance(value, float) or value is None or (isinstance(value, str | int) and len(str(value)[:41]) < 40)


def _number(part: str, given: list[Any]) -> int:
    if part == "*":
        return max((value for value in given if isinstance(value, int)), default=0)
    return int(part[:12]) if part else 0


class FormatMethod:
    """`text.format` or `text.format_map` as a template sees it; called with the meter of the render.

    Its attributes are private: a template could reach any other one.
    """

    def __init__(self, environment: Any, method: Any) -> None:
        self._environment, self._text, self._is_map = environment, method.__self__, method.__name__ == "format_map"

    def __call__(self, meter: Meter, *args: Any, **kwargs: Any) -> str:
        meter.read(self._text)
        values: Mapping[str, Any] = kwargs
        if self._is_map:
            if kwargs or len(args) != 1:
                raise TypeError("format_map() takes exactly one argument")
            values, args = args[0], ()
        if isinstance(self._text, Markup):
            formatter: SandboxedFormatter = _EscapeFormatter(self._environment, meter, escape=self._text.escape)
            return Markup(formatter.vformat(self._text, args, values))
        return _Formatter(self._environment, meter).vformat(self._text, args, values)


class _Formatter(SandboxedFormatter):
    def __init__(self, environment: Any, meter: Meter, **options: Any) -> None:
        super().__init__(environment, **options)
        self.meter = meter

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion is not None:
            self.meter.fits(self.meter.weigh(value).characters)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        self.meter.step(3)
        for digits in _DIGITS.findall(format_spec):
            self.meter.fits(int(digits[:12]))
        if not _short(value):
            self.meter.fits(self.meter.weigh(value).characters)
        return self.meter.made(super().format_field(value, format_spec))


class _EscapeFormatter(_Formatter, SandboxedEscapeFormatter, EscapeFormatter):
    pass


def growth(meter: Meter, text: Any, old: Any, new: Any, count: Any = -1) -> None:
    """`text.replace(old, new, count)`."""
    if not all(isinstance(part, str | bytes) for part in (text, old, new)):
        return
    meter.read(text)
    if len(new) > len(old):
        found = text.count(old)
        found = min(found, count) if isinstance(count, int) and count >= 0 else found
        meter.fits(len(text) + found * (len(new) - len(old)))


def search(meter: Meter, text: Any, part: Any) -> None:
    """Looking for `part` from the end, or for any of its characters: at worst each with each."""
    if isinstance(text, str | bytes) and isinstance(part, str | bytes):
        meter.step(len(text) * len(part) >> 12)


def joining(meter: Meter, separator: Any, values: list[Any]) -> None:
    """`separator.join(values)`."""
    total = max(len(values) - 1, 0) * (len(separator) if isinstance(separator, str | bytes) else 400)
    escapes = any(isinstance(value, Markup) for value in (separator, *values))
    for value in values:
        if isinstance(value, str | bytes):
            total += len(value)
        elif not _short(value):
            total += meter.weigh(value).characters
    meter.fits(total * (5 if escapes else 1))


def splitting(meter: Meter, text: str | bytes, name: str, args: Any, kwargs: Mapping[str, Any]) -> None:
    """`text.split(separator, most)`, `rsplit` and `splitlines`: a list of new texts."""
    separator = args[0] if args else kwargs.get("sep")
    most = args[1:][0] if args[1:] else kwargs.get("maxsplit", -1)
    if name == "splitlines":
        pieces = len(text) + 1
        if len(text) > _SMALL and isinstance(text, str):
            pieces = num_lines(text)
    elif isinstance(separator, str | bytes) and separator:
        pieces = text.count(separator) + 1  # type: ignore[arg-type]
        if name == "rsplit":
            search(meter, text, separator)
    else:
        pieces = len(text) // 2 + 1
    if isinstance(most, int) and most >= 0:
        pieces = min(pieces, most + 1)
    meter.fits(pieces * limits.NEW_ENTRY)


def num_lines(text: str) -> int:
    """How many lines `splitlines` makes of a text, at most."""
    return sum(map(text.count, _LINE_ENDS)) + 1


def method(meter: Meter, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Count a call of a method of Python's own types before it is made; returns the arguments to call it with."""
    for value in args:
        meter.weighed(value)
    if isinstance(owner, str | bytes):
        args = _text_method(meter, owner, name, args, kwargs)
    elif isinstance(owner, list | tuple):
        if name in ("index", "count"):
            meter.weigh(owner)
    elif isinstance(owner, int) or owner is int:
        for value in args:
            if isinstance(value, int | str | bytes):
                meter.fits(value if isinstance(value, int) else len(value) * 1_000)
    if name == "fromkeys" and args:
        args = (meter.weighed(meter.entries(args[0])), *args[1:])
    return args


def _text_method(
    meter: Meter, owner: str | bytes, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    if len(owner) > _SMALL:
        meter.read(owner)
    first = args[0] if args else None
    if name in ("ljust", "rjust", "center", "zfill"):
        width(meter, first)
    elif name in ("split", "rsplit", "splitlines"):
        splitting(meter, owner, name, args, kwargs)
    elif name == "join" and args:
        values = meter.entries(first)
        joining(meter, owner, values)
        args = (values, *args[1:])
    elif name == "replace" and len(args) >= 2:
        growth(meter, owner, args[0], args[1], args[2] if len(args) > 2 else kwargs.get("count", -1))
    elif name in ("strip", "lstrip", "rstrip", "rfind", "rindex", "rpartition"):
        search(meter, owner, first)
    else:
        _rare_method(meter, owner, name, first, args, kwargs)
    return args


def _rare_method(
    meter: Meter, owner: str | bytes, name: str, first: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    if name == "expandtabs":
        size = first if first is not None else kwargs.get("tabsize", 8)
        tab = "\t" if isinstance(owner, str) else b"\t"
        meter.fits(len(owner) + owner.count(tab) * (size if isinstance(size, int) else 8))  # type: ignore[arg-type]
    elif name == "translate" and isinstance(first, dict):
        meter.fits(len(owner) * max((len(value) for value in first.values() if isinstance(value, str)), default=1))
    elif name in ("encode", "decode"):
        codec = first if first is not None else kwargs.get("encoding", "utf-8")
        if str(codec).lower().replace("-", "").replace("_", "") not in _CODECS:
            raise SecurityError(f"a template may not use the codec {str(codec)[:40]!r}")
        meter.fits(4 * len(owner))
    elif name in ("striptags", "unescape", "title", "casefold", "upper", "lower", "swapcase", "hex", "escape"):
        meter.fits(6 * len(owner))
        meter.step(len(owner) >> 6)
        if name in ("striptags", "unescape"):
            web_text(owner)


def web_text(value: Any) -> None:
    """Refuse a long text to a filter that was made for web pages."""
    if isinstance(value, str | bytes) and len(value) > limits.MAX_WEB_TEXT:
        raise LimitReached(
            f"a filter for web pages is given more than {limits.MAX_WEB_TEXT:,} characters",
            "take the filter (urlize, striptags, wordwrap, xmlattr, pprint) out of the template",
        )
