"""The commented run file that `outlive init` writes, made from the models: their descriptions, keys and defaults."""

from __future__ import annotations

import re
import textwrap
import types
import typing
from typing import Any

from pydantic.fields import FieldInfo

from outlive.run.mistakes import section_in, section_of
from outlive.run.names.translate import source_of
from outlive.run.settings.base import NotBuilt, Section
from outlive.run.settings.whole import Run
from outlive.run.yaml_file import dump, shown

_HEAD = """\
An Outlive run file: `outlive train {file}` trains from it.
Every key stands with its default; a key behind a # is off, or depends on other keys: its comment says on what.
Relative paths are relative to the folder that the command is started in. An unknown key is an error.
For completion in an editor: `outlive schema > run.schema.json`.
"""
_WIDTH = 100
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
DATA = "chats.jsonl"
_MAX_CHOICES = 6  # that stand beside a key; of more the documentation has the list


def init_text(model: str = MODEL, data: str = DATA, file: str = "run.yaml") -> str:
    """A run file for `model` and `data` (a file, a folder or a hub data set) that loads to all defaults."""
    values = {"model": model, "data": {"train": [source_of(data)]}}
    lines = [*_comment(_HEAD.format(file=file), keep_lines=True), *_section(Run, values)]
    return "\n".join(lines) + "\n"


def _section(model: type[Section], values: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, field in model.model_fields.items():
        inner = section_of(field.annotation)
        if (model is Run and name == "name") or not _works(field) or (inner and not _has_keys(inner)):
            continue  # a key that does nothing yet is no choice; and the run's name is the file's own
        if model is Run:
            lines.append("")
        lines += _comment(field.description or "")
        if name in values and (items := section_in(field.annotation)) and isinstance(values[name], list):
            lines += [f"{name}:", *_indented(_entries(items, values[name]))]
        elif inner:
            below = [f"{name}:", *_indented(_section(inner, values.get(name, {})))]
            lines += below if field.default is not None or name in values else _off(below)
        else:
            lines += _key(model, name, field, values)
    return lines


def _entries(model: type[Section], values: list[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for value in values:
        own = dump(value).rstrip("\n").split("\n")
        lines += ["- " + own[0], *_indented(own[1:])]
    hidden = {"path", "hub", *values[-1], *(("split", "revision") if "path" in values[-1] else ())}
    for name, field in model.model_fields.items():
        if name not in hidden:
            lines += _indented([*_comment(field.description or ""), *_off(_line(name, field))])
    return lines


def _works(field: FieldInfo) -> bool:
    return not any(isinstance(item, NotBuilt) for item in field.metadata)


def _has_keys(model: type[Section]) -> bool:
    return any(_works(field) for field in model.model_fields.values())


def _key(model: type[Section], name: str, field: FieldInfo, values: dict[str, Any]) -> list[str]:
    if name in values:
        return dump({name: values[name]}).rstrip("\n").split("\n")
    line = _line(name, field)
    return _off(line) if field.default is None or name in model.decided_elsewhere else line


def _line(name: str, field: FieldInfo) -> list[str]:
    value = field.get_default(call_default_factory=True)
    choices = _choices(field.annotation)
    if len(choices) > _MAX_CHOICES:
        choices = [*choices[:_MAX_CHOICES], "…"]
    remark = f"  # {' | '.join(choices)}" if len(choices) > 1 else ""
    return [f"{name}: {shown(list(value) if isinstance(value, tuple) else value)}{remark}"]


def _choices(annotation: Any) -> list[str]:
    if annotation is bool:
        return ["true", "false"]
    if typing.get_origin(annotation) is typing.Literal:
        return [shown(choice) for choice in typing.get_args(annotation)]
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return [choice for option in typing.get_args(annotation) for choice in _choices(option)]
    return []


def _off(lines: list[str]) -> list[str]:
    return ["# " + line if line else "#" for line in lines]


def _indented(lines: list[str]) -> list[str]:
    return ["  " + line for line in lines]


def _comment(text: str, keep_lines: bool = False) -> list[str]:
    if keep_lines:
        return ["# " + line for line in text.rstrip("\n").split("\n")]
    return ["# " + line for line in textwrap.wrap(re.sub(r"\s+", " ", text), _WIDTH, break_on_hyphens=False)]
