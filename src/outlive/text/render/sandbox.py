"""Jinja's sandbox with a meter: the code that a template becomes counts what it does, and asks before it makes more.

Written against jinja2 3.1.6: its code generator and sandbox are extended at the methods that are overridden here.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, operators, optimizeconst
from jinja2.ext import Extension
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from outlive.text.render import guards
from outlive.text.render.filters import COUNTED, metered_filters, metered_tests
from outlive.text.render.meter import Meter

_BUILTIN = types.BuiltinMethodType
_OWNERS = frozenset({str, dict, list, tuple, int, float, bytes})
_PLAIN_VALUES = frozenset({str, int, float, bool, list, dict, tuple})
_OF_DICT = frozenset(dir(dict))
# Attributes that Jinja's sandbox lets through, whatever the value: public, and nothing that changes it.
_SAFE: dict[type, frozenset[str]] = {
    str: frozenset(name for name in dir(str) if name[0] != "_" and not name.startswith("format")),
    LoopContext: frozenset(
        ("index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "changed")
    ),
}
_SCALARS = (str, int, float, bool, type(None))


class MeteredContext(Context):
    """The variables of one render, and its meter."""

    meter: Meter

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        context = super().derived(locals)
        context.meter = self.meter  # type: ignore[attr-defined]
        return context


class _Generator(CodeGenerator):
    """Writes the code of a template: every block counts its expressions, every result that may be large is metered."""

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("meter = context.meter")
        for name in ("step", "text", "concat", "added", "joined", "weighed", "within", "sliced"):
            self.writeline(f"{name} = meter.{name}")

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        body = list(nodes)
        self.writeline(f"step({1 + sum(map(_num_expressions, body))})", body[0] if body else None)
        super().blockvisit(body, frame)

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: CodeGenerator._FinalizeInfo) -> None:
        if frame.eval_ctx.volatile:
            self.write("(meter.escaped if context.eval_ctx.autoescape else text)(")
        elif frame.eval_ctx.autoescape:
            self.write("meter.escaped(")
        else:
            self.write("(" if _is_text(node) else "text(")

    _growing: nodes.Node | None = None  # the right side of `{% set ns.a = ns.a + … %}`, while it is written

    def visit_Assign(self, node: nodes.Assign, frame: Frame) -> None:
        self._growing = node.node if _grows(node) else None
        super().visit_Assign(node, frame)

    @optimizeconst
    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        terms: list[nodes.Expr] = []
        first: nodes.Expr = node
        while isinstance(first, nodes.Add):
            terms.append(first.right)
            first = first.left
        name = "meter.added_on" if node is self._growing else "added"
        self._call(name, [first, *reversed(terms)], frame)

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        name = "meter.joined_on" if node is self._growing else "joined"
        if frame.eval_ctx.volatile:
            name = "(meter.joined_escaped if context.eval_ctx.autoescape else joined)"
        elif frame.eval_ctx.autoescape:
            name = "meter.joined_escaped"
        self._call(name, node.nodes, frame)

    @optimizeconst
    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        # against a constant, text is compared no further than the constant is long
        constant = _is_constant(node.expr) or any(_is_constant(operand.expr) for operand in node.ops)
        plain = constant and len(node.ops) == 1
        seeking = [operand.op in ("in", "notin") for operand in node.ops]
        self.write("(")
        self._compared(node.expr, frame, "" if plain else "weighed")
        for operand, seeks in zip(node.ops, seeking, strict=True):
            self.write(f" {operators[operand.op]} ")
            self._compared(operand.expr, frame, "within" if seeks else "" if plain else "weighed")
        self.write(")")

    def _compared(self, node: nodes.Expr, frame: Frame, guard: str) -> None:
        if guard and not _is_constant(node):
            self._call(guard, [node], frame)
        else:
            self.visit(node, frame)

    @optimizeconst
    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            parts = [part or nodes.Const(None) for part in (node.arg.start, node.arg.stop, node.arg.step)]
            self._call("sliced", [node.node, *parts], frame)
        else:
            self.write("environment.getitem(")
            self.visit(node.node, frame)
            self.write(", ")
            self._compared(node.arg, frame, "weighed")
            self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("{")
        for place, item in enumerate(node.items):
            self.write(", " if place else "")
            self._compared(item.key, frame, "weighed")
            self.write(": ")
            self.visit(item.value, frame)
        self.write("}")

    def _call(self, name: str, arguments: list[nodes.Expr], frame: Frame) -> None:
        self.write(f"{name}(")
        for place, argument in enumerate(arguments):
            self.write(", " if place else "")
            self.visit(argument, frame)
        self.write(")")


def _num_expressions(node: nodes.Node) -> int:
    """How many expressions a statement evaluates, without those in the blocks inside it."""
    total, waiting = 0, [node]
    while waiting:
        item = waiting.pop()
        total += isinstance(item, nodes.Expr)
        blocks = ("body", "else_") if not isinstance(item, nodes.Expr) else ()
        for name, value in item.iter_fields(exclude=blocks):
            del name
            waiting += [
                part for part in (value if isinstance(value, list) else [value]) if isinstance(part, nodes.Node)
            ]
    return total


def _grows(node: nodes.Assign) -> bool:
    """Whether an assignment adds to the attribute of a namespace what it then is."""
    first = node.node.nodes[0] if isinstance(node.node, nodes.Concat) else node.node
    while isinstance(first, nodes.Add):
        first = first.left
    target = node.target
    return (
        isinstance(target, nodes.NSRef)
        and isinstance(first, nodes.Getattr)
        and first.attr == target.attr
        and isinstance(first.node, nodes.Name)
        and first.node.name == target.name
    )


def _is_constant(node: nodes.Expr) -> bool:
    if isinstance(node, nodes.Const):
        return isinstance(node.value, _SCALARS) or (
            isinstance(node.value, list | tuple) and all(isinstance(item, _SCALARS) for item in node.value)
        )
    return isinstance(node, nodes.List | nodes.Tuple) and all(
        isinstance(item, nodes.Const) and isinstance(item.value, _SCALARS) for item in node.items
    )


def _is_text(node: nodes.Expr) -> bool:
    """Whether an expression can have no other value than text."""
    if isinstance(node, nodes.Add):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, nodes.Concat) or (isinstance(node, nodes.Const) and isinstance(node.value, str))


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, metered. Renders by `render_metered` only: a template's own `render` has no meter."""

    code_generator_class = _Generator
    context_class = MeteredContext
    meter_class = Meter
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, filters: Mapping[str, Callable[..., Any]], **options: Any) -> None:
        super().__init__(**options)
        known: Any = self  # jinja2 types its tables as holding functions only
        known.filters = metered_filters({**known.filters, **filters})
        known.tests = metered_tests(known.tests)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        for loop in list(source.find_all(nodes.For)):
            if loop.test is not None:  # entries that the condition leaves out run no block that would count them
                loop.iter = nodes.Filter(loop.iter, COUNTED, [], [], None, None, lineno=loop.lineno)
        return super()._generate(source, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return guards.operate(context.meter, operator, left, right)  # type: ignore[attr-defined]

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if isinstance(value, types.MethodType | _BUILTIN) and value.__name__ in ("format", "format_map"):
            return guards.FormatMethod(self, value) if isinstance(value.__self__, str) else None
        return None

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As Jinja's sandbox, with short ways for what is safe by its type."""
        kind = type(obj)
        if kind is dict:
            if attribute not in _OF_DICT:
                try:
                    return obj[attribute]
                except KeyError:
                    return self.undefined(obj=obj, name=attribute)
        elif attribute in _SAFE.get(kind, ()):
            return getattr(obj, attribute)
        elif isinstance(obj, Namespace) and attribute[:1] != "_":
            value = getattr(obj, attribute, None)
            if type(value) in _PLAIN_VALUES:
                return value
        return super().getattr(obj, attribute)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        meter: Meter = __context.meter
        kind = type(__obj)
        if kind is _BUILTIN or kind is guards.FormatMethod or kind is Macro:
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            if kind is guards.FormatMethod:
                return __obj(meter, *args, **kwargs)
            if kind is Macro:
                meter.enter()
                try:
                    return __obj(__context.eval_ctx, *args, **kwargs)
                finally:
                    meter.depth -= 1
            owner = __obj.__self__
            args = guards.method(meter, owner, __obj.__name__, args, kwargs)
            if type(owner) in _OWNERS:
                return meter.made(__obj(*args, **kwargs))
        elif kind is types.MethodType and not isinstance(__obj.__self__, Extension):
            args = guards.method(meter, __obj.__self__, __obj.__name__, args, kwargs)
        meter.enter()
        try:
            if kind is BlockReference:
                return meter.concat(__obj._stack[__obj._depth](__obj._context))
            return super().call(__context, __obj, *args, **kwargs)
        finally:
            meter.depth -= 1


def render_metered(template: Any, variables: Mapping[str, Any]) -> str:
    """What the template makes of the variables. Raises whatever it raises, LimitReached among that."""
    context = template.new_context(variables)
    context.meter = template.environment.meter_class(variables)
    try:
        return context.meter.concat(template.root_render_func(context))  # type: ignore[no-any-return]
    except Exception:
        template.environment.handle_exception()
        raise  # never reached: the line above raises the same error, with the template's lines
