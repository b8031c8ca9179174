"""A file's rows as text, where no tokenizer is named: formats, roles, and which turns would carry loss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from outlive.data.conversation import Chat, Conversation, trained_turns
from outlive.data.formats import FORMATS, detect, read_conversation
from outlive.data.ledger import Ledger
from outlive.data.rows import ReadCounts, Row, read_rows
from outlive.text.refusal import Refusal


class Turn(NamedTuple):
    """One turn as a reader sees it. `role` is a message's, or 'prompt', 'completion' or 'text'."""

    role: str
    text: str


class TextRow(NamedTuple):
    """A row that was read: its conversation and the places of the turns that carry loss, or the refusal."""

    row: Row
    conversation: Conversation | None
    trained: list[int]
    refusal: Refusal | None


def read_texts(path: Path, ledger: Ledger, loss_on: str = "assistant", limit: int | None = None) -> Iterator[TextRow]:
    """The rows of a file as conversations. The ledger is filled on the way and balanced at the end.

    What a template or a tokenizer would refuse is not seen here. `limit` is a number of rows.
    """
    read = ReadCounts()
    for row in read_rows(path, read):
        if limit is not None and row.index >= limit:
            break
        ledger.rows += 1
        result = _read(row, ledger, loss_on)
        if result.refusal is not None:
            ledger.refuse(row, result.refusal)
        else:
            ledger.kept += 1
        yield result
    ledger.finish(read)


def _read(row: Row, ledger: Ledger, loss_on: str) -> TextRow:
    conversation = None
    try:
        if row.refusal is not None or row.value is None:
            raise row.refusal or Refusal("bad_json", "the row is empty")
        if not ledger.format:
            ledger.format, ledger.format_reason = detect(row.value)
        conversation = read_conversation(row.value, ledger.format)
        ledger.unused_columns.update(row.value.keys() - FORMATS[ledger.format].keys)
        return TextRow(row, conversation, trained_places(conversation, loss_on), None)
    except Refusal as refusal:
        return TextRow(row, conversation, [], refusal)


def turns(conversation: Conversation) -> list[Turn]:
    """The turns of a conversation; fields beside the text (reasoning, tool calls) follow it as JSON."""
    if not isinstance(conversation, Chat):
        if not conversation.prompt:
            return [Turn("text", conversation.completion)]
        return [Turn("prompt", conversation.prompt), Turn("completion", conversation.completion)]
    return [Turn(message["role"], _message_text(message)) for message in conversation.rendered_messages()]


def _message_text(message: dict[str, object]) -> str:
    rest = {key: value for key, value in message.items() if key not in ("role", "content") and value}
    parts = [str(message["content"])] if message.get("content") else []
    parts += [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in rest.items()]
    return "\n".join(parts)


def trained_places(conversation: Conversation, loss_on: str) -> list[int]:
    """Places, among `turns`, of those that carry loss. Raises Refusal where there are none."""
    if isinstance(conversation, Chat):
        return (
            list(range(len(conversation.messages))) if loss_on == "all" else list(trained_turns(conversation, loss_on))
        )
    spoken = len(turns(conversation))
    return list(range(spoken)) if loss_on == "all" else [spoken - 1]
