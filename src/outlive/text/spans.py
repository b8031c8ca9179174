"""`spans`: which characters of a rendered conversation the model writes. The one function that masks come from.

A span is given only where it is proved: the prompt that a server would render is a literal prefix of the text, all of
the turn's data is inside, and an end of turn closes it. All else is a Refusal with its reason; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from outlive.text.fields import Field, nonce_for, python_notation, squash
from outlive.text.locate import Chat, Data, Turn, locate
from outlive.text.refusal import REASONS, Refusal
from outlive.text.template import ChatTemplate

__all__ = ["REASONS", "Refusal", "Span", "TurnEnd", "spans"]

TurnEnd = Literal["content", "end_of_turn", "suffix"]


class Span(NamedTuple):
    """Characters [start, end) of the full render that the model writes as its answer in messages[turn].

    how: 'prefix': it begins where the served prompt ends. 'generation': where the template's {% generation %} block
    begins, or the served prompt ends, whichever is later. start = end only for an empty answer with turn_end 'content'.
    """

    turn: int
    start: int
    end: int
    how: str


def spans(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    turn_end: TurnEnd = "end_of_turn",
    turns: Collection[int] | None = None,
) -> list[Span]:
    """One span per assistant turn, in order, in characters of `template.render(messages, tools=tools)`.

    turn_end: where a span ends: 'content': before the end-of-turn text; 'end_of_turn': after it; 'suffix': after all
    that the template writes for the turn (often a newline more). turns: only these places in messages (default: all
    assistant turns). Raises Refusal with a reason of REASONS.
    """
    chat = Chat(template, messages, tools)
    assistant = [place for place, message in enumerate(chat.messages) if message.get("role") == "assistant"]
    wanted = [place for place in assistant if turns is None or place in turns]
    if not wanted:
        raise Refusal("no_assistant_turn", f"{len(chat.messages)} messages")
    for place, message in enumerate(chat.messages):
        if (name := python_notation(message, chat.full)) is not None:
            raise Refusal("python_notation", f"messages[{place}].{name}")
    marks = chat.marks()
    paired = dict(zip(assistant, marks, strict=True)) if len(marks) == len(assistant) else {}
    return [_span(chat, place, turn_end, paired.get(place)) for place in wanted]


def _span(chat: Chat, place: int, turn_end: TurnEnd, mark: tuple[int, int] | None) -> Span:
    turn = _turn(chat, place)
    data = locate(chat, turn)
    if data.end > turn.upper:
        raise _rewritten(chat.full, turn.through, place)
    start, how = _start(chat, turn, data, mark)
    if start == len(turn.prompt):
        _refuse_header(chat, turn, data)
    if data.proved and any(text in data.scaffold for text in chat.template.end_of_turn):
        raise Refusal("end_of_turn_inside", f"messages[{place}] is written as {_quoted(data.scaffold)}")
    end = _end(chat, turn, data.end, turn_end)
    _refuse_foreign(chat, turn, data.scaffold + chat.full[data.end : end])
    return Span(place, start, end, how)


def _turn(chat: Chat, place: int) -> Turn:
    """The turn at `place`, once its prompt is known to be a prefix of the full render."""
    prompt = chat.prompt(place)
    if not chat.full.startswith(prompt):
        raise _no_prefix(chat, place, prompt)
    last = place == len(chat.messages) - 1
    through = chat.full if last else chat.render(chat.messages[: place + 1], f"messages up to messages[{place}]")
    upper = _common_length(chat.full, through)
    if upper < len(prompt):
        raise _rewritten(chat.full, through, place)
    return Turn(place, prompt, through, upper)


def _start(chat: Chat, turn: Turn, data: Data, mark: tuple[int, int] | None) -> tuple[int, str]:
    """Where the span begins, and how that is known. A mark counts only if it lies in the turn and holds its data."""
    served = len(turn.prompt)
    if mark is None or mark[0] >= turn.upper or mark[1] < served:
        return served, "prefix"
    start = max(mark[0], served)
    if start > served:
        inside = squash(chat.full[start : data.end])
        needed = [field for field in data.fields if not field.is_reasoning]
        if start > data.end or not all(field.stands_in(inside) for field in needed):
            return served, "prefix"
    return start, "generation"


def _end(chat: Chat, turn: Turn, data_end: int, turn_end: TurnEnd) -> int:
    """Where the span ends. The first end of turn after the data closes it, so one quoted in the content does not."""
    rest, known = chat.full[data_end : turn.upper], chat.template.end_of_turn
    closings = [(rest.find(text), -len(text)) for text in known if text in rest]
    if not closings and turn_end != "content":
        if any(text in turn.through[data_end:] for text in known):
            raise _rewritten(chat.full, turn.through, turn.place)
        names = ", ".join(known[:4]) or "none"
        raise Refusal("no_end_of_turn", f"{_quoted(rest)} follows messages[{turn.place}]; known ends of turn: {names}")
    closing, length = min(closings, default=(len(rest), 0))
    if turn_end == "content":
        return data_end + len(rest[:closing].rstrip())
    return data_end + closing - length if turn_end == "end_of_turn" else turn.upper


def _refuse_header(chat: Chat, turn: Turn, data: Data) -> None:
    """Refuse a turn that begins with a role header which the served prompt lacks."""
    if not data.gap.strip() or not turn.place or chat.before(turn.place) != turn.prompt:
        return
    # the gap may be what the model writes, such as a tool call's opening: a plain answer shows the header alone
    word = f"vq{nonce_for(turn.prompt)}zk"
    plain = chat.try_render([*chat.messages[: turn.place], {"role": "assistant", "content": word}])
    header = data.gap
    if plain is not None and plain.startswith(turn.prompt) and word in plain:
        header = plain[len(turn.prompt) : plain.find(word)]
    if header.strip():
        raise Refusal("no_generation_prompt", f"messages[{turn.place}] begins with {_quoted(header)}")


def _refuse_foreign(chat: Chat, turn: Turn, scaffold: str) -> None:
    """Refuse a turn in which a message before it is written, where the prompt has not written it."""
    around = squash(scaffold)
    if not around:
        return
    for place, message in enumerate(chat.messages[: turn.place]):
        text = message.get("content")
        if not isinstance(text, str) or not text.strip() or text in turn.prompt:
            continue
        field = Field("content", text, "")
        if field.stands_in(around) and not field.stands_in(squash(turn.prompt)):
            raise Refusal("other_message_inside", f"messages[{place}] is written inside messages[{turn.place}]")


def _no_prefix(chat: Chat, turn: int, prompt: str) -> Refusal:
    """Why the served prompt is no prefix of the full render."""
    if turn == 0:
        return Refusal("assistant_first", f"it is written as {_quoted(chat.full)}")
    before = chat.before(turn)
    if before != prompt and chat.full.startswith(before) and prompt.startswith(before):
        there, here = chat.full[len(before) :], prompt[len(before) :]
        return Refusal(
            "generation_prompt_not_prefix",
            f"messages[{turn}] begins with {_quoted(there)}, the generation prompt is {_quoted(here)}",
        )
    return _rewritten(chat.full, prompt, turn)


def _rewritten(full: str, own: str, turn: int) -> Refusal:
    place = _common_length(full, own)
    return Refusal(
        "history_rewritten",
        f"at messages[{turn}] the text goes on with {_quoted(own[place:])}, "
        f"in the whole conversation with {_quoted(full[place:])}",
    )


def _quoted(text: str, length: int = 40) -> str:
    return repr(text if len(text) <= length else text[:length] + "…")


def _common_length(a: str, b: str) -> int:
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
