"""A conversation with its template: the renders that a mask is proved with, each made once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

from outlive.text.refusal import Refusal
from outlive.text.render.trace import Trace, trace
from outlive.text.template import (
    REASONING_KEYS,
    ChatTemplate,
    Message,
    TemplateError,
    plain_messages,
    plain_objects,
)


class Chat:
    """Renders of a conversation and of its beginnings, or Refusal('template_error').

    A template that was stopped at a limit is no fault of one row: its TemplateError goes through.
    """

    def __init__(
        self,
        template: ChatTemplate,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        self.template, self.given = template, messages
        try:
            self.messages, self.tools = plain_messages(messages), plain_objects(tools, "tools")
        except TemplateError as error:
            raise Refusal("template_error", error.detail) from error
        self._rendered: dict[tuple[int, bool], str] = {}

    @cached_property
    def assistant(self) -> list[int]:
        """The places of the assistant's turns in messages."""
        return [place for place, message in enumerate(self.messages) if message.get("role") == "assistant"]

    def wanted(self, turns: Collection[int] | None) -> list[int]:
        """Those of them that are asked for; None: all."""
        return [place for place in self.assistant if turns is None or place in turns]

    @cached_property
    def full(self) -> str:
        return self._beginning(len(self.messages), "the conversation") if self.messages else ""

    def reasoning_key(self, turn: int) -> str:
        """The name under which a message's reasoning was given."""
        return next(key for key in REASONING_KEYS if self.given[turn].get(key) is not None)

    def prompt(self, turn: int) -> str:
        """What a server renders before the turn."""
        return self._beginning(turn, f"the prompt of messages[{turn}]", prompt=True)

    def before(self, turn: int) -> str:
        """The messages before the turn, without a generation prompt."""
        return self._beginning(turn, f"the messages before messages[{turn}]")

    def through(self, turn: int) -> str:
        """The messages up to and with the turn: what it looked like when it was written."""
        if turn == len(self.messages) - 1:
            return self.full
        return self._beginning(turn + 1, f"messages up to messages[{turn}]")

    @cached_property
    def trace(self) -> Trace:
        """The full render with the origin of its characters: byte for byte the plain one, or Refusal('not_traced')."""
        return self._trace(self.messages, self.full, prompt=False)

    def traced_prompt(self, turn: int) -> Trace:
        """The served prompt of a turn with origins."""
        return self._trace(self.messages[:turn], self.prompt(turn), prompt=True)

    def _trace(self, messages: list[Message], plain: str, prompt: bool) -> Trace:
        try:
            found = trace(self.template, messages, tools=self.tools, add_generation_prompt=prompt)
        except TemplateError as error:
            raise Refusal("not_traced", error.detail) from error
        if found.text != plain:
            place = common_length(found.text, plain)
            raise Refusal("not_traced", f"the traced text differs at {quoted(plain[place:])}")
        return found

    def beginning(self, number: int) -> str:
        """The first messages, without a generation prompt."""
        return self.full if number == len(self.messages) else self._beginning(number, f"the first {number} messages")

    def _beginning(self, number: int, what: str, prompt: bool = False) -> str:
        known = self._rendered.get((number, prompt))
        if known is None:
            known = self._render(self.messages[:number], what, prompt)
            self._rendered[number, prompt] = known
        return known

    def _render(self, messages: list[Message], what: str, prompt: bool) -> str:
        try:
            return self.template.render_plain(messages, tools=self.tools, add_generation_prompt=prompt)
        except TemplateError as error:
            if error.reason == "limit":
                raise
            raise Refusal("template_error", f"{what}: {error.detail}") from error


def quoted(text: str, length: int = 40) -> str:
    return repr(text if len(text) <= length else text[:length] + "…")


def common_length(a: str, b: str) -> int:
    """The number of characters that two texts have in common from their beginning."""
    if a.startswith(b):
        return len(b)
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a.startswith(b[:middle]):
            low = middle
        else:
            high = middle - 1
    return low
