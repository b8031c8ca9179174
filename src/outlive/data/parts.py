"""The content of a message as parts, as OpenAI, Anthropic and Hugging Face write it, taken apart by kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from outlive.text.refusal import Refusal

_TEXT = ("text", "input_text", "output_text")
_THOUGHT = ("thinking", "reasoning")
_CALLS = ("tool_use", "tool_call")
_IMAGES = frozenset(
    {"image", "image_url", "input_image", "video", "video_url", "audio", "audio_url", "input_audio", "file", "document"}
)
# Columns of a row that hold what is no text.
IMAGE_COLUMNS = ("images", "image", "videos", "video", "audios", "audio")
Path = tuple[str | int, ...]


class Parts(NamedTuple):
    """`texts`: text parts ({"type": "text", "text": …}), None where there is no content. `reasoning`: thinking parts,
    joined. `calls`, `results`: tool calls and results among the parts. `flags`: each text part's own keys."""

    texts: list[dict[str, Any]] | None
    reasoning: str | None = None
    calls: tuple[Any, ...] = ()
    results: tuple[dict[str, Any], ...] = ()
    flags: tuple[Mapping[str, Any], ...] = ()


def read_parts(content: Any, where: str, path: Path) -> Parts:
    """The parts of a message's content, which is a text, a list of parts, or None. Raises Refusal."""
    if content is None:
        return Parts(None)
    if isinstance(content, str):
        return Parts([_text(content)])
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        raise Refusal("content_not_text", f"the content of {where} is a {type(content).__name__}, not text", path)
    sorted_parts = _Sorted(where, path)
    for place, part in enumerate(content):
        sorted_parts.add(place, {"type": "text", "text": part} if isinstance(part, str) else part)
    return sorted_parts.done()


class _Sorted:
    """Parts by kind, as they come."""

    def __init__(self, where: str, path: Path) -> None:
        self.where, self.path = where, path
        self.texts: list[dict[str, Any]] = []
        self.flags: list[Mapping[str, Any]] = []
        self.thoughts: list[str] = []
        self.calls: list[Any] = []
        self.results: list[dict[str, Any]] = []

    def add(self, place: int, part: Any) -> None:
        at = (*self.path, place)
        if not isinstance(part, Mapping):
            raise Refusal("content_not_text", f"part {place} of the content of {self.where} is no object", at)
        kind = part.get("type", "text")
        if isinstance(kind, str) and kind in _IMAGES:
            raise Refusal("images", f"part {place} of the content of {self.where} is of type {kind!r}", at)
        if kind in _TEXT:
            self.texts.append(_text(self._string(part, ("text", "content", "value"), at)))
            self.flags.append(part)
        elif kind in _THOUGHT:
            self.thoughts.append(self._string(part, (kind, "thinking", "reasoning", "text"), at))
        elif kind in _CALLS:
            self.calls.append(_call(part))
        elif kind == "tool_result":
            self.results.append(_result(part, self.where, at))
        else:
            raise Refusal("content_not_text", f"part {place} of the content of {self.where} is of type {kind!r}", at)

    def _string(self, part: Mapping[str, Any], names: tuple[str, ...], at: Path) -> str:
        text = next((part[name] for name in names if part.get(name) is not None), None)
        if not isinstance(text, str):
            raise Refusal("content_not_text", f"a part of the content of {self.where} has no {names[0]}", at)
        return text

    def done(self) -> Parts:
        reasoning = "\n".join(self.thoughts) or None
        empty = not (self.texts or self.thoughts or self.calls or self.results)
        texts = self.texts if self.texts or not empty else None
        return Parts(texts, reasoning, tuple(self.calls), tuple(self.results), tuple(self.flags))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _call(part: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic's tool_use as a call of OpenAI's form; other forms are read as they are."""
    if "function" in part:
        return dict(part)
    arguments = part.get("input", part.get("arguments"))
    call = {"type": "function", "function": {"name": part.get("name"), "arguments": arguments}}
    return call | ({"id": part["id"]} if part.get("id") is not None else {})


def _result(part: Mapping[str, Any], where: str, at: Path) -> dict[str, Any]:
    inner = part.get("content", "")
    if isinstance(inner, list):
        found = read_parts(inner, where, at).texts or []
        inner = "\n".join(item["text"] for item in found)
    message = {"role": "tool", "content": inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)}
    return message | ({"tool_call_id": part["tool_use_id"]} if part.get("tool_use_id") is not None else {})
