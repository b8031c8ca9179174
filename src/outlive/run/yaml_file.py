"""YAML as a run file means it: YAML 1.2 scalars, the line of every key, no duplicate keys; and the way back."""

from __future__ import annotations

import contextlib
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from outlive.run.errors import InputError
from outlive.run.excerpt import Excerpt, Place, both
from outlive.run.files import disk_error
from outlive.run.yaml_origin import Origin, checked, syntax_error

Key = tuple[str | int, ...]
MAX_BYTES = 1 << 20  # of a run file: one that people write has a few thousand
_MAX_VALUES = 20_000  # an alias bomb is a mistake in a file of a hundred lines
_MAX_DEPTH = 50
_ROWS = {".jsonl", ".ndjson", ".parquet", ".arrow", ".csv", ".tsv"}
_TAG = "tag:yaml.org,2002:"
_TOO_MUCH = "write out what aliases repeat; rows and long lists belong in files of their own"


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
    _refuse_rows(Path(path))
    data = _bytes(Path(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else f"byte 0x{data[error.start]:02x}"
        raise InputError(
            f"this file is not UTF-8 text, but holds {what}", where=f"{path}:{line}", fix="save it as UTF-8"
        ) from error
    parsed = parse(text, str(path))
    if parsed.value is None:
        parsed.value = {}
    if not isinstance(parsed.value, dict):
        first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
        raise InputError(
            f"a run file holds keys and values, and this one holds {_kind(parsed.value)}",
            where=Place(f"{path}:1", [Excerpt(str(path), text[: text.find(first)].count("\n") + 1, first, 1)]),
            fix="write it as `key: value` lines; outlive init writes an example",
        )
    return parsed


def _refuse_rows(path: Path) -> None:
    """A file of rows in the place of the run file: what was meant is `--data`."""
    if path.suffix.lower() in _ROWS and path.is_file():
        raise InputError(
            "this is a file of rows, not a run file",
            where=str(path),
            fix=f"name a run file, or train without one: --model MODEL --data {path}",
        )


def parse(text: str, name: str, line_numbers: bool = True, before: str = "") -> Parsed:
    """The value of one YAML document; `name` says in errors where it is from. InputError when it isn't YAML.

    Without `line_numbers` it is a text of the command line, where `before` stands in front of it.
    """
    builder = _Builder(Origin(name, text, line_numbers, before))
    loader = _Loader(checked(text, builder.origin))
    try:
        node = loader.get_single_node()
        value = None if node is None else builder.build(node, (), 0)
    except yaml.MarkedYAMLError as error:
        raise syntax_error(error, builder.origin) from error
    except yaml.YAMLError as error:
        raise InputError(f"this is not YAML: {error}", where=name, fix="outlive init writes an example") from error
    except RecursionError:  # PyYAML gives up before the builder sees how deep it is
        raise InputError("this is too deep for a run file", where=name, fix=_TOO_MUCH) from None
    finally:
        loader.dispose()
    return Parsed(value, builder.places)


def dump(value: Any) -> str:
    """`value` as YAML text that `parse` and any YAML 1.1 or 1.2 reader read back as it is."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


class _Builder:
    """Makes values from YAML nodes and notes where each key stands."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.places: dict[Key, str] = {}
        self.num_values = 0

    def place(self, node: yaml.Node) -> Place:
        return self.origin.of(node)

    def build(self, node: yaml.Node, path: Key, depth: int) -> Any:
        self.num_values += 1
        if self.num_values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise InputError("this is too large or too deep for a run file", where=self.place(node), fix=_TOO_MUCH)
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
            raise InputError(f"a run file knows no {node.tag}", where=self.place(node), fix="leave the tag out")
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
        raise InputError(
            f"{text[:40]!r} can't be read as {kind}", where=self.place(node), fix="leave the tag out, or mend the value"
        )

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
                    where=both(lines[key], self.place(key_node)),
                    fix="keep one",
                )
            lines[key] = self.origin.of(key_node, value_node)
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
        raise InputError(
            "<<: takes a mapping (an alias such as *name)", where=self.place(node), fix="write <<: *name, or drop it"
        )

    def key(self, node: yaml.Node) -> str | int:
        key = self.scalar(node) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise InputError("a key must be text", where=self.place(node), fix="write it as `key: value`")
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


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else f"only {shown(value)}"


def _bytes(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # of a pipe, nobody may ever write to the other end
            kind = "a folder" if path.is_dir() else "a pipe or a device"
            raise InputError(
                f"there is no such run file: this is {kind}",
                where=str(path),
                fix="name a file; outlive init writes one",
            )
        if status.st_size > MAX_BYTES:
            raise InputError(
                f"this file has {status.st_size:,} bytes, and a run file has at most {MAX_BYTES:,}",
                where=str(path),
                fix="name the run file; rows belong in a file of their own, named by data.train",
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        fix = "outlive init writes one" + ("" if path.suffix else "; a setting is written key=value")
        raise InputError("there is no such run file", where=str(path), fix=fix) from error
    except PermissionError as error:
        fix = f"let yourself read it: chmod u+r {path}"
        raise InputError("this run file may not be read by you", where=str(path), fix=fix) from error
    except OSError as error:
        raise disk_error(error, path, "read the run file") from error
