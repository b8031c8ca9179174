"""Promise: for every template of the cases and every shape, spans are right in all that can be checked, or refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from outlive.text.fields import squash
from outlive.text.prompt import served_prompt
from outlive.text.spans import REASONS, Refusal, Span, spans
from outlive.text.template import ChatTemplate
from tests.fixtures import cases
from tests.text.conversations import ENDS, ENDS_OF, SHAPES, Message, assistant, user

FOLDER = cases() / "templates"
PATHS = sorted(FOLDER.glob("*.jinja"))
pytestmark = pytest.mark.skipif(not PATHS, reason=f"no case templates in {FOLDER}")


def template_of(path: Path) -> ChatTemplate:
    ends = ENDS_OF.get(path.name, ENDS)
    return ChatTemplate(path.read_text("utf-8"), {"bos_token": "<s>", "eos_token": "</s>"}, ends, "2025-01-31")


def words_of(message: Message) -> list[str]:
    """What of a message has to stand in its span, whatever the template: its text and its tool calls' words."""
    content = message.get("content") or ""
    words = [content] if isinstance(content, str) else [part["text"] for part in content]
    words += ["get_weather", "Paris"] if message.get("tool_calls") else []
    words += [message[key] for key in ("reasoning_content", "reasoning", "thinking") if key in message]
    return words


def check(template: ChatTemplate, messages: list[Message], tools: list[Message] | None, found: list[Span]) -> None:
    full = template.render(messages, tools=tools)
    assert [span.turn for span in found] == [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    done = 0
    for span in found:
        text = full[span.start : span.end]
        assert done <= span.start < span.end
        done = span.end
        if span.turn:
            prompt = served_prompt(template, messages, tools, turn=span.turn)
            assert full.startswith(prompt)
            assert span.start >= len(prompt)
            assert span.start == len(prompt) or span.how == "generation"
        closing = [end for end in template.end_of_turn if text.endswith(end)]
        assert closing, text
        assert sum(text.count(end) for end in template.end_of_turn) == 1, text
        for word in words_of(messages[span.turn]):
            # a prompt that ends in <think> has the first word of the content
            inside = squash(word).removeprefix("<think>") in squash(text)
            assert inside, (word, text)


def tally(shape: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    messages, tools = SHAPES[shape]
    for path in PATHS:
        template = template_of(path)
        try:
            found = spans(template, messages, tools=tools)
        except Refusal as refusal:
            counts[refusal.reason] += 1
        else:
            check(template, messages, tools, found)
            counts["spans"] += 1
    print(f"{shape}: {dict(counts)}")
    assert set(counts) <= {"spans", *REASONS}
    return counts


@pytest.mark.parametrize("shape", SHAPES)
def test_spans_are_verified_or_refused_by_name(shape: str) -> None:
    assert sum(tally(shape).values()) == len(PATHS)


def test_most_templates_give_spans_on_plain_chats() -> None:
    assert tally("plain")["spans"] >= 55
    assert tally("one turn")["spans"] >= 62
    assert tally("tools")["spans"] >= 28


def test_one_turn_at_a_time_more_templates_do() -> None:
    """Unrolled, one sample per trained turn: what rewrites its history only is exact then."""
    messages, _ = SHAPES["plain"]
    whole = unrolled = 0
    for path in PATHS:
        template = template_of(path)
        try:
            spans(template, messages)
            whole += 1
        except Refusal as refusal:
            if refusal.reason != "history_rewritten":
                continue
        try:
            check(template, messages[:2], None, spans(template, messages[:2]))
            unrolled += bool(spans(template, messages, turns=[3]))
        except Refusal:
            continue
    assert unrolled >= whole + 4


def test_no_word_of_another_message_is_inside() -> None:
    messages = [user("aardvark"), assistant("bassoon"), user("cutlass"), assistant("dirigible"), user("ellipse")]
    checked = 0
    for path in PATHS:
        template = template_of(path)
        try:
            found = spans(template, messages)
        except Refusal:
            continue
        full = template.render(messages)
        for span in found:
            words = [message["content"] for message in messages]
            held = [word for word in words if word in full[span.start : span.end]]
            assert held == [words[span.turn]], (path.name, full[span.start : span.end])
            checked += 1
    assert checked > 100
