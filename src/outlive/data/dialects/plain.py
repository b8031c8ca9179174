"""Plain text, prompt and completion, and segments of text with labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive.data.conversation import Chat, Conversation, MessageWeight, Segments, Text
from outlive.data.format import Format, Row, has
from outlive.data.messages import read_messages
from outlive.data.naming import Naming
from outlive.data.tool_calls import read_tools
from outlive.data.weights import number
from outlive.text.refusal import Refusal


def read_pair(prompt: Any, completion: Any, row: Row, naming: Naming | None) -> Chat | Text:
    """A prompt and its completion, both text or both messages. The completion alone may carry loss. Raises Refusal."""
    if isinstance(prompt, str) and isinstance(completion, str):
        if not completion:
            raise Refusal("empty_text", "the completion is empty", ("completion",))
        return Text(prompt, completion)
    if not (isinstance(prompt, list) and isinstance(completion, list | Mapping)):
        raise Refusal("wrong_format", "prompt and completion are to be both text or both lists of messages")
    first = read_messages(prompt, "prompt", naming)
    rest = read_messages([completion] if isinstance(completion, Mapping) else completion, "completion", naming)
    weights: tuple[MessageWeight, ...] = ()
    if first.weights or rest.weights:
        weights = (first.weights or (None,) * len(first.messages)) + (rest.weights or (None,) * len(rest.messages))
    return Chat([*first.messages, *rest.messages], read_tools(row), len(first.messages), weights)


def _fits_pair(row: Row) -> frozenset[str] | None:
    fits = isinstance(row.get("prompt"), str | list) and isinstance(row.get("completion"), str | list | Mapping)
    return frozenset({"prompt", "completion"}) if fits else None


def _read_text(row: Row, naming: Naming | None) -> Text:
    if not row["text"]:
        raise Refusal("empty_text", "the text is empty", ("text",))
    return Text("", row["text"])


def _read_segments(row: Row, naming: Naming | None) -> Conversation:
    segments = []
    for place, segment in enumerate(row["segments"]):
        at = ("segments", place)
        text = segment.get("text") if isinstance(segment, Mapping) else None
        if not isinstance(text, str):
            raise Refusal("bad_message", f"segments[{place}] is no object with text and label", at)
        label = segment.get("label", segment.get("weight"))
        if label is None:
            raise Refusal("bad_weight", f"segments[{place}] has no label", at)
        segments.append((text, number(label, f"the label of segments[{place}]", at)))
    if not any(text for text, _ in segments):
        raise Refusal("empty_text", "no segment has any text", ("segments",))
    return Segments(tuple((text, weight) for text, weight in segments if text))


FORMATS = {
    "prompt_completion": Format(
        frozenset({"prompt", "completion", "tools", "functions"}),
        _fits_pair,
        lambda row, naming: read_pair(row["prompt"], row["completion"], row, naming),
        "prompt and completion, both text or both lists of messages",
    ),
    "text": Format(frozenset({"text"}), has("text"), _read_text, "text"),
    "input_output": Format(
        frozenset({"segments"}), has("segments", kind=list), _read_segments, "segments: [{text, label}]"
    ),
}
