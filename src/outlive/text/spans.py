"""`spans`: which characters of a rendered conversation the model writes. The one function that masks come from.

A span is given only where it is proved: the prompt that a server would render is a literal prefix of the text, all of
the turn's data is inside by its origin (`trace`), nobody else's is, and an end of turn closes it. All else is a Refusal
with its reason; nothing is guessed, and no template is known by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from outlive.text.chat import Chat, common_length, quoted
from outlive.text.fields import python_notation
from outlive.text.learned import learn
from outlive.text.presence import Data, Lost, find_data, outside
from outlive.text.refusal import REASONS, Refusal
from outlive.text.render.trace import KEY, Path
from outlive.text.template import REASONING_KEYS, ChatTemplate

__all__ = ["REASONS", "Place", "Refusal", "Span", "TurnEnd", "places", "spans"]

TurnEnd = Literal["content", "end_of_turn", "suffix"]


class Span(NamedTuple):
    """Characters [start, end) of the full render that the model writes as its answer in messages[turn].

    how: 'prefix': it begins where the served prompt ends. 'generation': where the template's {% generation %} block
    begins, or the served prompt ends, whichever is later. 'header': the template ignores add_generation_prompt, and it
    begins after the header of tokens that the template writes before every answer. 'history': where the messages
    before it end, so that the generation prompt is part of it (generation_prompt=True).
    start = end only for an empty answer with turn_end 'content'.
    """

    turn: int
    start: int
    end: int
    how: str


class Place(NamedTuple):
    """Characters [start, end) of the full render are characters offset … offset + length of a message's text at `path`.

    path: keys and indices, such as ("content", 1, "text"). Where length = end - start they are the same characters one
    by one; else one of them is written as several, as an escape in JSON.
    """

    start: int
    end: int
    path: Path
    offset: int
    length: int


class _Turn(NamedTuple):
    """A turn with a proved prompt. upper: up to here the full render is as it was when the turn was written."""

    place: int
    prompt: str
    through: str
    upper: int


def spans(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    turn_end: TurnEnd = "end_of_turn",
    turns: Collection[int] | None = None,
    generation_prompt: bool = False,
) -> list[Span]:
    """One span per assistant turn, in order, in characters of `template.render(messages, tools=tools)`.

    turn_end: where a span ends: 'content': before the end-of-turn text; 'end_of_turn': after it; 'suffix': after all
    that the template writes for the turn (often a newline more). turns: only these places in messages (default: all
    assistant turns). generation_prompt: a span begins before the generation prompt. Raises Refusal with a reason of
    REASONS.
    """
    chat = Chat(template, messages, tools)
    return spans_of(chat, turn_end, chat.wanted(turns), generation_prompt)


def spans_of(chat: Chat, turn_end: TurnEnd, turns: Sequence[int], generation_prompt: bool = False) -> list[Span]:
    """As `spans`, for a conversation whose renders are kept. turns: places of assistant turns, in order."""
    if not turns:
        raise Refusal("no_assistant_turn", f"{len(chat.messages)} messages")
    _refuse_notation(chat)
    found = [_span(chat, place, turn_end) for place in turns]
    return [_with_generation_prompt(chat, span) for span in found] if generation_prompt else found


def places(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    turn: int,
) -> list[Place]:
    """Where the texts of messages[turn], an assistant turn, stand in the full render, in order.

    Raises Refusal where the turn has no span, or where the origin of a text is not known.
    """
    chat = Chat(template, messages, tools)
    _refuse_notation(chat)
    return places_of(chat, turn)


def places_of(chat: Chat, turn: int, proved: bool = False) -> list[Place]:
    """As `places`, for a conversation whose renders are kept. proved: that the turn's data is there is known."""
    runs = chat.trace.of(turn, 0, len(chat.full)) if proved else _data(chat, _turn(chat, turn)).runs
    found = []
    for run in runs:
        path = chat.trace.sources[run.source].path
        if path[-1] == KEY:
            continue
        if path[0] in REASONING_KEYS:
            path = (chat.reasoning_key(turn), *path[1:])
        found.append(Place(run.start, run.end, path, run.first, run.last - run.first))
    return found


