"""Read a pickle: what each of its operations does to the machine.

Opcodes: https://github.com/python/cpython/blob/main/Lib/pickletools.py. Known are those of protocols 2 to 5 that
Python's and torch's picklers emit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from outlive.checkpoint.formats.pickle_machine import MARK, Machine, Reader
from outlive.checkpoint.formats.pickle_tree import fault
from outlive.run.errors import OutliveError

_Step = Callable[[Machine], None]
_TABLE: list[_Step | None] = [None] * 256


def _step(code: bytes) -> Callable[[_Step], _Step]:
    def add(step: _Step) -> _Step:
        _TABLE[code[0]] = step
        return step

    return add


def _pushes(code: bytes, make: Callable[[Machine], Any]) -> None:
    _TABLE[code[0]] = lambda machine: machine.stack.append(make(machine))


def _signed(machine: Machine, size: int) -> int:
    return int.from_bytes(machine.take(size), "little", signed=True)


def _long(machine: Machine) -> int:
    return _signed(machine, machine.number(1))


def _text(size: int) -> Callable[[Machine], str]:
    return lambda machine: machine.take(machine.number(size)).decode("utf-8", "surrogatepass")


def _bytes(size: int) -> Callable[[Machine], bytes]:
    return lambda machine: machine.take(machine.number(size))


def _old_text(size: int) -> Callable[[Machine], str]:
    """Text of Python 2, whose encoding nobody knows."""
    return lambda machine: machine.take(machine.number(size)).decode("utf-8", "backslashreplace")


def _last(number: int) -> Callable[[Machine], tuple[Any, ...]]:
    return lambda machine: tuple([machine.stack.pop() for _ in range(number)][::-1])


def _got(size: int) -> Callable[[Machine], Any]:
    return lambda machine: machine.memo[machine.number(size)]


for _code, _make in {
    b"N": lambda machine: None,
    b"\x88": lambda machine: True,
    b"\x89": lambda machine: False,
    b"K": lambda machine: machine.number(1),
    b"M": lambda machine: machine.number(2),
    b"J": lambda machine: _signed(machine, 4),
    b"\x8a": _long,
    b"G": lambda machine: struct.unpack(">d", machine.take(8))[0],
    b"U": _old_text(1),
    b"T": _old_text(4),
    b"\x8c": _text(1),
    b"X": _text(4),
    b"\x8d": _text(8),
    b"C": _bytes(1),
    b"B": _bytes(4),
    b"\x8e": _bytes(8),
    b"\x96": _bytes(8),
    b"]": lambda machine: [],
    b"}": lambda machine: {},
    b")": lambda machine: (),
    b"\x8f": lambda machine: [],  # a set: its items may be of any kind here
    b"\x85": _last(1),
    b"\x86": _last(2),
    b"\x87": _last(3),
    b"t": lambda machine: tuple(machine.from_mark()),
    b"\x91": lambda machine: tuple(machine.from_mark()),
    b"l": lambda machine: machine.from_mark(),
    b"h": _got(1),
    b"j": _got(4),
    b"(": lambda machine: MARK,
    b"2": lambda machine: machine.stack[-1],
}.items():
    _pushes(_code, _make)


@_step(b"d")
def _dict(machine: Machine) -> None:
    items = machine.from_mark()
    machine.stack.append({})
    machine.set_items(items)


@_step(b"s")
def _set_item(machine: Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set_items([key, value])


@_step(b"u")
def _set_items(machine: Machine) -> None:
    machine.set_items(machine.from_mark())


@_step(b"a")
def _append(machine: Machine) -> None:
    machine.extend([machine.stack.pop()])


@_step(b"e")
@_step(b"\x90")
def _extend(machine: Machine) -> None:
    machine.extend(machine.from_mark())


@_step(b"c")
def _global(machine: Machine) -> None:
    machine.named(machine.line(), machine.line())


@_step(b"\x93")
def _stack_global(machine: Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        machine.fail("a name is no text")
    machine.named(module, name)


@_step(b"q")
def _put(machine: Machine) -> None:
    machine.memo[machine.number(1)] = machine.stack[-1]


@_step(b"r")
def _long_put(machine: Machine) -> None:
    machine.memo[machine.number(4)] = machine.stack[-1]


@_step(b"\x94")
def _memoize(machine: Machine) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


@_step(b"\x80")
def _protocol(machine: Machine) -> None:
    if machine.number(1) > 5:
        machine.fail("it is of a protocol that is not known")


@_step(b"\x95")
def _frame(machine: Machine) -> None:
    machine.take(8)


@_step(b"0")
def _pop(machine: Machine) -> None:
    machine.stack.pop()


@_step(b"1")
def _pop_mark(machine: Machine) -> None:
    machine.from_mark()


_TABLE[ord("R")] = Machine.reduce
_TABLE[0x81] = lambda machine: machine.new(1)
_TABLE[0x92] = lambda machine: machine.new(2)
_TABLE[ord("b")] = Machine.build
_TABLE[ord("Q")] = Machine.persist


def unpickle(reader: Reader, length: int, where: str, persistent: Callable[[Any], Any] | None = None) -> Any:
    """The value of the pickle that the reader is at; the stream ends at `length`.

    `persistent` makes values of persistent ids, which is how torch refers to storages. Objects become Records. Raises
    InputError, whatever the bytes are; `where` is the file.
    """
    machine = Machine(reader, length, where, persistent)
    try:
        begin = reader.tell()
        value = machine.run(_TABLE)
        if (what := fault(value, reader.tell() - begin)) is not None:
            machine.fail(what)
        return value
    except OutliveError:
        raise
    except Exception as error:
        # Whatever the machine stumbles on was in the bytes; it has no other input.
        machine.fail(f"{type(error).__name__} at byte {reader.tell():,}: {str(error)[:200]}")
