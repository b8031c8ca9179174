"""A conversation: what a row says, before any template or tokenizer is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from outlive.data.json_text import parse_json
from outlive.run.errors import nearest
from outlive.text.refusal import Refusal

ROLES = ("system", "developer", "user", "assistant", "tool")
# What other tools call them.
_ROLE_NAMES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant", "ai": "assistant",
               "function": "tool", "observation": "tool"}  # fmt: skip
# Keys that say how much a message counts: they steer the loss and are never shown to a template.
LOSS_KEYS = ("weight", "train")
# Weights other than 0: sums of them in float32 neither vanish nor overflow.
WEIGHTS = (1e-6, 1e6)


@dataclass(frozen=True)
class Chat:
    """A chat. Messages from `first_trained` on may carry loss (0: all of them; else those of a completion)."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    first_trained: int

    def rendered_messages(self) -> list[dict[str, Any]]:
        """The messages as a template sees them: without the keys that steer the loss, tool arguments as objects."""
        shown = [{key: value for key, value in message.items() if key not in LOSS_KEYS} for message in self.messages]
        return [_with_argument_objects(message) for message in shown]

    def with_system(self, text: str | None) -> Chat:
        """The same chat with a system turn in front, where it has none and `text` is given."""
        if text is None or self.messages[0]["role"] in ("system", "developer"):
            return self
        shifted = self.first_trained + 1 if self.first_trained else 0
        return Chat([{"role": "system", "content": text}, *self.messages], self.tools, shifted)


@dataclass(frozen=True)
class Text:
    """Plain text. The loss lies on `completion`; the prompt of a plain text is empty."""

    prompt: str
    completion: str


Conversation = Chat | Text


def check_messages(messages: Any, column: str) -> list[dict[str, Any]]:
    """The messages, checked: a non-empty list of objects with a known role and text content. Raises Refusal."""
    if not isinstance(messages, Sequence) or not messages:
        raise Refusal("no_messages", f"'{column}' holds no message", (column,))
    for place, message in enumerate(messages):
        where, path = f"{column}[{place}]", (column, place)
        if not isinstance(message, Mapping):
            raise Refusal("bad_message", f"{where} is {_kind(message)}, not an object with role and content", path)
        if message.get("role") not in ROLES:
            raise _unknown_role(message, where, path)
        content = message.get("content")
        if content is None and message.get("tool_calls"):
            continue
        if not isinstance(content, str):
            found = (*path, "content") if "content" in message else path
            raise Refusal("content_not_text", f"the content of {where} is {_kind(content)}, not text", found)
        try:
            message_weight(message, where)
        except Refusal as refusal:
            found = (*path, "weight") if "weight" in message else path
            raise Refusal(refusal.reason, refusal.detail, found) from None
    return [dict(message) for message in messages]


def _unknown_role(message: Mapping[str, Any], where: str, path: tuple[str | int, ...]) -> Refusal:
    known = f"known: {', '.join(ROLES)}"
    if "role" not in message:
        other = "; 'from' and 'value' are ShareGPT's names of role and content" if "from" in message else ""
        return Refusal("unknown_role", f"{where} has no role{other}; {known}", path)
    role = message["role"]
    close = _ROLE_NAMES.get(str(role).lower()) or nearest(str(role), ROLES)
    return Refusal(
        "unknown_role", f"{where} has the role {role!r}; {known}" + (f"; did you mean {close}?" if close else ""),
        (*path, "role"),
    )  # fmt: skip


def message_weight(message: Mapping[str, Any], where: str = "message") -> float:
    """How much a message's loss counts: its `weight` (0, or a number of WEIGHTS) or `train` (true or false); else 1."""
    if message.get("weight") is not None and message.get("train") is not None:
        raise Refusal("bad_weight", f"{where} has both 'weight' and 'train'")
    weight = message.get("weight", message.get("train"))
    if weight is None:
        return 1.0
    least, most = WEIGHTS
    if not isinstance(weight, int | float) or not (weight == 0 or least <= weight <= most):
        known = f"0, or a number from {least:g} to {most:g}"
        raise Refusal("bad_weight", f"the weight of {where} is {weight!r}; it is to be {known}")
    return float(weight)


def trained_turns(chat: Chat, loss_on: str) -> dict[int, float]:
    """The weight of each assistant turn that carries loss, by its place among the messages. Raises Refusal for none."""
    if loss_on == "completion" and not chat.first_trained:
        raise Refusal("no_completion", "loss_on: completion needs rows of prompt and completion")
    if loss_on == "all" and any(message.get(key) is not None for message in chat.messages for key in LOSS_KEYS):
        raise Refusal("bad_weight", "weights of single messages mean nothing under loss_on: all")
    turns = [turn for turn, message in enumerate(chat.messages) if message["role"] == "assistant"]
    turns = [turn for turn in turns if turn >= chat.first_trained]
    if not turns:
        raise Refusal("no_assistant_turn", f"{len(chat.messages)} messages")
    if loss_on == "last_assistant":
        turns = turns[-1:]
    weights = {turn: message_weight(chat.messages[turn]) for turn in turns}
    if not any(weights.values()):
        raise Refusal("no_target", "every assistant turn has weight 0")
    return {turn: weight for turn, weight in weights.items() if weight > 0}


def content_hash(conversation: Conversation) -> int:
    """64 bits of the conversation's content: equal conversations have equal hashes, whatever their other columns."""
    value = [conversation.messages, conversation.tools] if isinstance(conversation, Chat) else vars(conversation)
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def _with_argument_objects(message: dict[str, Any]) -> dict[str, Any]:
    """The message with tool-call arguments that are JSON text (OpenAI's form) as objects, which templates print."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_with_argument_object(call) for call in calls]}


def _with_argument_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = parse_json(function["arguments"])
    except ValueError:
        return call
    if not isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _kind(value: Any) -> str:
    kinds = {
        "NoneType": "missing",
        "list": "a list of parts",
        "str": "text",
        "dict": "an object",
        "bool": "true or false",
    }
    return kinds.get(type(value).__name__, "a number")