def _refuse_notation(chat: Chat) -> None:
    for place, message in enumerate(chat.messages):
        if (name := python_notation(message, chat.full)) is not None:
            raise Refusal("python_notation", f"messages[{place}].{name}")


def _span(chat: Chat, place: int, turn_end: TurnEnd) -> Span:
    turn = _turn(chat, place)
    data = _data(chat, turn)
    start, how = _start(chat, turn, data)
    end = _end(chat, turn, max(data.end, start), turn_end)
    refuse_inside(chat, place, data, start, end)
    return Span(place, start, end, how)


def refuse_inside(chat: Chat, place: int, data: Data, start: int, end: int) -> None:
    """Refuse a turn in which an end of turn stands before its last word, or in which another message is written."""
    inside = outside(chat.full, data.runs, start, max(data.end, start))
    if any(text in inside for text in _ends(chat)):
        raise Refusal("end_of_turn_inside", f"messages[{place}] is written as {quoted(chat.full[start : data.end])}")
    other = chat.trace.foreign(place, start, end)
    if other is not None:
        source = chat.trace.sources[other.source]
        raise Refusal("other_message_inside", f"messages[{source.message}] is written inside messages[{place}]")


def end_of_answer(chat: Chat, place: int, data_end: int, turn_end: TurnEnd) -> int:
    """Where the last turn ends, whose data ends at `data_end`. Raises Refusal where nothing closes it."""
    return _end(chat, _Turn(place, "", chat.full, len(chat.full)), data_end, turn_end)


def _turn(chat: Chat, place: int) -> _Turn:
    """The turn at `place`, once its prompt is known to be a prefix of the full render."""
    prompt = chat.prompt(place)
    if not chat.full.startswith(prompt):
        raise _no_prefix(chat, place, prompt)
    through = chat.through(place)
    upper = common_length(chat.full, through)
    if upper < len(prompt):
        raise _rewritten(chat.full, through, place)
    return _Turn(place, prompt, through, upper)


def _data(chat: Chat, turn: _Turn) -> Data:
    """Where the turn's data stands. All of it stands after the prompt, but for words that the generation prompt gives.

    Templates whose generation prompt writes the first word of the content, such as <think>: a server gives that word,
    so it belongs to the prompt.
    """
    found = find_data(chat.trace, turn.place, len(turn.prompt), turn.upper)
    if isinstance(found, Lost) and turn.place:
        before = chat.before(turn.place)
        if turn.prompt.startswith(before) and len(before) < len(turn.prompt):
            wider = find_data(chat.trace, turn.place, len(before), turn.upper)
            found = wider if isinstance(wider, Data) and wider.end > len(turn.prompt) else found
    if isinstance(found, Data):
        return found
    if turn.upper < len(turn.through):
        raise _rewritten(chat.full, turn.through, turn.place)
    where = f"messages[{turn.place}].{found.source.name}"
    raise Refusal("arguments_escaped", where) if found.escaped else Refusal("content_not_rendered", where)


def _start(chat: Chat, turn: _Turn, data: Data) -> tuple[int, str]:
    """Where the span begins, and how that is known. A mark counts only if it lies in the turn and holds its data."""
    served, marks = len(turn.prompt), chat.trace.marks
    if len(marks) == len(chat.assistant):
        first, last = marks[chat.assistant.index(turn.place)]
        if first < turn.upper and last >= served:
            start = max(first, served)
            if start == served or not chat.trace.of(turn.place, served, start):
                return start, "generation"
    gap = chat.full[served : data.start] if data.runs else _before_end(chat, served, turn.upper)
    if gap.strip() and turn.place and chat.before(turn.place) == turn.prompt:
        return _after_header(chat, turn, gap)
    return served, "prefix"


def _before_end(chat: Chat, start: int, upper: int) -> str:
    """What stands before the first end of turn: all that an empty answer has."""
    found = [place for text in _ends(chat) if (place := chat.full.find(text, start, upper)) >= 0]
    return chat.full[start : min(found, default=start)]


