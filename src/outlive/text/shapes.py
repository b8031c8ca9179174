"""Made-up conversations of the shapes that templates treat in their own ways: what a certificate looks at."""

from __future__ import annotations

from typing import NamedTuple

from outlive.text.learned import TOOL
from outlive.text.template import Message


class Shape(NamedTuple):
    """A conversation, and the tools that it is given."""

    messages: list[Message]
    tools: list[Message] | None = None


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _assistant(text: str, **more: object) -> Message:
    return {"role": "assistant", "content": text, **more}


def _with_tool(arguments: object) -> Shape:
    call = {"id": "call12345", "type": "function", "function": {"name": "find_bird", "arguments": arguments}}
    result = {"role": "tool", "name": "find_bird", "tool_call_id": "call12345", "content": "a wren"}
    asked = _user("Which bird nests there?")
    return Shape([asked, _assistant("", tool_calls=[call]), result, _assistant("It is a wren.")], [TOOL])


_THOUGHT = "<think>\nSix times seven.\n</think>\n\nForty-two."

SHAPES: dict[str, Shape] = {
    "plain": Shape([_user("Name a gas"), _assistant("Argon."), _user("Another"), _assistant("Neon, too.")]),
    "system": Shape(
        [
            {"role": "system", "content": "You are laconic."},
            _user("Name a gas"),
            _assistant("Argon."),
            _user("Another"),
            _assistant("Neon, too."),
        ]
    ),
    "reasoning": Shape([_user("6 * 7?"), _assistant("Forty-two.", reasoning_content="Six times seven.")]),
    "think in content": Shape([_user("6 * 7?"), _assistant(_THOUGHT), _user("Sure?"), _assistant(_THOUGHT)]),
    "tools": _with_tool({"place": "Oslo", "days": 3}),
    "tools, arguments as text": _with_tool('{"place": "Oslo", "days": 3}'),
    "two answers in a row": Shape(
        [_user("Name a gas"), _assistant("Argon."), _assistant("More?"), _user("No"), _assistant("Very well.")]
    ),
    "ends with a question": Shape([_user("Name a gas"), _assistant("Argon."), _user("Another")]),
}
