"""The fourth way to run a template: on texts that are not known, which it may put out, but not look at.

What it makes then holds for all texts alike. Whatever a template could learn of a text is refused here (`Looked`),
but for questions that are noted with their answer (`Question`): the result holds for the texts that answer alike. A
text that is not known is no `str`: nothing, in Python or below it, can read what it does not have.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from jinja2.runtime import Context, Macro, Undefined
from jinja2.utils import Namespace, _PassArg

from outlive.text.render.filters import COUNTED
from outlive.text.render.meter import Meter
from outlive.text.render.sandbox import MeteredEnvironment

_STRIPS = ("strip", "lstrip", "rstrip")
_ASKED = ("startswith", "endswith")
_TEXT_NAMES = frozenset(dir(str))
_OTHER_KINDS = (type(None), bool, int, float, list, dict, tuple, Undefined)
# Filters whose result is not known, but is the same operation whatever the text is.
_FILTERS = frozenset({"trim", "string", "default", "d"})
# Tests that tell what kind of value it is; those that compare ask the value itself.
_IS_TEXT = frozenset({"string", "iterable", "sequence", "defined"})
_IS_OTHER = frozenset(
    {"mapping", "none", "undefined", "number", "boolean", "integer", "float", "callable", "true", "false"}
)
_COMPARING = frozenset({"eq", "==", "equalto", "ne", "!=", "in"})
_RANDOM = frozenset({"random", "shuffle"})


class Looked(BaseException):
    """The template looks at a text, so its result is not the same for all. No `except Exception` takes it."""


class Slot(NamedTuple):
    """The place of a text that is not known: which of the values, and what was taken off its ends, one by one."""

    value: int
    strips: tuple[tuple[str, str | None], ...] = ()

    def of(self, text: str) -> str:
        """What stands there where the value is `text`."""
        for name, characters in self.strips:
            text = getattr(text, name)(characters)
        return text


class Question(NamedTuple):
    """What a template asked of a text, and was told "no": a method of str, and its argument."""

    slot: Slot
    method: str
    argument: str


class Unknown:
    """A text that is not known, or one with such parts. Each value is taken to have a character that is no blank."""

    __slots__ = ("pieces", "questions")

    def __init__(self, pieces: tuple[str | Slot, ...], questions: set[Question]) -> None:
        self.pieces, self.questions = pieces, questions

    def __add__(self, other: Any) -> Any:
        return self._joined((self, other)) if isinstance(other, str | Unknown) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return self._joined((other, self)) if isinstance(other, str | Unknown) else NotImplemented

    def _joined(self, texts: Iterable[Any]) -> Unknown:
        return Unknown(merged(texts), self.questions)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _OTHER_KINDS) or other == "":
            return False
        return self._ask("__eq__", other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __contains__(self, part: object) -> bool:
        return part == "" if isinstance(part, str) and not part else self._ask("__contains__", part)

    def startswith(self, prefix: Any) -> bool:
        return self._ask("startswith", prefix)

    def endswith(self, suffix: Any) -> bool:
        return self._ask("endswith", suffix)

    def _ask(self, method: str, argument: object) -> bool:
        if type(argument) is not str or not argument or len(self.pieces) != 1:
            self._refuse()
        (slot,) = self.pieces
        assert isinstance(slot, Slot)
        self.questions.add(Question(slot, method, argument))
        return False

    def strip(self, characters: str | None = None) -> Unknown:
        return self._stripped("strip", characters)

    def lstrip(self, characters: str | None = None) -> Unknown:
        return self._stripped("lstrip", characters)

    def rstrip(self, characters: str | None = None) -> Unknown:
        return self._stripped("rstrip", characters)

    def _stripped(self, name: str, characters: str | None) -> Unknown:
        if characters is not None and (type(characters) is not str or not characters.isspace()):
            self._refuse()
        pieces = list(self.pieces)
        if name != "rstrip":
            pieces = _strip_first(pieces, "lstrip", characters)
        if name != "lstrip":
            pieces = _strip_first(pieces[::-1], "rstrip", characters)[::-1]
        return Unknown(tuple(pieces), self.questions)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise Looked

    __hash__ = __len__ = __iter__ = __getitem__ = __str__ = __repr__ = __format__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _refuse
    __int__ = __float__ = __index__ = __bytes__ = __reversed__ = __html__ = __call__ = _refuse


def _strip_first(pieces: list[str | Slot], name: str, characters: str | None) -> list[str | Slot]:
    """Take blanks off one end of a text. A value that stands there has a character at which that ends."""
    while pieces:
        first = pieces[0]
        if isinstance(first, Slot):
            return [first._replace(strips=(*first.strips, (name, characters))), *pieces[1:]]
        if kept := getattr(first, name)(characters):
            return [kept, *pieces[1:]]
        pieces = pieces[1:]
    return pieces


def merged(texts: Iterable[Any]) -> tuple[str | Slot, ...]:
    """Texts, known or not, one after the other."""
    pieces: list[str | Slot] = []
    for text in texts:
        for piece in text.pieces if type(text) is Unknown else (text,):
            if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
                pieces[-1] += piece
            elif piece != "":
                pieces.append(piece)
    return tuple(pieces)


class SymbolicMeter(Meter):
    """Counts as `Meter` does what is known."""

    __slots__ = ()

    def text(self, value: Any) -> Any:
        return value if type(value) is Unknown else super().text(value)

    def concat(self, pieces: Iterable[Any]) -> Any:
        texts = list(pieces)
        return _unknown(texts) or super().concat(texts)

    def joined(self, *values: Any) -> Any:
        return self.concat([self.text(value) for value in values])

    def added(self, *values: Any) -> Any:
        if all(isinstance(value, str | Unknown) for value in values):
            return self.concat(values)
        return super().added(*values)


def _unknown(texts: list[Any]) -> Unknown | None:
    known = next((text for text in texts if type(text) is Unknown), None)
    return None if known is None else Unknown(merged(texts), known.questions)


class SymbolicEnvironment(MeteredEnvironment):
    """Jinja's sandbox, metered, for texts that are not known."""

    meter_class = SymbolicMeter

    def __init__(self, filters: Mapping[str, Callable[..., Any]], **options: Any) -> None:
        super().__init__(filters, **options)
        known: Any = self
        known.filters = {name: _filter(name, function) for name, function in known.filters.items()}
        known.tests = {name: _test(name, function) for name, function in known.tests.items()}

    def getattr(self, obj: Any, attribute: str) -> Any:
        if type(obj) is not Unknown:
            return super().getattr(obj, attribute)
        if attribute in _STRIPS or attribute in _ASKED:
            return getattr(obj, attribute)
        if attribute in _TEXT_NAMES:
            raise Looked
        return self.undefined(obj="", name=attribute)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(__obj, types.MethodType) and type(__obj.__self__) is Unknown:
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return __obj(*args, **kwargs)
        if not isinstance(__obj, Macro) and __obj is not Namespace and _has_unknown((*args, *kwargs.values())):
            is_namespace = isinstance(__obj, type) and issubclass(__obj, Namespace)
            if not is_namespace:
                raise Looked
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator != "+" and _has_unknown((left, right)):
            raise Looked
        return super().call_binop(context, operator, left, right)


