"""The sandbox in which chat templates run. They come from strangers: no attribute of Python is reachable, no value
that a template is given can be changed by it, and what it does is counted and limited (`limits`).

The settings and helper functions are those that chat templates are written for (transformers 5.24).
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal

import jinja2
import jinja2.ext
from jinja2 import meta, nodes
from jinja2.parser import Parser
from jinja2.utils import Namespace, generate_lorem_ipsum

from outlive.text.render import limits
from outlive.text.render.measure import LimitReached
from outlive.text.render.provenance import marked
from outlive.text.render.sandbox import MeteredEnvironment, render_metered
from outlive.text.render.symbolic import SymbolicEnvironment
from outlive.text.render.tracing import TracedEnvironment

# Unicode noncharacters: no text that means anything holds them; a render that does is not marked at all.
MARK_START, MARK_END = "\ufdd0", "\ufdd1"


class RaisedByTemplate(jinja2.TemplateError):
    """The template itself called raise_exception."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %} … {% endgeneration %}`: the part of a render that the model writes. Prints its body."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it as an instance attribute)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller: Callable[[], str]) -> str:
        return caller()


class _MarkedGeneration(_Generation):
    """The same tag, with a mark on both sides of what it prints."""

    def _written(self, caller: Callable[[], str]) -> str:
        return MARK_START + caller() + MARK_END


class _TracedGeneration(_Generation):
    """The same tag, its bounds kept in what it prints, which has no character more."""

    def _written(self, caller: Callable[[], str]) -> str:
        return marked(caller())


class _Dict:
    """`dict` for templates: it can be called, but its type can't be reached."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """`namespace` for templates, without names that begin with an underscore. A template may name a value `self`."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            _refuse_private(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


def _refuse_private(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace may not hold the private name {name!r}")


@jinja2.pass_context
def _raise_exception(context: Any, message: Any) -> None:
    raise RaisedByTemplate(context.meter.text(message))


def _range(*args: int) -> range:
    """`range` for templates, of a length that a loop can go through."""
    numbers = range(*args)
    try:
        short = len(numbers) <= limits.MAX_RANGE
    except OverflowError:  # more than any list can hold
        short = False
    if not short:
        raise LimitReached(f"it asks for a range of more than {limits.MAX_RANGE:,} numbers", "loop over the messages")
    return numbers


@jinja2.pass_context
def _lipsum(context: Any, n: int = 5, html: bool = True, min: int = 20, max: int = 100) -> str:
    context.meter.step(n * max)
    context.meter.fits(n * max * 20)
    return generate_lorem_ipsum(n, html, min, max)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes <, > and & for web pages; a model is to see the text itself
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment(
    generation: type[_Generation], kind: type[MeteredEnvironment] = MeteredEnvironment
) -> MeteredEnvironment:
    environment = kind(
        {"tojson": _tojson}, trim_blocks=True, lstrip_blocks=True, extensions=[generation, jinja2.ext.loopcontrols]
    )
    environment.globals |= {"raise_exception": _raise_exception, "dict": _Dict(), "namespace": _Namespace}
    environment.globals |= {"range": _range, "lipsum": _lipsum}
    return environment


# plain: as transformers prints. marked: with marks around {% generation %} blocks. traced: texts know their origin.
# symbolic: texts are not known.
Mode = Literal["plain", "marked", "traced", "symbolic"]
_ENVIRONMENTS: dict[Mode, MeteredEnvironment] = {
    "plain": _environment(_Generation),
    "marked": _environment(_MarkedGeneration),
    "traced": _environment(_TracedGeneration, TracedEnvironment),
    "symbolic": _environment(_Generation, SymbolicEnvironment),
}


@lru_cache(maxsize=256)
def compiled(source: str, mode: Mode) -> types.CodeType:
    """The template as code, compiled once per process. Raises jinja2.TemplateSyntaxError and LimitReached."""
    environment = _ENVIRONMENTS[mode]
    if len(source) > limits.MAX_SOURCE:
        raise LimitReached(
            f"it has {len(source):,} characters, the limit is {limits.MAX_SOURCE:,}",
            "name a file that holds a chat template and nothing else",
        )
    try:
        return environment.compile(source)
    except (RecursionError, MemoryError, SyntaxError) as error:
        if isinstance(error, jinja2.TemplateSyntaxError):
            raise
        # no line is known: Jinja's parser and Python's compiler give up somewhere inside
        raise LimitReached("its blocks or brackets lie too deep inside each other", "write it flatter") from None


def instance(source: str, mode: Mode, strftime_now: Callable[[str], str]) -> jinja2.Template:
    """A template that can render, with `strftime_now` as its clock."""
    environment = _ENVIRONMENTS[mode]
    names = {**environment.globals, "strftime_now": _clock(strftime_now)}  # copied for each render: a dict is soonest
    return environment.template_class.from_code(environment, compiled(source, mode), names, None)


def render(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    """What the template makes of the variables. Raises whatever it raises; LimitReached where it was stopped."""
    try:
        return render_metered(template, variables)
    except RecursionError:  # through filters and calls that go deeper than macros do
        raise LimitReached("it calls itself too deep", "look for a macro that calls itself without end") from None


def line_of(error: BaseException) -> int | None:
    """The line of the template at which an error was raised in a render; None where that is not known."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if "__jinja_template__" in trace.tb_frame.f_globals or trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _clock(strftime_now: Callable[[str], str]) -> Callable[[str], str]:
    def clock(format: str) -> str:
        if len(format) > limits.MAX_FORMAT:
            raise LimitReached(f"a date's format has more than {limits.MAX_FORMAT:,} characters", "write a shorter one")
        return strftime_now(format)

    return clock


@lru_cache(maxsize=256)
def facts(source: str) -> tuple[bool, frozenset[str]]:
    """Whether the template has {% generation %} marks, and the names that it reads without setting them."""
    tree = _ENVIRONMENTS["plain"].parse(source)
    calls = tree.find_all(nodes.ExtensionAttribute)
    has_marks = any(call.identifier == _Generation.identifier for call in calls)
    return has_marks, frozenset(meta.find_undeclared_variables(tree))
