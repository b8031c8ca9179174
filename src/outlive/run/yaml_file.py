"""YAML as a run file means it: YAML 1.2 scalars, the line of every key, no duplicate keys; and the way back."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from outlive.run.errors import InputError
from outlive.run.files import disk_error

Key = tuple[str | int, ...]
_MAX_VALUES = 100_000  # an alias bomb is a mistake in a file of a hundred lines
_MAX_DEPTH = 50
_TAG = "tag:yaml.org,2002:"


@dataclass
class Parsed:
    """A document's value, and where each key stands, as "file:line" by its path."""

    value: Any
    places: dict[Key, str] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    # Filled below. Own tables: the base class's ones are shared by everything that loads YAML in this process.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
# The core schema of YAML 1.2 (yaml.org/spec/1.2.2, 10.3.2): on, off, yes, no and dates stay text, 1e-4 is a number.
_SCALARS: list[tuple[str, re.Pattern[str], str]] = [
    ("null", re.compile(r"~|null|Null|NULL|"), "~nN"),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE"), "tTfF"),
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
    ("merge", re.compile(r"<<"), "<"),
]
for _name, _pattern, _first in _SCALARS:
    _whole = re.compile(f"(?:{_pattern.pattern})\\Z")
    for _character in [*_first, ""] if _name == "null" else _first:
        _Loader.yaml_implicit_resolvers.setdefault(_character, []).append((_TAG + _name, _whole))


class _Dumper(yaml.SafeDumper):
    # Text is quoted where YAML 1.1 or 1.2 would read something else, so that every tool reads our files alike.
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: yaml.SafeDumper.yaml_implicit_resolvers.get(first, []) + _Loader.yaml_implicit_resolvers.get(first, [])
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_Loader.yaml_implicit_resolvers}
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


def read(path: Path | str) -> Parsed:
    """The mapping in a YAML file. A BOM and CRLF are fine. InputError with file:line for whatever is not."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("this file is not UTF-8 text", where=str(path), fix="save it as UTF-8") from error
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError("there is no such run file", where=str(path), fix="outlive init writes one") from error
    except OSError as error:
        raise disk_error(error, path, "read the run file") from error
    parsed = parse(text, str(path))
    if parsed.value is None:
        parsed.value = {}
    if not isinstance(parsed.value, dict):
        raise InputError("a run file holds keys and values", where=f"{path}:1", fix="write it as `key: value` lines")
    return parsed


def parse(text: str, name: str, line_numbers: bool = True) -> Parsed:
    """The value of one YAML document; `name` says in errors where it is from. InputError when it isn't YAML."""
    builder = _Builder(name, line_numbers)
    loader = _Loader(_checked(text, name))
    try:
        node = loader.get_single_node()
        value = None if node is None else builder.build(node, (), 0)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, name, line_numbers) from error
    except yaml.YAMLError as error:
        raise InputError(f"this is not YAML: {error}", where=name) from error
    except RecursionError:  # PyYAML gives up before the builder sees how deep it is
        raise InputError("this is too deep for a run file", where=name) from None
    finally:
        loader.dispose()
    return Parsed(value, builder.places)


def dump(value: Any) -> str:
    """`value` as YAML text that `parse` and any YAML 1.1 or 1.2 reader read back as it is."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


class _Builder:
    """Makes values from YAML nodes and notes where each key stands."""

    def __init__(self, name: str, line_numbers: bool) -> None:
        self.name, self.line_numbers = name, line_numbers
        self.places: dict[Key, str] = {}
        self.num_values = 0

    def place(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}" if self.line_numbers else self.name

    def build(self, node: yaml.Node, path: Key, depth: int) -> Any:
        self.num_values += 1
        if self.num_values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise InputError("this is too large or too deep for a run file", where=self.place(node))
        if node.tag in (_TAG + "map", _TAG + "seq") and not isinstance(node, yaml.ScalarNode):
            return (
                self.mapping(node, path, depth) if isinstance(node, yaml.MappingNode) else self.items(node, path, depth)
            )
        return self.scalar(node)

    def items(self, node: yaml.Node, path: Key, depth: int) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self.places[(*path, index)] = self.place(item)
            items.append(self.build(item, (*path, index), depth + 1))
        return items

    def scalar(self, node: yaml.Node) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if not isinstance(text, str):
            raise InputError(f"a run file knows no {node.tag}", where=self.place(node))
        if kind in ("str", "merge"):
            return text
        if kind == "null":
            return None
        if kind == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        with contextlib.suppress(ValueError):  # an explicit tag on text that is no number, or thousands of digits
            if kind == "int":
                return int(text, 0 if text[:2] in ("0o", "0x") else 10)
            if kind == "float":
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        raise InputError(f"{text[:40]!r} can't be read as {kind}", where=self.place(node))

    def mapping(self, node: yaml.MappingNode, path: Key, depth: int) -> dict[Any, Any]:
        merged: dict[Any, Any] = {}
        own: dict[Any, Any] = {}
        lines: dict[Any, str] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged = {**self.merge(value_node, path, depth), **merged}
                continue
            key = self.key(key_node)
            if key in lines:
                raise InputError(
                    f"{dotted((*path, key))} stands twice",
                    where=f"{lines[key]} and {self.place(key_node)}",
                    fix="keep one",
                )
            lines[key] = self.place(key_node)
            own[key] = self.build(value_node, (*path, key), depth + 1)
        self.places.update({(*path, key): line for key, line in lines.items()})
        return {**merged, **own}

    def merge(self, node: yaml.Node, path: Key, depth: int) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path, depth + 1)
        if isinstance(node, yaml.SequenceNode):
            merged: dict[Any, Any] = {}
            for item in reversed(node.value):  # of several merged mappings, the first one wins
                merged.update(self.merge(item, path, depth + 1))
            return merged
        raise InputError("<<: takes a mapping (an alias such as *name)", where=self.place(node))

    def key(self, node: yaml.Node) -> str | int:
        key = self.scalar(node) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise InputError("a key must be text", where=self.place(node))
        return key


def dotted(path: Key) -> str:
    """A key's path as overrides spell it: data.train.0.path."""
    return ".".join(str(part) for part in path)


def shown(value: Any) -> str:
    """A value on one short line, as YAML writes it."""
    if isinstance(value, str):
        return _shortened(value)
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, allow_unicode=True, width=10**6)
    return _shortened(text.removesuffix("\n...\n").strip())


def _shortened(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _checked(text: str, name: str) -> str:
    # PyYAML's reader refuses such characters with a position in characters; a line is what a user can find.
    if found := re.search("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
        line = text.count("\n", 0, found.start()) + 1
        raise InputError(
            f"a control character ({found.group()!r}) is in the file", where=f"{name}:{line}", fix="remove it"
        )
    return text


def _syntax_error(error: yaml.MarkedYAMLError, text: str, name: str, line_numbers: bool) -> InputError:
    mark = error.problem_mark or error.context_mark
    line = mark.line if mark else 0
    where = f"{name}:{line + 1}" if line_numbers else name
    lines = text.splitlines()
    content = lines[line] if line < len(lines) else ""
    if "\t" in content[: len(content) - len(content.lstrip())] or "'\\t'" in (error.problem or ""):
        return InputError("a tab is used to indent", where=where, fix="indent with spaces: YAML allows no tabs there")
    if error.problem and "found another document" in error.problem:
        return InputError("a run file is one YAML document", where=where, fix="remove the line `---` and what follows")
    return InputError(
        f"this is not YAML: {error.problem}", where=where, fix="a key's form is `key: value`, with a space"
    )
