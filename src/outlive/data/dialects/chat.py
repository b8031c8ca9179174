"""Chats as lists of messages: OpenAI's form, and lists of pairs."""

from __future__ import annotations

from typing import Any

from outlive.data.conversation import Chat, Messages
from outlive.data.format import Format, Row, has
from outlive.data.messages import ReadMessages, read_messages
from outlive.data.naming import Naming
from outlive.data.tool_calls import read_tools
from outlive.text.refusal import Refusal


def chat_of(found: Any, row: Row, first_trained: int = 0) -> Chat:
    """The chat of messages that were read, with the row's tools and, where it has none, its system text."""
    messages, weights = found
    chat = Chat(messages, read_tools(row), first_trained, weights)
    return chat.with_system(system_of(row))


def unweighted(found: ReadMessages, column: str) -> Messages:
    """The messages of an answer that is judged as a whole. Raises Refusal where one of them has a weight."""
    if any(weight is not None for weight in found.weights):
        raise Refusal(
            "bad_weight", f"messages of '{column}' have weights, and the answer is judged as a whole", (column,)
        )
    return found.messages


def system_of(row: Row) -> str | None:
    """The text of the column `system`, None where it is empty or missing. Raises Refusal where it is no text."""
    system = row.get("system")
    if system is None or system != system:  # NaN: what tables have where nothing is
        return None
    if not isinstance(system, str):
        raise Refusal("content_not_text", f"'system' is {system!r}, not text", ("system",))
    return system if system.strip() else None


def _read(row: Row, naming: Naming | None) -> Chat:
    return chat_of(read_messages(row["messages"], "messages", naming), row)


def _fits(row: Row) -> frozenset[str] | None:
    value = row.get("messages")
    listed = isinstance(value, list) or (isinstance(value, str) and value.lstrip().startswith("["))
    return _MESSAGES if listed else None


def _read_pairs(row: Row, naming: Naming | None) -> Chat:
    messages: Messages = []
    for place, pair in enumerate(row["conversation"]):
        asked, said = (pair.get(key) if isinstance(pair, dict) else None for key in ("human", "assistant"))
        if not isinstance(asked, str) or not isinstance(said, str):
            where = ("conversation", place)
            raise Refusal("bad_message", f"conversation[{place}] is no object with human and assistant", where)
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
        if place == 0 and isinstance(pair.get("system"), str):
            messages.insert(0, {"role": "system", "content": pair["system"]})
    if not messages:
        raise Refusal("no_messages", "'conversation' holds no message", ("conversation",))
    return chat_of((messages, ()), row)


_MESSAGES = frozenset({"messages"})
_ROW_KEYS = frozenset({"tools", "functions", "system"})

FORMATS = {
    "messages": Format(_ROW_KEYS | {"messages"}, _fits, _read, "messages: [{role, content, …}]"),
    "conversation_pairs": Format(
        _ROW_KEYS | {"conversation"},
        has("conversation", kind=list),
        _read_pairs,
        "conversation: [{human, assistant}]",
    ),
}
