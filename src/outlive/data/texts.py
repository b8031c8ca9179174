"""A file's rows as text, where no tokenizer is named: formats, roles, and which turns would carry loss."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from outlive.data.conversation import (
    ROLES,
    Chat,
    Conversation,
    Group,
    Messages,
    Segments,
    Text,
    Tokens,
    content_hash,
    trained_turns,
)
from outlive.data.formats import FIELDS
from outlive.data.ledger import Ledger
from outlive.data.lint_counts import LintCounts
from outlive.data.lints import all_text, lints_of
from outlive.data.naming import Naming
from outlive.data.near import sketch_of
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
    lints: list[str] = []  # noqa: RUF012 a default of a tuple, never changed


def read_texts(
    files: Sequence[Path],
    ledger: Ledger,
    loss_on: str = "assistant",
    limit: int | None = None,
    naming: Naming | None = None,
) -> Iterator[TextRow]:
    """The rows of files as conversations. The ledger is filled on the way and balanced at the end.

    What a template or a tokenizer would refuse is not seen here. `limit` is a number of rows.
    """
    if naming is not None:
        naming.check(FIELDS, ROLES)
    lints = LintCounts()
    return each_row(files, ledger, lambda row: _read(row, ledger, loss_on, naming, lints), limit, lints=lints)


def _read(row: Row, ledger: Ledger, loss_on: str, naming: Naming | None, lints: LintCounts) -> TextRow:
    conversation = None
    try:
        conversation = conversation_of(row, ledger, naming=naming)
        trained = trained_places(conversation, loss_on)
    except Refusal as refusal:
        return TextRow(row, conversation, [], refusal)
    sketch = sketch_of(all_text(conversation))
    names = lints.add(row.index, lints_of(conversation), content_hash(conversation), sketch)
    return TextRow(row, conversation, trained, None, names)


def turns(conversation: Conversation) -> list[Turn]:
    """The turns of a conversation; fields beside the text (reasoning, tool calls) follow it as JSON."""
    if isinstance(conversation, Chat):
        return _chat_turns(conversation.rendered_messages())
    if isinstance(conversation, Text):
        if not conversation.prompt:
            return [Turn("text", conversation.completion)]
        return [Turn("prompt", conversation.prompt), Turn("completion", conversation.completion)]
    if isinstance(conversation, Segments):
        return [Turn("segment", text) for text, _ in conversation.segments]
    if isinstance(conversation, Tokens):
        return [Turn("tokens", " ".join(map(str, ids))) for ids, _ in conversation.documents]
    return _group_turns(conversation)


def _chat_turns(messages: Messages) -> list[Turn]:
    return [Turn(message["role"], _message_text(message)) for message in messages]


def _group_turns(group: Group) -> list[Turn]:
    found = _said("prompt", group.prompt)
    for role, own in group.branches:
        found += [Turn(role, turn.text) for turn in _said(role, own)]
    if group.answer is not None:
        answer = group.answer if isinstance(group.answer, str) else json.dumps(group.answer, default=str)
        found.append(Turn("answer", answer))
    return found


def _said(role: str, value: Messages | str) -> list[Turn]:
    return [Turn(role, value)] if isinstance(value, str) else _chat_turns(Chat(value).rendered_messages())


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
    spoken = turns(conversation)
    if loss_on == "all":
        return list(range(len(spoken)))
    if isinstance(conversation, Text):
        return [len(spoken) - 1]
    if isinstance(conversation, Group):
        roles = {role for role, _ in conversation.branches}
        return [place for place, turn in enumerate(spoken) if turn.role in roles]
    pieces = conversation.segments if isinstance(conversation, Segments) else conversation.documents
    places = [
        place for place, (_, weight) in enumerate(pieces) if (any(weight) if isinstance(weight, tuple) else weight)
    ]
    if not places:
        raise Refusal("no_target", "no part of the row carries loss")
    return places
