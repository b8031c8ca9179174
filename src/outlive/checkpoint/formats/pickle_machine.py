"""The stack machine of pickles, without what makes it dangerous: it imports nothing and calls only what `pickle_names`
lists. Time and memory are bounded by the length of the pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from outlive.checkpoint.formats.pickle_names import NAMES, Global, Record
from outlive.run.errors import InputError

_SCALARS = (str, int, float, bool, bytes, type(None))
_KEY_LENGTH = 8  # of a tuple that is a key
_NAME = 4096  # bytes of a module's name
MARK = object()


class Reader(Protocol):
    """A stream of bytes, as io.BufferedReader is one."""

    def read(self, size: int, /) -> bytes: ...

    def readline(self, size: int, /) -> bytes: ...

    def tell(self) -> int: ...


class Machine:
    def __init__(self, reader: Reader, length: int, where: str, persistent: Callable[[Any], Any] | None) -> None:
        self.reader, self.length, self.where, self.persistent = reader, length, where, persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, table: Sequence[Callable[[Machine], None] | None]) -> Any:
        read = self.reader.read
        while True:
            code = read(1)
            if code == b".":
                return self.stack.pop()
            if not code:
                self.fail("it ends too early")
            step = table[code[0]]
            if step is None:
                self.fail(f"it holds an operation (0x{code.hex()}) that no pickle of tensors has")
            step(self)

    def fail(self, what: str) -> NoReturn:
        raise InputError(f"the pickle is damaged: {what}", where=self.where, fix="copy it again from where it is whole")

    def take(self, size: int) -> bytes:
        if size > 1 << 16 and size > self.length - self.reader.tell():
            self.fail("a value reaches over its end")
        data = self.reader.read(size)
        if len(data) != size:
            self.fail("it ends too early")
        return data

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def from_mark(self) -> list[Any]:
        """What lies on the stack above the topmost mark; both are taken off."""
        stack = self.stack
        at = len(stack) - 1
        while stack[at] is not MARK:  # IndexError below the bottom is reported as damage
            at -= 1
            if at < 0:
                self.fail("a mark is missing")
        items = stack[at + 1 :]
        del stack[at:]
        return items

    def top(self, kind: type) -> Any:
        value = self.stack[-1]
        if not isinstance(value, kind):
            self.fail(f"items are added to something that is no {kind.__name__}")
        return value

    def named(self, module: Any, name: Any) -> None:
        full = f"{module}.{name}"
        found = NAMES.get(full)
        if found is None:
            raise InputError(
                f"the file asks for {full[:200]}, and only objects of known, harmless kinds are read from pickles",
                where=self.where,
                fix="save the tensors alone, best as safetensors; a file that you do not trust, leave unopened",
            )
        self.stack.append(found)

    def reduce(self) -> None:
        args = self.stack.pop()
        function = self.stack[-1]
        if not isinstance(function, Global) or not isinstance(args, tuple):
            self.fail("something is called that is no function")
        self.stack[-1] = function(args)

    def new(self, number_of_args: int) -> None:
        taken = [self.stack.pop() for _ in range(number_of_args)]
        args, kind = taken[-1], self.stack[-1]
        if not isinstance(kind, Global) or not isinstance(args, tuple):
            self.fail("an object is made of something that is no class")
        self.stack[-1] = kind(args)

    def build(self) -> None:
        state = self.stack.pop()
        value = self.stack[-1]
        if isinstance(value, Record):
            value.state = state
        elif not isinstance(value, dict):  # of a dict these are attributes: torch keeps versions of modules there
            self.fail("a state is given to something that has none")

    def persist(self) -> None:
        if self.persistent is None:
            self.fail("it refers to what is not in it")
        self.stack.append(self.persistent(self.stack.pop()))

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        if len(items) % 2:
            self.fail("a key has no value")
        for place in range(0, len(items), 2):
            target[_key(items[place])] = items[place + 1]

    def extend(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def line(self) -> str:
        data = self.reader.readline(_NAME)
        if not data.endswith(b"\n"):
            self.fail("a name is cut off")
        return data[:-1].decode()


def _key(value: Any) -> Any:
    """A key of a dict, which is hashed: deep tuples would take Python's whole stack, and huge integers all the time."""
    flat = value if type(value) is tuple else (value,)
    if len(flat) > _KEY_LENGTH:
        raise TypeError("a key that is too long")
    for part in flat:
        if not isinstance(part, (*_SCALARS, Record)) or (type(part) is int and not -(1 << 63) <= part < 1 << 64):
            raise TypeError("a key of a kind that none has")
    return value