def _after_header(chat: Chat, turn: _Turn, gap: str) -> tuple[int, str]:
    """The start of a turn that no generation prompt opens: after the header of every answer, where that is known."""
    learned = learn(chat.template)
    served = len(turn.prompt)
    if learned.header is not None and gap.startswith(learned.header):
        return served + len(learned.header), "header"
    if learned.answers_at_once:
        return served, "prefix"
    raise Refusal("no_generation_prompt", f"messages[{turn.place}] begins with {quoted(gap)}")


def _ends(chat: Chat) -> tuple[str, ...]:
    return (*chat.template.end_of_turn, *learn(chat.template).ends)


def _end(chat: Chat, turn: _Turn, data_end: int, turn_end: TurnEnd) -> int:
    """Where the span ends. The first end of turn after the data closes it, so one quoted in the content does not."""
    rest, known = chat.full[data_end : turn.upper], _ends(chat)
    closings = [(rest.find(text), -len(text)) for text in known if text in rest]
    if closings:
        closing, length = min(closings)
        if turn_end == "content":
            return data_end + len(rest[:closing].rstrip())
        end = data_end + closing - length
        return end if turn_end == "end_of_turn" else _suffix_end(chat, turn, end)
    if turn_end == "content":
        return data_end + len(rest.rstrip())
    if any(text in turn.through[data_end:] for text in known):
        raise _rewritten(chat.full, turn.through, turn.place)
    following = _next_end(chat, turn)
    if following is not None:
        return following
    names = ", ".join(known[:4]) or "none"
    raise Refusal("no_end_of_turn", f"{quoted(rest)} follows messages[{turn.place}]; known ends of turn: {names}")


def _suffix_end(chat: Chat, turn: _Turn, end: int) -> int:
    """The end of all that the template writes for a turn; of white space only where the next prompt follows at once."""
    prompt = learn(chat.template).next_prompt
    if turn.upper == len(turn.through) and not (prompt and turn.through.endswith(prompt)):
        return turn.upper
    rest = chat.full[end : turn.upper]
    return end + len(rest) - len(rest.lstrip())


def _next_end(chat: Chat, turn: _Turn) -> int | None:
    """The end of the token with which the next message begins, where that token is what ends a turn (GLM, Apertus)."""
    if turn.upper < len(turn.through):
        return None
    rest = chat.full[turn.upper :]
    place = turn.upper + len(rest) - len(rest.lstrip())
    learned = learn(chat.template)
    for text in (*chat.template.end_of_turn, learned.next_end, learned.next_end_of_call):
        if text and chat.full.startswith(text, place):
            return place + len(text)
    return None


def _with_generation_prompt(chat: Chat, span: Span) -> Span:
    before = chat.before(span.turn) if span.turn else ""
    if not chat.full.startswith(before) or len(before) > span.start:
        raise _rewritten(chat.full, before, span.turn)
    return span._replace(start=len(before), how="history")


def _no_prefix(chat: Chat, turn: int, prompt: str) -> Refusal:
    """Why the served prompt is no prefix of the full render."""
    if turn == 0:
        return Refusal("assistant_first", f"it is written as {quoted(chat.full)}")
    if chat.through(turn).startswith(prompt):  # it was, when the turn was the last
        return _rewritten(chat.full, chat.through(turn), turn)
    before = chat.before(turn)
    if before != prompt and chat.full.startswith(before) and prompt.startswith(before):
        there, here = chat.full[len(before) :], prompt[len(before) :]
        return Refusal(
            "generation_prompt_not_prefix",
            f"messages[{turn}] begins with {quoted(there)}, the generation prompt is {quoted(here)}",
        )
    return _rewritten(chat.full, prompt, turn)


def _rewritten(full: str, own: str, turn: int) -> Refusal:
    place = common_length(full, own)
    return Refusal(
        "history_rewritten",
        f"at messages[{turn}] the text goes on with {quoted(own[place:])}, "
        f"in the whole conversation with {quoted(full[place:])}",
    )
