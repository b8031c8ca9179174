"""ShareGPT and its relatives: a list of turns with names of their own for role and content, and roles of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive.data.conversation import Chat
from outlive.data.dialects.chat import chat_of
from outlive.data.format import Format, Row
from outlive.data.json_text import parse_json
from outlive.data.messages import KNOWN_ROLES, read_messages
from outlive.data.naming import Naming
from outlive.data.tool_calls import tool_call
from outlive.text.refusal import Refusal

# Names of roles in data of this kind; `function_call` is an assistant's turn whose value is the call as JSON text.
ROLES = {
    **KNOWN_ROLES,
    "bot": "assistant", "chatgpt": "assistant", "model": "assistant", "ai": "assistant", "bing": "assistant",
    "observation": "tool", "tool_response": "tool", "function_response": "tool", "ipython": "tool",
    "system_prompt": "system",
}  # fmt: skip
_CALLS = ("function_call", "tool_call", "tool_calls")
_COLUMNS = ("conversations", "conversation", "dialogue", "dialog")


def column_of(row: Row) -> str | None:
    """The column that holds turns of this kind, or None."""
    for name in _COLUMNS:
        value = row.get(name)
        if isinstance(value, str) and value.lstrip().startswith("["):
            return name
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            return None if {"human", "assistant"} <= value[0].keys() else name
        if isinstance(value, list) and name == _COLUMNS[0]:
            return name
    return None


def turns_as_messages(turns: Any, column: str) -> Any:
    """The turns under OpenAI's names of keys; what is no turn stays as it is, for the checks of messages to name."""
    if not isinstance(turns, list):
        return turns
    return [
        _as_message(turn, (column, place)) if isinstance(turn, Mapping) else turn for place, turn in enumerate(turns)
    ]


def with_roles(naming: Naming | None) -> Naming:
    """The names of a source's rows, with those of this dialect where it gives none."""
    return Naming(naming.fields if naming else {}, {**ROLES, **(naming.roles if naming else {})})


def _as_message(turn: Mapping[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    names = {"from": "role", "value": "content", "text": "content", "user": "role"}
    message: dict[str, Any] = {}
    for key, value in turn.items():
        ours = names.get(key, key)
        message[key if ours in turn and ours != key else ours] = value
    role = message.get("role")
    if role in _CALLS:
        return _as_call(message, path)
    return message


def _as_call(message: dict[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    where = f"{path[0]}[{path[1]}]"
    calls = message.pop("content", None)
    found = calls
    if isinstance(calls, str) and calls.lstrip().startswith("["):
        try:
            found = parse_json(calls)
        except ValueError as error:
            raise Refusal("bad_tool_calls", f"the tool calls of {where} are no JSON: {error}", path) from None
    listed = found if isinstance(found, list) else [found]
    return {**message, "role": "assistant", "tool_calls": [tool_call(call, where, path) for call in listed]}


def _read(row: Row, naming: Naming | None) -> Chat:
    column = column_of(row) or _COLUMNS[0]
    turns = row.get(column)
    if isinstance(turns, str):
        try:
            turns = parse_json(turns)
        except ValueError as error:
            raise Refusal("no_messages", f"'{column}' is text, and no JSON: {error}", (column,)) from None
    return chat_of(read_messages(turns_as_messages(turns, column), column, with_roles(naming)), row)


def _fits(row: Row) -> frozenset[str] | None:
    column = column_of(row)
    return frozenset({column}) if column else None


FORMATS = {
    "sharegpt": Format(
        frozenset({*_COLUMNS, "tools", "functions", "system"}),
        _fits,
        _read,
        "conversations: [{from, value}], or the same with role and content",
    ),
}
