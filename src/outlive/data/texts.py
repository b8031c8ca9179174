"""A file's rows as text, where no tokenizer is named: formats, roles, and which turns would carry loss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from outlive.data.conversation import Chat, Conversation, trained_turns
from outlive.data.ledger import Ledger
from outlive.data.reading import conversation_of, each_row
from outlive.data.rows import Row
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
    return each_row(path, ledger, lambda row: _read(row, ledger, loss_on), limit)


def _read(row: Row, ledger: Ledger, loss_on: str) -> TextRow:
    conversation = None
    try:
        conversation = conversation_of(row, ledger)
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
