"""The sandbox in which chat templates run. They come from strangers: no attribute of Python is reachable, and no
value that a template is given can be changed by it.

The settings and helper functions are those that chat templates are written for (transformers 5.24).
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import meta, nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

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


def _raise_exception(message: Any) -> None:
    raise RaisedByTemplate(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes <, > and & for web pages; a model is to see the text itself
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment(generation: type[_Generation]) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {"raise_exception": _raise_exception, "dict": _Dict(), "namespace": _Namespace}
    return environment


_PLAIN, _MARKED = _environment(_Generation), _environment(_MarkedGeneration)


@lru_cache(maxsize=256)
def compiled(source: str, marked: bool) -> types.CodeType:
    """The template as code, compiled once per process. Raises jinja2.TemplateSyntaxError."""
    environment = _MARKED if marked else _PLAIN
    return environment.compile(source)


def instance(source: str, marked: bool, strftime_now: Callable[[str], str]) -> jinja2.Template:
    """A template that can render, with `strftime_now` as its clock."""
    environment = _MARKED if marked else _PLAIN
    names = environment.make_globals({"strftime_now": strftime_now})
    return environment.template_class.from_code(environment, compiled(source, marked), names, None)


@lru_cache(maxsize=256)
def facts(source: str) -> tuple[bool, frozenset[str]]:
    """Whether the template has {% generation %} marks, and the names that it reads without setting them."""
    tree = _PLAIN.parse(source)
    calls = tree.find_all(nodes.ExtensionAttribute)
    marked = any(call.identifier == _Generation.identifier for call in calls)
    return marked, frozenset(meta.find_undeclared_variables(tree))
