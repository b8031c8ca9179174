"""The data of one assistant message: what of it has to stand in a render, and a stand-in for each piece of it.

A stand-in is an invented word or number that is rendered in place of the piece. Where it comes out shows what the
template does with that piece, which a search for the piece itself can't: "think" also stands in "<think>".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from outlive.text.template import REASONING_KEYS, Message

_CALL_KEYS = ("name", "arguments")


class Field(NamedTuple):
    """One piece of data: its path in the message, its value, and how its stand-in looks in a render."""

    name: str
    value: str | int | float
    stand_in: str

    @property
    def is_reasoning(self) -> bool:
        return self.name in REASONING_KEYS

    @property
    def is_json_text(self) -> bool:
        """Whether these are the arguments of a tool call, given as JSON text instead of an object."""
        text = self.value.strip() if isinstance(self.value, str) and self.name.endswith(".arguments") else ""
        return text.startswith("{") and text.endswith("}")

    def forms(self) -> list[str]:
        """The ways in which the value may be printed (plain, as JSON), without white space."""
        if not isinstance(self.value, str):
            return list(dict.fromkeys([json.dumps(self.value), str(self.value)]))
        text = self.value.strip()
        plain, escaped = squash(text), squash(json.dumps(text, ensure_ascii=False)[1:-1])
        return list(dict.fromkeys([plain, escaped, squash(json.dumps(text)[1:-1])]))

    def stands_in(self, squashed: str, past: int = 0) -> bool:
        """Whether a text without white space holds the value, ending at character `past` or later."""
        return any(form in squashed and squashed.rfind(form) + len(form) >= past for form in self.forms())

    def ends(self, squashed: str) -> bool:
        return any(squashed.endswith(form) for form in self.forms())


def squash(text: str) -> str:
    """The text without white space: templates may trim and indent data, but not drop a visible character."""
    return "".join(text.split())


def nonce_for(text: str) -> int:
    """A number of 8 digits that doesn't stand in `text`."""
    number = 73519137
    while str(number) in text:
        number += 1
    return number


def substituted(message: Message, nonce: int, only: int | None = None) -> tuple[Message, list[Field]]:
    """The message with stand-ins for all its data, or for the piece numbered `only`; and the pieces.

    A message without any visible data gives its (empty) content as the one piece.
    """
    walk = _Walk(nonce, only)
    changed = walk.message(message)
    if not walk.fields and isinstance(message.get("content"), str):
        field = walk.field("content", message["content"])
        changed = message | {"content": field.stand_in}
    return changed, walk.fields


class _Walk:
    def __init__(self, nonce: int, only: int | None) -> None:
        self.nonce, self.only = nonce, only
        self.fields: list[Field] = []

    def message(self, message: Message) -> Message:
        changed = dict(message)
        content = message.get("content")
        if isinstance(content, str):
            changed["content"] = self.value("content", content)
        elif isinstance(content, list):
            changed["content"] = [self.part(f"content[{place}]", part) for place, part in enumerate(content)]
        reasoning = next((key for key in REASONING_KEYS if key in message), None)
        if reasoning is not None:
            value = self.value(reasoning, message[reasoning])
            changed |= {key: value for key in REASONING_KEYS if key in message}
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            changed["tool_calls"] = [self.call(f"tool_calls[{place}]", call) for place, call in enumerate(calls)]
        if isinstance(message.get("function_call"), dict):
            changed["function_call"] = self.function("function_call", message["function_call"])
        return changed

    def part(self, name: str, part: Any) -> Any:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            return part | {"text": self.value(f"{name}.text", part["text"])}
        return self.value(name, part) if isinstance(part, str) else part

    def call(self, name: str, call: Any) -> Any:
        if isinstance(call, dict) and isinstance(call.get("function"), dict):
            return call | {"function": self.function(f"{name}.function", call["function"])}
        return self.function(name, call) if isinstance(call, dict) else call

    def function(self, name: str, function: dict[str, Any]) -> dict[str, Any]:
        return function | {key: self.value(f"{name}.{key}", function[key]) for key in _CALL_KEYS if key in function}

    def value(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self.value(f"{name}.{key}", item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(f"{name}[{place}]", item) for place, item in enumerate(value)]
        if isinstance(value, bool) or value is None or (isinstance(value, str) and not value.strip()):
            return value  # nothing visible, or a word that has too few other forms to stand in for
        number = len(self.fields)
        field = self.field(name, value)
        if self.only not in (None, number):
            return value
        return field.stand_in if isinstance(value, str) else type(value)(field.stand_in)

    def field(self, name: str, value: str | int | float) -> Field:
        digits = f"{self.nonce}{len(self.fields):04d}"
        self.fields.append(Field(name, value, f"vq{digits}zk" if isinstance(value, str) else digits))
        return self.fields[-1]


def python_notation(message: Message, text: str) -> str | None:
    """The path of a list or an object of the message that `text` holds in Python's notation, or None."""
    values = [("content", message.get("content"))]
    for place, call in enumerate(message.get("tool_calls") or []):
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict):
            values.append((f"tool_calls[{place}].arguments", function.get("arguments")))
    for name, value in values:
        if value and isinstance(value, list | dict) and str(value) != json.dumps(value) and str(value) in text:
            return name
    return None
