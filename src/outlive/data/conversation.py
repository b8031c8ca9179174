"""A conversation: what a row says, before any template or tokenizer is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, Literal, NamedTuple

import xxhash

from outlive.data.json_text import parse_json
from outlive.text.refusal import Refusal

ROLES = ("system", "developer", "user", "assistant", "tool")
Messages = list[dict[str, Any]]
# What joins the text parts of a message for a template that takes text only, as servers do.
PARTS_JOINT = "\n"


class CharacterWeight(NamedTuple):
    """Characters [start, end) of the text at `path` in a message, such as ("content",) or ("content", 1, "text")."""

    path: tuple[str | int, ...]
    start: int
    end: int
    weight: float


# How much a message's loss counts: None (as the policy says), a number, or numbers for some of its characters.
MessageWeight = float | tuple[CharacterWeight, ...] | None


@dataclass(frozen=True)
class Chat:
    """A chat. Messages from `first_trained` on may carry loss (0: all of them; else those of a completion).

    `weights`: one for each message; empty where no message has one.
    """

    messages: Messages
    tools: list[dict[str, Any]] | None = None
    first_trained: int = 0
    weights: tuple[MessageWeight, ...] = ()

    def rendered_messages(
        self, joint: str = PARTS_JOINT, roles: Sequence[str] = ROLES, arguments: str = "object"
    ) -> Messages:
        """The messages as a template sees them: parts joined, tool arguments as objects or as text, a developer as the
        system where the template does not know the role."""
        return [
            message
            if len(message) == 2 and type(message.get("content")) is str and message["role"] in roles
            else _rendered(message, joint, roles, arguments)
            for message in self.messages
        ]

    @property
    def calls_tools(self) -> bool:
        return any("tool_calls" in message for message in self.messages)

    def with_system(self, text: str | None) -> Chat:
        """The same chat with a system turn in front, where it has none and `text` is given."""
        if text is None or self.messages[0]["role"] in ("system", "developer"):
            return self
        shifted = self.first_trained + 1 if self.first_trained else 0
        weights = (None, *self.weights) if self.weights else ()
        return Chat([{"role": "system", "content": text}, *self.messages], self.tools, shifted, weights)


@dataclass(frozen=True)
class Text:
    """Plain text. The loss lies on `completion`; the prompt of a plain text is empty."""

    prompt: str
    completion: str


@dataclass(frozen=True)
class Segments:
    """Pieces of text, each with the weight of its tokens; nothing is put before, between or after them."""

    segments: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Tokens:
    """What another tool has tokenised: ids and their weights as targets, unshifted; one list for each document."""

    documents: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]
    labelled: bool = True


GroupKind = Literal["preference", "ranking", "kto", "prompt_answer", "stepwise"]


@dataclass(frozen=True)
class Group:
    """Answers to one prompt that a method weighs against each other, or judges one by one.

    `branches`: role and messages (or text) of each. `chained`: each goes on from the one before it, not from the
    prompt. `answer`: what a reward compares with, as the row gives it. `implicit`: whether the prompt is only what the
    branches begin with.
    """

    kind: GroupKind
    prompt: Messages | str
    branches: tuple[tuple[str, Messages | str], ...]
    tools: list[dict[str, Any]] | None = None
    chained: bool = False
    answer: Any = None
    implicit: bool = False

    def branch(self, place: int) -> Chat | Text:
        """The conversation of one branch: the prompt and what the branch says, which alone may carry loss."""
        own = self.branches[place][1]
        if isinstance(self.prompt, str) or isinstance(own, str):
            assert isinstance(self.prompt, str)
            assert isinstance(own, str)
            before = [text for _, text in self.branches[:place] if isinstance(text, str)] if self.chained else []
            return Text("".join([self.prompt, *before]), own)
        return Chat([*self.prompt, *own], self.tools, len(self.prompt))


Conversation = Chat | Text | Segments | Tokens | Group


def trained_turns(chat: Chat, loss_on: str) -> dict[int, float]:
    """The weight of each assistant turn that carries loss, by its place among the messages. Raises Refusal for none.

    Where characters have weights of their own, it is the largest of them.
    """
    if loss_on == "completion" and not chat.first_trained:
        raise Refusal("no_completion", "loss_on: completion needs rows of prompt and completion")
    if loss_on == "all" and any(weight is not None for weight in chat.weights):
        raise Refusal("bad_weight", "weights of single messages mean nothing under loss_on: all")
    turns = [turn for turn, message in enumerate(chat.messages) if message["role"] == "assistant"]
    turns = [turn for turn in turns if turn >= chat.first_trained]
    if not turns:
        raise Refusal("no_assistant_turn", f"{len(chat.messages)} messages")
    if loss_on == "last_assistant":
        turns = turns[-1:]
    if not chat.weights:
        return dict.fromkeys(turns, 1.0)
    weights = {turn: _largest(chat.weights[turn]) for turn in turns}
    if not any(weights.values()):
        raise Refusal("no_target", "every assistant turn has weight 0")
    return {turn: weight for turn, weight in weights.items() if weight > 0}


def _largest(weight: MessageWeight) -> float:
    if isinstance(weight, tuple):
        return max((part.weight for part in weight), default=0.0)
    return 1.0 if weight is None else float(weight)


def content_of(conversation: Conversation) -> Any:
    """All that decides what is learned from a conversation, as JSON can hold it."""
    if isinstance(conversation, Chat):
        value: list[Any] = [conversation.messages, conversation.tools]
        return [*value, conversation.first_trained, conversation.weights] if conversation.weights else value
    return vars(conversation)


def content_hash(conversation: Conversation) -> int:
    """64 bits of the conversation's content: equal conversations have equal hashes, whatever their other columns."""
    text = _plain_text(conversation) if isinstance(conversation, Chat) else None
    if text is None:
        text = _AS_TEXT(content_of(conversation))
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


# Made once: making one takes as long as writing a short row.
_AS_TEXT = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str).encode


def _plain_text(chat: Chat) -> str | None:
    """What `_AS_TEXT` makes of a chat, where all that it has is roles and texts, as most have."""
    if chat.tools is not None or chat.weights:
        return None
    made = []
    for message in chat.messages:
        content, role = message.get("content"), message["role"]
        if len(message) != 2 or type(content) is not str or type(role) is not str:
            return None
        made.append(f'{{"content":{encode_basestring(content)},"role":{encode_basestring(role)}}}')
    return f"[[{','.join(made)}],null]"


def content_text(message: dict[str, Any], joint: str = PARTS_JOINT) -> str:
    """The text of a message; of several parts, joined."""
    content = message.get("content")
    if isinstance(content, list):
        return joint.join(part["text"] for part in content)
    return content if isinstance(content, str) else ""


def _rendered(message: dict[str, Any], joint: str, roles: Sequence[str], arguments: str) -> dict[str, Any]:
    if isinstance(message.get("content"), list):
        message = {**message, "content": content_text(message, joint)}
    if message["role"] == "developer" and "developer" not in roles:
        message = {**message, "role": "system"}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        convert = _as_text if arguments == "text" else _as_object
        message = {**message, "tool_calls": [_with_arguments(call, convert) for call in calls]}
    return message


def _with_arguments(call: Any, convert: Callable[[Any], Any]) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or "arguments" not in function:
        return call
    return {**call, "function": {**function, "arguments": convert(function["arguments"])}}


def _as_object(arguments: Any) -> Any:
    """JSON text (OpenAI's form) as the object that it says; what is no JSON object stays as it is."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = parse_json(arguments)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def _as_text(arguments: Any) -> Any:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
