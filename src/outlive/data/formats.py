"""The formats of rows that are read, as one table: how a row is recognised, and how it becomes a conversation.

A new format is one more entry of FORMATS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from outlive.data.conversation import Chat, Conversation, Text, check_messages
from outlive.data.json_text import parse_json
from outlive.run.errors import nearest
from outlive.text.refusal import Refusal

_TYPES = {"messages": list, "text": str}


class Format(NamedTuple):
    """`keys`: columns that the format reads; `recognise`: whether a row has its shape; `read`: row → conversation."""

    keys: frozenset[str]
    recognise: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Mapping[str, Any]], Conversation]


def detect(row: Mapping[str, Any]) -> tuple[str, str]:
    """The format of a row and the reason, such as ("messages", "it has the key 'messages'").

    Raises Refusal(unknown_format) where no format of the table fits.
    """
    for name, shape in FORMATS.items():
        if shape.recognise(row):
            seen = " and ".join(f"'{key}'" for key in sorted(shape.keys & row.keys() - {"tools"}))
            return name, f"the first readable row has {seen}"
    raise Refusal("unknown_format", f"the row has the keys {sorted(row)}; {_what_fits(row)}")


def _what_fits(row: Mapping[str, Any]) -> str:
    for key, kind in (("messages", "a list of messages"), ("text", "text"), ("prompt", "text or a list of messages"),
                      ("completion", "text or a list of messages")):  # fmt: skip
        if key in row and not isinstance(row[key], str | list if kind.startswith("text or") else _TYPES[key]):
            return f"'{key}' is to be {kind}"
    shapes = [sorted(shape.keys - {"tools"}) for shape in FORMATS.values()]
    known = f"a row has {', or '.join(' and '.join(names) for names in shapes)}"
    for key in row:
        if (close := nearest(key, [name for names in shapes for name in names])) and close not in row:
            return f"{known}; did you mean {close} by {key!r}?"
    return known


def read_conversation(row: Mapping[str, Any], name: str) -> Conversation:
    """The conversation of a row in format `name`. Raises Refusal with the reason where the row does not fit."""
    shape = FORMATS[name]
    if not shape.recognise(row):
        raise Refusal("wrong_format", f"read as '{name}', the row has the keys {sorted(row)}; {_what_fits(row)}")
    if row.get("chat_template_kwargs"):
        raise Refusal("template_arguments", "chat_template_kwargs of single rows are not supported")
    return shape.read(row)


def _read_messages(row: Mapping[str, Any]) -> Chat:
    return Chat(check_messages(row["messages"], "messages"), _tools(row), first_trained=0)


def _read_prompt_completion(row: Mapping[str, Any]) -> Conversation:
    prompt, completion = row["prompt"], row["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        if not completion:
            raise Refusal("empty_text", "the completion is empty", ("completion",))
        return Text(prompt, completion)
    if not (isinstance(prompt, list) and isinstance(completion, list)):
        raise Refusal("wrong_format", "prompt and completion are to be both text or both lists of messages")
    first = check_messages(prompt, "prompt")
    rest = check_messages(completion, "completion")
    return Chat([*first, *rest], _tools(row), first_trained=len(first))


def _read_text(row: Mapping[str, Any]) -> Text:
    if not row["text"]:
        raise Refusal("empty_text", "the text is empty", ("text",))
    return Text("", row["text"])


def _tools(row: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    tools = row.get("tools")
    if isinstance(tools, str) and tools.strip():
        try:
            tools = parse_json(tools)
        except ValueError as error:
            raise Refusal("bad_tools", f"'tools' is no JSON: {error}", ("tools",)) from None
    if not tools:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise Refusal("bad_tools", "'tools' is to be a list of JSON schemas", ("tools",))
    return tools


FORMATS: dict[str, Format] = {
    "messages": Format(
        frozenset({"messages", "tools"}),
        lambda row: isinstance(row.get("messages"), list),
        _read_messages,
    ),
    "prompt_completion": Format(
        frozenset({"prompt", "completion", "tools"}),
        lambda row: isinstance(row.get("prompt"), str | list) and isinstance(row.get("completion"), str | list),
        _read_prompt_completion,
    ),
    "text": Format(frozenset({"text"}), lambda row: isinstance(row.get("text"), str), _read_text),
}
