"""Jinja's filters and tests, each of them counted before it works and in what it makes."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import pass_context
from jinja2.filters import make_attrgetter, sync_do_join
from jinja2.utils import _PassArg
from markupsafe import Markup

from outlive.text.render import guards, limits
from outlive.text.render.measure import LimitReached
from outlive.text.render.meter import Meter

Args = tuple[Any, ...]
Options = Mapping[str, Any]
Before = Callable[[Meter, Any, Args, Options], Any]  # returns the value that the filter is given


def metered_filters(filters: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The filters, metered. `counted values` is one more, which no template can name: for loops with a condition."""
    found = {name: _metered(function, _BEFORE.get(name, _read)) for name, function in filters.items()}
    found |= {name: filters[name] for name in _FREE}
    return found | {"join": _join, "sum": _sum, COUNTED: _counted}


def metered_tests(tests: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The tests; those that compare or read what they are given are metered."""
    return {name: _metered_test(test) if name in _READING else test for name, test in tests.items()}


_FREE = ("length", "count", "first", "default", "d", "abs", "items")  # they cost the same whatever they are given
COUNTED = "counted values"
_COMPARING = (
    "eq",
    "==",
    "equalto",
    "ne",
    "!=",
    "gt",
    ">",
    "greaterthan",
    "ge",
    ">=",
    "lt",
    "<",
    "lessthan",
    "le",
    "<=",
)
_READING = frozenset({*_COMPARING, "in", "lower", "upper", "divisibleby", "sequence"})


def _metered(function: Callable[..., Any], before: Before) -> Callable[..., Any]:
    passed = _PassArg.from_obj(function)

    @pass_context
    def run(context: Any, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        meter: Meter = context.meter
        meter.step(3)
        value = before(meter, value, args, kwargs)
        if passed is None:
            return meter.made(function(value, *args, **kwargs))
        return meter.made(function(_first(passed, context), value, *args, **kwargs))

    return run


def _first(passed: _PassArg, context: Any) -> Any:
    if passed is _PassArg.context:
        return context
    return context.eval_ctx if passed is _PassArg.eval_context else context.environment


def _metered_test(function: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def run(context: Any, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        meter: Meter = context.meter
        return function(meter.weighed(value), *(meter.within(arg) for arg in args), **kwargs)

    return run


def _option(args: Args, options: Options, place: int, name: str, default: Any = None) -> Any:
    return args[place] if len(args) > place else options.get(name, default)


def _read(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    meter.read(value)
    return value


def _text(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    if type(value) is str:
        meter.read(value)
        return value
    return _weigh(meter, value, args, options)


def _weigh(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    meter.fits(meter.weigh(value).characters)
    return value


def _escaping(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    size = meter.weigh(value)
    meter.fits(12 * (len(value) if isinstance(value, str) else size.characters))
    return value


def _trim(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    guards.search(meter, value, _option(args, options, 0, "chars"))
    return _text(meter, value, args, options)


def _padded(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    guards.width(meter, _option(args, options, 0, "width", 80))
    return _text(meter, value, args, options)


def _indent(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    width = _option(args, options, 0, "width", 4)
    wide = width if isinstance(width, int) else len(str(width))
    lines = guards.num_lines(value) if isinstance(value, str) else 100
    meter.fits(lines * (wide * (5 if isinstance(value, Markup) else 1) + limits.NEW_ENTRY))
    return _text(meter, value, args, options)


def _web(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    guards.web_text(value)
    size = meter.weigh(value)
    longest = max((len(part) for part in (*args, *options.values()) if isinstance(part, str)), default=1)
    meter.fits(size.characters * (longest + 6))
    meter.step(size.values * 50 + size.characters)
    return value


def _formatted(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    guards.percent(meter, meter.text(value), dict(options) or args)
    return value


def _replaced(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    old, new = _option(args, options, 0, "old"), _option(args, options, 1, "new")
    guards.growth(meter, meter.text(value), old, new, _option(args, options, 2, "count", -1))
    return value


def _listed(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    return meter.entries(value) if isinstance(value, str) else _read(meter, value, args, options)


def _batched(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    number = args[0] if args else max((item for item in options.values() if isinstance(item, int)), default=0)
    if isinstance(number, int):
        meter.step(max(number, 0))
    return _listed(meter, value, args, options)


def _sorted(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    _path(meter, value, args, options)
    value = meter.entries(value) if isinstance(value, types.GeneratorType | range) else value
    size = meter.weigh(value)
    meter.step((size.values + (size.characters >> 8)) * size.values.bit_length())
    return value


def _path(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    for part in (*args, *options.values()):
        if isinstance(part, str) and len(part) > limits.MAX_FORMAT:
            raise LimitReached(
                f"an attribute's path has more than {limits.MAX_FORMAT:,} characters", "write a shorter one"
            )
    return meter.counted(value) if isinstance(value, types.GeneratorType) else _read(meter, value, args, options)


def _int(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    if isinstance(value, str | bytes):
        meter.bits(len(value))
    return value


def _round(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    precision = _option(args, options, 0, "precision", 0)
    if isinstance(precision, int):
        meter.bits(4 * abs(precision))
    return value


def _tojson(meter: Meter, value: Any, args: Args, options: Options) -> Any:
    size = meter.weigh(value)
    indent, separators = _option(args, options, 1, "indent"), _option(args, options, 2, "separators")
    wide = indent if isinstance(indent, int) else len(indent) if isinstance(indent, str) else 0
    between = sum(map(len, separators)) if isinstance(separators, list | tuple) else 4
    meter.fits(size.characters + size.values * (max(wide, 0) * size.depth + between))
    return value


_BEFORE: dict[str, Before] = {
    "trim": _trim, "center": _padded, "indent": _indent, "format": _formatted, "replace": _replaced,
    "list": _listed, "batch": _batched, "slice": _batched, "tojson": _tojson, "int": _int, "round": _round,
    "string": _weigh, "escape": _escaping, "e": _escaping, "forceescape": _escaping, "urlencode": _escaping,
    "sort": _sorted, "unique": _sorted, "min": _sorted, "max": _sorted, "dictsort": _sorted, "groupby": _sorted,
    "map": _path, "select": _path, "reject": _path, "selectattr": _path, "rejectattr": _path,
    "urlize": _web, "striptags": _web, "wordwrap": _web, "xmlattr": _web, "pprint": _web, "title": _web,
    "wordcount": _web, "truncate": _web, "attr": _path, "float": _int,
    "safe": _text, "upper": _text, "lower": _text, "capitalize": _text,
}  # fmt: skip


@pass_context
def _join(context: Any, value: Any, d: Any = "", attribute: Any = None) -> Any:
    meter: Meter = context.meter
    _path(meter, value, (attribute,), {})
    values = meter.entries(value)
    if attribute is not None:
        values = [make_attrgetter(context.environment, attribute)(item) for item in values]
    guards.joining(meter, d, values)
    return meter.made(sync_do_join(context.eval_ctx, values, d))


@pass_context
def _sum(context: Any, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
    meter: Meter = context.meter
    _path(meter, iterable, (attribute,), {})
    if isinstance(start, str | bytes):
        raise TypeError("sum() can't sum strings or bytes")
    get = None if attribute is None else make_attrgetter(context.environment, attribute)
    for item in meter.counted(iterable):
        start = meter.added(start, item if get is None else get(item))
    return start


@pass_context
def _counted(context: Any, values: Any) -> Any:
    return context.meter.counted(values)
