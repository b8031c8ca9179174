"""Shapes of conversation that templates treat in their own ways, and the end-of-turn texts of the case templates."""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]

# What generation_config.json of the models behind the case templates names; gpt-oss closes history with <|end|>, on
# which it does not stop, so that one is not here.
ENDS = (
    *("</s>", "<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|return|>", "<|call|>", "<sep>"),
    *("<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>", "<turn|>", "<|assistant_end|>", "<|end_of_text|>"),
    *("<|role_end|>", "<|message_sep|>", "<|end_of_msg|>", "[|endofturn|]", "<|calls|>", "</assistant>"),
)
ENDS_OF = {"axolotl__phi_3.jinja": ("<|end|>",), "llamacpp__upstage-Solar-Open-100B.jinja": ("<|end|>", "<|calls|>")}


def user(text: Any) -> Message:
    return {"role": "user", "content": text}


def assistant(text: Any, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


def calling(arguments: Any, content: str | None = "") -> Message:
    function = {"name": "get_weather", "arguments": arguments}
    return assistant(content, tool_calls=[{"id": "abcdef123", "type": "function", "function": function}])


def result(text: str) -> Message:
    return {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef123", "content": text}


SYSTEM = {"role": "system", "content": "You are terse."}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city <now> & here",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "its name"},
                "days": {"type": "integer", "description": "how many"},
            },
            "required": ["city"],
        },
    },
}
THINK = "<think>\nTwo and two make four.\n</think>\n\nIt is 4."

SHAPES: dict[str, tuple[list[Message], list[Message] | None]] = {
    "plain": ([user("Hi there"), assistant("Hello!"), user("Bye"), assistant("See you.")], None),
    "one turn": ([user("Hi there"), assistant("Hello!")], None),
    "system": ([SYSTEM, user("Hi there"), assistant("Hello!"), user("Bye"), assistant("See you.")], None),
    "ends with user": ([user("Hi there"), assistant("Hello!"), user("Bye")], None),
    "reasoning": ([user("2+2?"), assistant("It is 4.", reasoning_content="Two and two make four.")], None),
    "reasoning twice": (
        [
            user("2+2?"),
            assistant("It is 4.", reasoning="Two and two make four."),
            user("3+3?"),
            assistant("It is 6.", thinking="Three and three make six."),
        ],
        None,
    ),
    "think in content": ([user("2+2?"), assistant(THINK), user("Sure?"), assistant(THINK)], None),
    "white space": ([user("  Hi\n"), assistant("\n Hello! \n\n"), user("é\u3000ß"), assistant(" \u2028x\t")], None),
    "tools": (
        [user("Weather?"), calling({"city": "Paris", "days": 3}), result("18 degrees"), assistant("It is 18 degrees.")],
        [WEATHER],
    ),
    "tools as text": (
        [user("Weather?"), calling('{"city": "Paris", "days": 3}', None), result("18"), assistant("It is 18.")],
        [WEATHER],
    ),
    "no content": ([user("Weather?"), calling({"city": "Paris"}, None), result("18"), assistant("18.")], None),
    "parts": ([user([{"type": "text", "text": "Hi there"}]), assistant([{"type": "text", "text": "Hello!"}])], None),
    "assistant first": ([assistant("Welcome."), user("Hi"), assistant("Hello!")], None),
    "empty answer": ([user("Hi"), assistant(""), user("Still?"), assistant("Yes.")], None),
}