def _has_unknown(values: Iterable[Any]) -> bool:
    return any(type(value) is Unknown for value in values)


def _filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    passed = _PassArg.from_obj(function)

    def run(*args: Any, **kwargs: Any) -> Any:
        if name in _RANDOM:
            raise Looked
        value, *options = args[passed is not None :]
        if type(value) is Unknown and name in _FILTERS:
            return value.strip(*options, **kwargs) if name == "trim" else value
        if name != COUNTED and _has_unknown((value, *options, *kwargs.values())):
            raise Looked
        return function(*args, **kwargs)

    return _as_passed(run, passed)


def _test(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    passed = _PassArg.from_obj(function)

    def run(*args: Any, **kwargs: Any) -> Any:
        value, *options = args[passed is not None :]
        if type(value) is Unknown and name in _IS_TEXT:
            return True
        if type(value) is Unknown and name in _IS_OTHER:
            return False
        if name not in _COMPARING and _has_unknown((value, *options, *kwargs.values())):
            raise Looked
        return function(*args, **kwargs)

    return _as_passed(run, passed)


def _as_passed(run: Any, passed: _PassArg | None) -> Callable[..., Any]:
    if passed is not None:
        run.jinja_pass_arg = passed
    return run  # type: ignore[no-any-return]


def slots(pieces: Iterable[str | Slot]) -> Iterator[Slot]:
    """The slots among pieces."""
    return (piece for piece in pieces if isinstance(piece, Slot))
