"""What is worth a look in rows that can be trained on: nothing here refuses or changes a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from outlive.data.conversation import Chat, Conversation, content_hash

LINTS = {
    "empty_answer": "an assistant turn is empty: the model learns to say nothing",
    "blank_edges": "an assistant turn begins or ends with white space, which the model learns too",
    "same_role_twice": "two user turns, or two assistant turns, follow each other",
    "no_answer_at_end": "the last turn is not the assistant's: no loss lies on it",
    "template_text": "a message holds text that looks like a chat template's own (<|…|>, [INST], </s>): "
    "was the template applied already?",
    "duplicate": "the same conversation stood in an earlier row",
}
_TEMPLATE_TEXT = re.compile(r"<\|[a-z_]{2,24}\|>|\[/?INST\]|</?s>|<(?:start|end)_of_turn>|<｜[^｜]{2,24}｜>")


@dataclass
class LintCounts:
    """How many rows each lint fits, and the first row of each, 0-based."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    def add(self, conversation: Conversation, row: int, known_hash: int = 0) -> list[str]:
        """The lints of one conversation, which are counted. `known_hash` spares the work where it is known."""
        names = list(dict.fromkeys(_lints(conversation)))
        key = known_hash or content_hash(conversation)
        if key in self._seen:
            names.append("duplicate")
        self._seen.add(key)
        for name in names:
            self.counts[name] = self.counts.get(name, 0) + 1
            self.first.setdefault(name, row)
        return names

    def lines(self) -> list[str]:
        """One line for each lint that fits any row, the commonest first."""
        order = sorted(self.counts, key=lambda name: -self.counts[name])
        return [f"{name}: {self.counts[name]} (first: row {self.first[name]}): {LINTS[name]}" for name in order]


def _lints(conversation: Conversation) -> Iterator[str]:
    if not isinstance(conversation, Chat):
        if _TEMPLATE_TEXT.search(conversation.completion) or _TEMPLATE_TEXT.search(conversation.prompt):
            yield "template_text"
        return
    before = None
    for message in conversation.messages:
        role, text = message["role"], message.get("content") or ""
        if role == "assistant" and not message.get("tool_calls"):
            if not text.strip():
                yield "empty_answer"
            elif text != text.strip():
                yield "blank_edges"
        if role == before and role in ("user", "assistant"):
            yield "same_role_twice"
        if _TEMPLATE_TEXT.search(text):
            yield "template_text"
        before = role
    if before != "assistant":
        yield "no_answer_at_end"
