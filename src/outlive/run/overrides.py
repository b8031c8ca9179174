"""`key.sub=value` on the command line, and setting a value by its path."""

from __future__ import annotations

from typing import Any

from outlive.run.credentials import without_credentials
from outlive.run.errors import InputError
from outlive.run.excerpt import COMMAND_LINE, Excerpt, Place, said_on_command_line
from outlive.run.names.translate import Given
from outlive.run.yaml_file import Key, dotted, parse, shown


def parse_override(text: str) -> Given:
    """`optimizer.lr=1e-4` as a key and a value read as YAML. InputError when it has no such form."""
    name, equals, value = text.partition("=")
    parts = name.strip().split(".")
    called: str = without_credentials(f"override {text}")
    if not equals or not all(parts):
        column = len(name) + 1 if not equals else max(1, name.find("..") + 2 if ".." in name else 1)
        raise InputError(
            f"{without_credentials(text)!r} is not an override",
            where=Place(called, [Excerpt(COMMAND_LINE, None, text, column)]),
            expected="key=value",
            fix="write the key, = and the value without spaces, for example optimizer.lr=1e-4",
        )
    place = said_on_command_line(called, f"{name}=", value)
    read = parse(value, called, line_numbers=False, before=f"{name}=").value
    return Given(tuple(parts), read, place)


def set_value(raw: dict[str, Any], setting: Given) -> Key:
    """Set one value in nested dicts and lists, making sections that are missing; the path with list indices as numbers.

    InputError for a list entry that does not exist and for a key below a plain value.
    """
    node: Any = raw
    path: Key = ()
    for depth, part in enumerate(setting.key):
        last = depth == len(setting.key) - 1
        index: str | int = part
        if isinstance(node, list):
            index = _index(node, path, setting)
        elif not isinstance(node, dict):
            raise InputError(
                f"{dotted(path)} is {shown(node)}: it has no key {part}",
                where=setting.place,
                fix=f"set {dotted(path)} itself",
            )
        path = (*path, index)
        if last:
            node[index] = setting.value
        elif isinstance(node, dict):
            node[index] = {} if node.get(index) is None else node[index]
        node = node[index]
    return path


def _index(items: list[Any], path: Key, setting: Given) -> int:
    part = str(setting.key[len(path)])
    if part.isascii() and part.isdigit() and int(part[:6]) < len(items):
        return int(part)
    known = f"entries 0 to {len(items) - 1}" if items else "no entries"
    raise InputError(
        f"{dotted(path)} has no entry {part}: it has {known}",
        where=setting.place,
        fix=f"set the whole list: {dotted(path)}=[…]",
    )
