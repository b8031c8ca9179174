"""Tool calls and tools in the forms that rows give them → OpenAI's form, which templates know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outlive.data.json_text import parse_json
from outlive.text.refusal import Refusal

Path = tuple[str | int, ...]


def read_tool_calls(
    message: Mapping[str, Any], from_parts: Sequence[Any], where: str, path: Path
) -> list[dict[str, Any]]:
    """The calls of a message: its `tool_calls` (a list, or one as JSON text), its older `function_call`, those among
    its parts. Arguments stay an object or a text, as they were. Raises Refusal(bad_tool_calls)."""
    calls = message.get("tool_calls") or []
    at = (*path, "tool_calls")
    if isinstance(calls, str):
        calls = _json(calls, where, at)
    if not isinstance(calls, list):
        raise Refusal("bad_tool_calls", f"the tool calls of {where} are no list", at)
    found = [(call, (*at, place)) for place, call in enumerate(calls)]
    if message.get("function_call"):
        found.append((message["function_call"], (*path, "function_call")))
    found += [(call, (*path, "content")) for call in from_parts]
    if found and message["role"] != "assistant":
        raise Refusal("bad_tool_calls", f"{where} is of the role {message['role']}, which calls no tools", at)
    return [tool_call(call, where, place) for call, place in found]


def tool_call(call: Any, where: str, path: Path) -> dict[str, Any]:
    """One call as {"type": "function", "function": {"name", "arguments"}}, with its id. Raises Refusal."""
    if isinstance(call, str):
        call = _json(call, where, path)
    if not isinstance(call, Mapping):
        raise Refusal("bad_tool_calls", f"a tool call of {where} is no object", path)
    given = call.get("function")
    function = given if isinstance(given, Mapping) else call
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise Refusal("bad_tool_calls", f"a tool call of {where} has no name", path)
    arguments = function.get("arguments", function.get("parameters"))
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, str | Mapping):
        raise Refusal("bad_tool_calls", f"the arguments of {name} in {where} are neither an object nor text", path)
    rest = {key: value for key, value in call.items() if key in ("id", "index") and value is not None}
    return {**rest, "type": "function", "function": {"name": name, "arguments": arguments}}


def read_tools(row: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The tools of a row: JSON schemas as a list, as JSON text, or one JSON text each; None where there are none.

    `functions`, OpenAI's older form, is read as tools of the type function. Raises Refusal(bad_tools).
    """
    column = "tools" if row.get("tools") else "functions"
    tools = row.get(column)
    if isinstance(tools, str):
        tools = _tools_json(tools, column) if tools.strip() else None
    if not tools:
        return None
    if isinstance(tools, list):
        tools = [_tools_json(tool, column) if isinstance(tool, str) else tool for tool in tools]
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise Refusal("bad_tools", f"'{column}' is to be a list of JSON schemas", (column,))
    return [{"type": "function", "function": tool} if column == "functions" else tool for tool in tools]


def _tools_json(text: str, column: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise Refusal("bad_tools", f"'{column}' is no JSON: {error}", (column,)) from None


def _json(text: str, where: str, path: Path) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise Refusal("bad_tool_calls", f"the tool calls of {where} are no JSON: {error}", path) from None
