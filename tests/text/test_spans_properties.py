"""Promise: whatever is said, thought or called, in whatever order, what is accepted is right for real templates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.text.refusal import Refusal
from outlive.text.written import written
from tests.text import oracle
from tests.text.conversations import SYSTEM, WEATHER, Message, assistant, calling, result, user
from tests.text.test_spans_cases import FOLDER, PATHS, template_of, tokens_of

pytestmark = pytest.mark.skipif(not PATHS, reason=f"no case templates in {FOLDER}")

WORD = st.sampled_from(["alpha", "bravo", "12", "7.5", "é", "我们", "a,b", "it's", "{x}", "<b>", "&", "\\n", "[1]"])
SAID = st.tuples(
    st.sampled_from(["", " ", "\n"]), st.lists(WORD, min_size=1, max_size=4), st.sampled_from(["", ".", "\n"])
)
SAID_TEXT = SAID.map(lambda parts: parts[0] + " ".join(parts[1]) + parts[2])
KINDS = ("plain", "reasoning", "think", "call", "call as text", "empty", "twice")


def turns_of(kind: str, number: int, text: str) -> list[Message]:
    """One question with what follows it; numbered words tell the messages apart."""
    said = f"{text} s{number}s"
    asked = user(f"{text} q{number}q")
    if kind == "reasoning":
        return [asked, assistant(said, reasoning_content=f"{text.strip()} r{number}r")]
    if kind == "think":
        return [asked, assistant(f"<think>\n{text.strip()} r{number}r\n</think>\n\n{said}")]
    if kind.startswith("call"):
        arguments: Any = {"city": f"c{number}c", "days": 1000 + number}
        arguments = f'{{"city": "c{number}c"}}' if kind == "call as text" else arguments
        return [asked, calling(arguments, text), result(f"{text} t{number}t"), assistant(said)]
    if kind == "empty":
        return [asked, assistant("")]
    return [asked, assistant(said), *([assistant(f"{text} a{number}a")] if kind == "twice" else [])]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), SAID_TEXT), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_any_conversation_is_right_or_refused(turns: list[tuple[str, str]], system: bool, question: bool) -> None:
    messages: list[Message] = [SYSTEM] if system else []
    for number, (kind, text) in enumerate(turns):
        messages += turns_of(kind, number, text)
    messages += [user("last q9q")] if question else []
    tools = [WEATHER] if any(kind.startswith("call") for kind, _ in turns) else None
    for path in PATHS[:: 1 + len(PATHS) // 40]:
        try:
            made = written(template_of(path), messages, tools=tools)
        except Refusal:
            continue
        oracle.check(template_of(path), messages, tools, made, list(tokens_of(path)))
        for one in made:
            for span in one.spans:
                check_alone(one.text[span.start : span.end], messages, span.turn)
                for place in one.places(span.turn):
                    value: Any = messages[span.turn]
                    for step in place.path:
                        value = value[step]
                    if isinstance(value, str) and place.length == place.end - place.start:
                        there = one.text[place.start : place.end]
                        assert there.lower() == value[place.offset : place.offset + place.length].lower()


def check_alone(text: str, messages: list[Message], turn: int) -> None:
    """No numbered word of another message stands in a span."""
    for place, message in enumerate(messages):
        if place != turn:
            for word in str(message["content"]).split():
                assert not (word[:1] in "sqrta" and word[1:-1].isdigit()) or word not in text, (word, text)
