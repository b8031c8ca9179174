"""The third way to run a template: as the plain one, but texts carry their origin (`provenance`) along.

The code that runs is the plain render's, with another meter, another look at attributes and calls, and a few filters;
limits are the plain render's. What a template makes of a text without one of these rules is plain text.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from outlive.text.render import guards
from outlive.text.render.meter import _LONG, Meter
from outlive.text.render.provenance import Traced, TracedFloat, TracedInt, join, of_number, segments_of, traced
from outlive.text.render.sandbox import MeteredEnvironment
from outlive.text.render.traced_formats import brace_format, percent_format, traced_json

_BUILTIN = types.BuiltinMethodType
_TEXT_NAMES = frozenset(name for name in dir(str) if name[0] != "_")
# methods of a plain text whose result may hold the texts that they are given
_TAKING = frozenset({"join", "replace"})


class TracedMeter(Meter):
    """Counts as `Meter` does, and keeps origins."""

    __slots__ = ()

    def text(self, value: Any) -> str:
        kind = type(value)
        if kind is str or kind is Traced:
            return value  # type: ignore[no-any-return]
        if kind is TracedInt or kind is TracedFloat:
            return of_number(value, str(value))
        return super().text(value)

    def concat(self, pieces: Iterable[str]) -> str:
        texts = pieces if type(pieces) is list else list(pieces)
        self.spend(sum(map(len, texts)))
        return join(texts)

    def joined(self, *values: Any) -> str:
        return self.concat([self.text(value) for value in values])

    def added(self, *values: Any) -> Any:
        total = 0
        for value in values:
            if type(value) is not str and type(value) is not Traced:
                return super().added(*values)
            total += len(value)
        self.spend(total)
        return join(list(values))

    def _replaced(self, old: Any, alone: bool) -> None:
        if alone and type(old) is Traced:
            self.characters += len(old)
            self.step(len(old) >> 10)
        else:
            super()._replaced(old, alone)

    def weighed(self, value: Any) -> Any:
        if type(value) is Traced:
            if len(value) > _LONG:
                self.step(len(value) >> 8)
            return value
        return super().weighed(value)

    def sliced(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        if type(value) is Traced:
            result = value[start:stop:step]
            self.spend(len(result))
            return result
        return super().sliced(value, start, stop, step)


class TracedEnvironment(MeteredEnvironment):
    """Jinja's sandbox, metered and traced."""

    meter_class = TracedMeter

    def __init__(self, filters: Mapping[str, Callable[..., Any]], **options: Any) -> None:
        super().__init__(filters, **options)
        known: Any = self
        plain = dict(known.filters)
        known.filters |= {name: _traced(plain[name], rule) for name, rule in _RULES.items()}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        result = super().call_binop(context, operator, left, right)
        if operator == "%" and isinstance(left, str) and type(result) is not Traced:
            return percent_format(left, right, result)
        if operator == "*" and type(left) is int and type(right) is Traced:
            return right * left
        return result

    def getattr(self, obj: Any, attribute: str) -> Any:
        if type(obj) is Traced:
            if attribute in _TEXT_NAMES and not attribute.startswith("format"):
                return getattr(obj, attribute)
            return super().getattr(str.__str__(obj), attribute)
        return super().getattr(obj, attribute)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        kind = type(__obj)
        if kind is types.MethodType and type(__obj.__self__) is Traced:
            meter: Meter = __context.meter
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            args = guards.method(meter, __obj.__self__, __obj.__name__, args, kwargs)
            return meter.made(__obj(*args, **kwargs))
        result = super().call(__context, __obj, *args, **kwargs)
        if kind is guards.FormatMethod:
            return brace_format(__obj._text, args, kwargs, result)
        if kind is _BUILTIN and type(result) is str and __obj.__name__ in _TAKING and type(__obj.__self__) is str:
            return _as_traced(__obj, args, result)
        return result


def _as_traced(method: Any, args: tuple[Any, ...], result: str) -> str:
    """`result` of a plain text's method, made once more with origins."""
    given = list(args[0]) if method.__name__ == "join" and args else list(args)
    if not any(type(value) is Traced for value in given):
        return result
    owner = Traced(method.__self__)
    owner._segments = segments_of(method.__self__)
    again = owner.join(given) if method.__name__ == "join" else owner.replace(*given)
    return again if again == result else result


Rule = Callable[[Any, tuple[Any, ...], Mapping[str, Any], Any], Any]


def _traced(function: Callable[..., Any], rule: Rule) -> Callable[..., Any]:
    """A filter whose result is given its origin by a rule, where that makes the same text."""

    @pass_context
    def run(context: Any, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, types.GeneratorType):
            value = list(context.meter.counted(value))
        result = function(context, value, *args, **kwargs)
        if type(result) is Traced or not isinstance(result, str):
            return result
        again = rule(value, args, kwargs, result)
        return again if type(again) is Traced and again == result else result

    return run


def _same_length(value: Any, args: Any, options: Any, result: str) -> Any:
    return traced(result, value._segments) if type(value) is Traced and len(value) == len(result) else result


def _safe(value: Any, args: Any, options: Any, result: str) -> Any:
    # Markup carries no origin. Where its other behaviour matters, the render differs, which whoever traces compares.
    return value


def _join(value: Any, args: Any, options: Any, result: str) -> Any:
    if isinstance(result, Markup) or options.get("attribute") or len(args) > 1:
        return result
    separator = args[0] if args else options.get("d", "")
    owner = Traced(separator)
    owner._segments = segments_of(separator)
    items = list(value)
    return owner.join([item if isinstance(item, str) else _number(item) for item in items])


def _number(value: Any) -> str:
    return of_number(value, str(value)) if isinstance(value, TracedInt | TracedFloat) else str(value)


def _indent(value: Any, args: Any, options: Any, result: str) -> Any:
    if type(value) is not Traced:
        return result
    width, first, blank = [*args, *(None,) * 3][:3]
    width = options.get("width", 4) if width is None else width
    space = width if isinstance(width, str) else " " * width
    first, blank = first or options.get("first", False), blank or options.get("blank", False)
    pieces: list[str] = []
    for place, line in enumerate((value + "\n").splitlines()):
        pieces += ["\n"] if place else []
        pieces += [space] if (place or first) and (blank or line or not place) else []
        pieces.append(line)
    return join(pieces)


def _format(value: Any, args: Any, options: Any, result: str) -> Any:
    return percent_format(value, dict(options) or args, result)


def _json(value: Any, args: Any, options: Any, result: str) -> Any:
    names = ("ensure_ascii", "indent", "separators", "sort_keys")
    return traced_json(value, {**dict(zip(names, args, strict=False)), **options}, result)


def _string(value: Any, args: Any, options: Any, result: str) -> Any:
    return _number(value)


_RULES: dict[str, Rule] = {
    "title": _same_length, "safe": _safe, "join": _join, "indent": _indent, "format": _format, "tojson": _json,
    "string": _string,
}  # fmt: skip
