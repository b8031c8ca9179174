"""What is worth a look in rows that can be trained on: nothing here refuses or changes a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from outlive.data.conversation import Chat, Conversation, Group, Messages, Segments, Text, content_text

MAX_EXAMPLES = 5
LINTS = {
    "prompt_in_loss": "every token is a target, what the user says too: the model learns to ask",
    "end_of_turn_untrained": "no end of turn is a target: the model does not learn to stop",
    "double_bos": "the text begins with two begin-of-text tokens: one was added twice",
    "double_eos": "two end-of-text tokens follow each other: one was added twice",
    "served_prompt_differs": "what a server sends for a later turn is not how the whole text begins, in its characters "
    "or its tokens: the row was unrolled, one sample for each trained turn",
    "message_not_shown": "what a system or user turn says is not in the rendered text: the template drops or alters it",
    "tools_not_shown": "the row has tools, and the template does not write them: the model can't know what to call",
    "special_token_in_content": "a message quotes a special token, which becomes that token: text can end a turn or "
    "open another",
    "pad_is_eos": "the tokenizer's padding token is its end of text: tools that mask padding by its id mask the end "
    "of turn too (outlive masks nothing by id)",
    "weight_on_other_role": "a message that is not the assistant's has a weight: it carries no loss whatever it says",
    "truncated_answer": "an answer seems to be cut off: it is long and ends inside a sentence or a code block",
    "empty_answer": "an assistant turn is empty: the model learns to say nothing",
    "empty_turn": "a system, user or tool turn is empty",
    "blank_edges": "an assistant turn begins or ends with white space, which the model learns too",
    "same_role_twice": "two user turns, or two assistant turns, follow each other",
    "no_answer_at_end": "the last turn is not the assistant's: no loss lies on it",
    "template_text": "a message holds text that looks like a chat template's own (<|…|>, [INST], </s>): "
    "was the template applied already?",
    "implicit_prompt": "the row has no prompt of its own: what both answers begin with is taken for it",
    "duplicate": "the same conversation stood in an earlier row",
    "near_duplicate": "an earlier row has nearly the same text",
    "validation_overlap": "the row is in the training data too: its validation loss says nothing of new text",
}
# What fits every row of a tokenizer, whatever it holds, says nothing of rows: it is told once, without a count.
OF_TOKENIZER = frozenset({"pad_is_eos"})
_TEMPLATE_TEXT = re.compile(
    r"<\|[a-z_]{2,24}\|>|\[/?INST\]|\[/?(?:SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS)\]|<<SYS>>|</?s>"
    r"|<(?:start|end)_of_turn>|<｜[^｜]{2,24}｜>|\[(?:gMASK|sop|eop)\]|<(?:extra_id_\d|unused\d+|eos|bos)>"
)  # begins with a character of two, so that all others are passed over at once
_TEMPLATE_HEADING = re.compile(r"^### (?:Instruction|Response):", re.MULTILINE)
_LONG_ANSWER, _LONG_LINE = 200, 40  # characters: shorter answers and lines (titles, items) end as they like
# Letters of scripts whose texts end without a full stop, or with a sign of their own, are no sign of a cut.
_SENTENCE_SCRIPTS = re.compile(r"[A-Za-zÀ-ɏͰ-ԯ,;(\-–—]")


def lint_lines(lints: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each lint of `LintCounts.to_json` that is about rows."""
    return [
        f"{lint['id']}: {lint['count']} (first: row {lint['rows'][0]}): {lint['about']}"
        for lint in lints
        if lint["id"] not in OF_TOKENIZER
    ]


def tokenizer_lines(lints: Iterable[dict[str, Any]]) -> list[str]:
    """One line for each lint that is about the tokenizer, however many sources have it."""
    found = {lint["id"]: lint["about"] for lint in lints if lint["id"] in OF_TOKENIZER}
    return [f"{name}: {about}" for name, about in found.items()]


def lints_of(conversation: Conversation) -> list[str]:
    """The names of the lints that fit a conversation, by itself."""
    return list(_lints(conversation))


def _lints(conversation: Conversation) -> Iterator[str]:
    if isinstance(conversation, Chat):
        yield from _chat_lints(conversation.messages)
        if conversation.weights and any(
            weight is not None and weight != 0 and message["role"] != "assistant"
            for weight, message in zip(conversation.weights, conversation.messages, strict=False)
        ):
            yield "weight_on_other_role"
        if conversation.messages[-1]["role"] != "assistant":
            yield "no_answer_at_end"
    elif isinstance(conversation, Group):
        if conversation.implicit:
            yield "implicit_prompt"
        if isinstance(conversation.prompt, str):
            yield from _text_lints([conversation.prompt])
        else:
            yield from _chat_lints(conversation.prompt)
        for _, own in conversation.branches:
            yield from _text_lints([own]) if isinstance(own, str) else _chat_lints(own)
    elif isinstance(conversation, Text):
        yield from _text_lints([conversation.prompt, conversation.completion])
        if conversation.prompt and is_truncated(conversation.completion):
            yield "truncated_answer"


def _text_lints(texts: Sequence[str]) -> Iterator[str]:
    if any(map(_has_template_text, texts)):
        yield "template_text"


def _chat_lints(messages: Messages) -> list[str]:
    found, before = [], None
    for message in messages:
        role, text = message["role"], message.get("content")
        if not isinstance(text, str):
            text = content_text(message)
        if role == "assistant":
            if not message.get("tool_calls"):
                if (stripped := text.strip()) != text or not text:
                    found.append("blank_edges" if stripped else "empty_answer")
                if is_truncated(text):
                    found.append("truncated_answer")
        elif not text or text.isspace():
            found.append("empty_turn")
        if role == before and role in ("user", "assistant"):
            found.append("same_role_twice")
        if _has_template_text(text):
            found.append("template_text")
        before = role
    return found


def _has_template_text(text: str) -> bool:
    # most texts have neither, which costs a fraction to know
    if ("<" in text or "[" in text) and _TEMPLATE_TEXT.search(text) is not None:
        return True
    return "###" in text and _TEMPLATE_HEADING.search(text) is not None


def is_truncated(answer: str) -> bool:
    """Whether a long answer ends inside a code block, or inside a long line at a letter or a comma."""
    if len(answer) < _LONG_ANSWER:
        return False
    if answer.count("\n```") % 2 != answer.startswith("```"):
        return True
    last = answer[answer.rfind("\n") + 1 :].rstrip()
    return len(last) >= _LONG_LINE and _SENTENCE_SCRIPTS.match(last[-1]) is not None


def all_text(conversation: Conversation) -> str:
    """All that is said in a conversation, by which near duplicates are found."""
    if isinstance(conversation, Chat):
        return "\n".join(content_text(message) for message in conversation.messages)
    if isinstance(conversation, Text):
        return f"{conversation.prompt}\n{conversation.completion}"
    if isinstance(conversation, Segments):
        return "\n".join(text for text, _ in conversation.segments)
    if isinstance(conversation, Group):
        parts = [conversation.prompt, *(own for _, own in conversation.branches)]
        texts = [part if isinstance(part, str) else "\n".join(map(content_text, part)) for part in parts]
        return "\n".join(texts)
    return ""
