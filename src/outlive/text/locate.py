"""Where the data of an assistant turn lies in a render, proved by rendering it once more with stand-ins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from outlive.text.fields import Field, nonce_for, python_notation, squash, substituted
from outlive.text.refusal import Refusal
from outlive.text.template import ChatTemplate, Message, TemplateError, plain_messages, plain_objects


class Data(NamedTuple):
    """Where a turn's data lies. `end`: the character after its last. `scaffold`: what the template writes around it.

    fields: the pieces. gap: what stands between the prompt and the first piece. scaffold: the turn up to its last
    piece with stand-ins for all data, so that no data is in it (where the template bears stand-ins: `proved`).
    """

    fields: list[Field]
    end: int
    gap: str
    scaffold: str
    proved: bool


class Turn(NamedTuple):
    """An assistant turn: its place in the messages, the prompt that a server renders before it, the render up to and
    with it, and how much of that stands in the full render too (in characters, at least the prompt)."""

    place: int
    prompt: str
    through: str
    upper: int


class Chat:
    """A conversation with its template: renders of the whole and of its beginnings, or Refusal('template_error').

    A template that was stopped at a limit is no fault of one row: its TemplateError goes through."""

    def __init__(
        self,
        template: ChatTemplate,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        self.template = template
        try:
            self.messages, self.tools = plain_messages(messages), plain_objects(tools, "tools")
        except TemplateError as error:
            raise Refusal("template_error", error.detail) from error
        self.full = self.render(self.messages, "the conversation") if self.messages else ""

    def render(self, messages: list[Message], what: str, prompt: bool = False) -> str:
        try:
            return self.template.render_plain(messages, tools=self.tools, add_generation_prompt=prompt)
        except TemplateError as error:
            if error.reason == "limit":
                raise
            raise Refusal("template_error", f"{what}: {error.detail}") from error

    def try_render(self, messages: list[Message]) -> str | None:
        try:
            return self.template.render_plain(messages, tools=self.tools, add_generation_prompt=False)
        except TemplateError as error:
            if error.reason == "limit":
                raise
            return None

    def prompt(self, turn: int) -> str:
        """What a server renders before the turn."""
        return self.render(self.messages[:turn], f"the prompt of messages[{turn}]", prompt=True)

    def before(self, turn: int) -> str:
        """The messages before the turn, without a generation prompt."""
        return self.render(self.messages[:turn], f"the messages before messages[{turn}]")

    def marks(self) -> list[tuple[int, int]]:
        return self.template.marks(self.full, self.messages, tools=self.tools, add_generation_prompt=False)


def locate(chat: Chat, turn: Turn) -> Data:
    """Find the data of a turn in `turn.through`. Raises Refusal when a piece is lost, or in the wrong notation."""
    prompt, through = turn.prompt, turn.through
    nonce = nonce_for(through)
    changed, fields = substituted(chat.messages[turn.place], nonce)
    lower = _lower_bound(chat, turn, fields)
    render = chat.try_render([*chat.messages[: turn.place], changed])
    if render is not None and (name := python_notation(changed, render)) is not None:
        raise Refusal("python_notation", f"messages[{turn.place}].{name}")
    own = render[len(prompt) :] if render is not None and render.startswith(prompt) else ""
    missing = [number for number, field in enumerate(fields) if field.stand_in not in own]
    for number in missing:
        _refuse_unprinted(chat, turn, nonce, number, fields[number])
    if fields and not missing:
        data = _by_stand_ins(own, fields, turn, lower)
        if data is not None:
            return data
    first, end = _search(through[lower:], fields)
    gap = through[len(prompt) : lower + first]
    return Data(fields, max(lower + end, len(prompt)), gap, through[len(prompt) : lower + end], False)


def _by_stand_ins(own: str, fields: list[Field], turn: Turn, lower: int) -> Data | None:
    """Carry the places of the stand-ins in `own` (the turn, rendered with them) over to the real render.

    What follows the last stand-in has to end the real render too, and the last piece has to stand right before it;
    else the template treats the data by what it says, and None is returned.
    """
    first = min(own.find(field.stand_in) for field in fields)
    last = max(fields, key=lambda field: own.rfind(field.stand_in))
    cut = own.rfind(last.stand_in)
    tail = own[cut + len(last.stand_in) :]
    end = len(turn.through) - len(tail)
    if end < lower or not turn.through.endswith(tail) or not last.ends(squash(turn.through[lower:end])):
        return None
    return Data(fields, max(end, len(turn.prompt)), own[:first], own[:cut], True)


def _lower_bound(chat: Chat, turn: Turn, fields: list[Field]) -> int:
    """From where on all pieces stand in `through`: the prompt's end, or the generation prompt's beginning.

    The second for templates whose generation prompt writes the first word of the content, such as <think>: a server
    gives that word, so it belongs to the prompt.
    """
    lower = len(turn.prompt)
    own = squash(turn.through[lower:])
    lost = [field for field in fields if not field.stands_in(own)]
    if lost:
        before = chat.before(turn.place) if turn.place else ""
        if turn.prompt.startswith(before):
            lower = len(before)
            own = squash(turn.through[lower:])
            begun = len(squash(turn.prompt[lower:])) + 1
            lost = [field for field in lost if not field.stands_in(own, past=begun)]
    if lost:
        raise Refusal("content_not_rendered", f"messages[{turn.place}].{lost[0].name}")
    for field in fields:
        if field.is_json_text and field.forms()[0] not in own:
            raise Refusal("arguments_escaped", f"messages[{turn.place}].{field.name}")
    return lower


def _refuse_unprinted(chat: Chat, turn: Turn, nonce: int, number: int, field: Field) -> None:
    """Refuse a piece whose change doesn't change the render: then what was found of it is the template's own text."""
    if not squash(str(field.value)):
        return
    changed, _ = substituted(chat.messages[turn.place], nonce, only=number)
    if chat.try_render([*chat.messages[: turn.place], changed]) == turn.through:
        raise Refusal("content_not_rendered", f"messages[{turn.place}].{field.name}")


def _search(text: str, fields: list[Field]) -> tuple[int, int]:
    """The first character of the earliest piece in `text`, and the one after the last occurrence of the latest."""
    places = [place for place, char in enumerate(text) if not char.isspace()]
    squashed = squash(text)
    starts, ends = [], []
    for field in fields:
        for form in field.forms():
            if form and (found := squashed.find(form)) >= 0:
                starts.append(places[found])
                ends.append(places[squashed.rfind(form) + len(form) - 1] + 1)
                break
    return (min(starts), max(ends)) if starts else (0, 0)
