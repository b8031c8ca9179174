"""What is trained of a conversation: its render with spans, or one text per trained turn where that alone is exact.

A template may write a turn otherwise once others follow it, or a prompt otherwise than the history that it becomes. A
sample of one turn is exact then: what a server would send, followed by what the model is to write.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from outlive.text.chat import Chat, common_length
from outlive.text.learned import learn
from outlive.text.presence import Data, find_data
from outlive.text.refusal import Refusal
from outlive.text.render.trace import Trace
from outlive.text.replay import replays_of, structure_of
from outlive.text.spans import Place, Span, TurnEnd, end_of_answer, places_of, refuse_inside, spans_of
from outlive.text.tags import begins_with_tag, leaves_open, whole_tags
from outlive.text.template import ChatTemplate

How = Literal["whole", "closed", "unrolled", "served"]
# What a sample of one turn can repair.
_UNROLLED = frozenset({"history_rewritten", "generation_prompt_not_prefix"})


@dataclass(frozen=True)
class Written:
    """A text to train on, and the spans in it that the model writes.

    how: 'whole': the render of the conversation. 'closed': the render and the token with which the next message would
    begin, which is what ends a turn of this template. 'unrolled': one of these, up to one trained turn. 'served': the
    served prompt and then the turn, for templates whose history is written otherwise than a prompt.
    """

    text: str
    spans: list[Span]
    how: How
    chat: Chat = field(repr=False)  # what was rendered …
    shift: int = 0  # … and by how many characters its answer stands later here

    def places(self, turn: int) -> list[Place]:
        """Where the texts of a trained turn stand in `text`, in order: see `spans.Place`. Raises Refusal."""
        found = places_of(self.chat, turn) if self.how != "served" else places_of(self.chat, turn, proved=True)
        first = next(span.start for span in self.spans if span.turn == turn) if self.how == "served" else 0
        moved = [place._replace(start=place.start + self.shift, end=place.end + self.shift) for place in found]
        return [place for place in moved if place.start >= first]


def written(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    turn_end: TurnEnd = "end_of_turn",
    turns: Collection[int] | None = None,
    generation_prompt: bool = False,
) -> list[Written]:
    """One text with all trained turns, or one for each of them, in order. Arguments and Refusal as for `spans`."""
    chat = Chat(template, messages, tools)
    options = _Options(turn_end, generation_prompt)
    wanted = chat.wanted(turns)
    replays = replays_of(template)
    structure = structure_of(chat, turn_end, generation_prompt, *wanted) if replays.is_on else None
    if structure is None:
        return _proved(chat, wanted, options, tools)
    found = replays.spans(chat, structure)
    if found is not None:
        return [Written(chat.full, found, "whole", chat)]
    try:
        texts = _proved(chat, wanted, options, tools)
    except Refusal:
        replays.learn(chat, structure, None)
        raise
    replays.learn(chat, structure, texts[0].spans if len(texts) == 1 and texts[0].how == "whole" else None)
    return texts


def _proved(
    chat: Chat, wanted: Sequence[int], options: _Options, tools: Sequence[Mapping[str, Any]] | None
) -> list[Written]:
    template, messages = chat.template, chat.given
    try:
        return [_whole(chat, wanted, options)]
    except Refusal as refusal:
        closed_later = refusal.reason == "no_end_of_turn" and learn(template).next_end is not None
        if refusal.reason not in _UNROLLED and not closed_later:
            raise
    return [_one(Chat(template, messages[: turn + 1], tools), turn, options) for turn in wanted]


class _Options(NamedTuple):
    turn_end: TurnEnd
    generation_prompt: bool


def _whole(chat: Chat, turns: Sequence[int], options: _Options, how: How = "whole") -> Written:
    last = len(chat.messages) - 1
    try:
        return Written(chat.full, spans_of(chat, options.turn_end, turns, options.generation_prompt), how, chat)
    except Refusal as refusal:
        closing = _closing(chat) if refusal.reason == "no_end_of_turn" and turns[-1] == last else None
        if closing is None:
            raise
    others = turns[:-1]
    found = spans_of(chat, options.turn_end, others, options.generation_prompt) if others else []
    (span,) = spans_of(chat, "content", [last], options.generation_prompt)
    text = chat.full + closing
    return Written(text, [*found, span._replace(end=len(text))], "closed" if how == "whole" else how, chat)


def _closing(chat: Chat) -> str | None:
    """The token with which the next message would begin, where that is what ends the last turn of this template."""
    learned = learn(chat.template)
    return learned.next_end_of_call if chat.messages[-1].get("tool_calls") else learned.next_end


def _one(chat: Chat, turn: int, options: _Options) -> Written:
    try:
        return _whole(chat, [turn], options, "unrolled")
    except Refusal as refusal:
        served = None if refusal.reason not in _UNROLLED else _served(chat, turn, options)
        if served is None:
            raise
        return served


class _Tail(NamedTuple):
    """The last value of the messages before a turn, as far as it is written, and the template's text after it."""

    value: tuple[int, tuple[str | int, ...], int]
    text: str
    start: int


def _served(chat: Chat, turn: int, options: _Options) -> Written | None:
    """The served prompt and then the answer as the render has it; None where it is not known where that begins.

    The template's own text between the last word of the messages before and the answer is compared in both. Where the
    prompt has more than the render, that has to be white space, or a part that is opened and closed again.
    """
    data = find_data(chat.trace, turn, 0, len(chat.full))
    if not isinstance(data, Data) or not data.runs:
        return None
    start = _answer_start(chat, turn, data.start)
    if start is None:
        return None
    full, closing = chat.full, ""
    try:
        end = end_of_answer(chat, turn, max(data.end, start), options.turn_end)
    except Refusal as refusal:
        closing = _closing(chat) or ""
        if refusal.reason != "no_end_of_turn" or not closing:
            raise
        end = len(full)
    refuse_inside(chat, turn, data, start, end)
    prompt, before = chat.prompt(turn), chat.before(turn)
    first = len(before) if options.generation_prompt and prompt.startswith(before) else len(prompt)
    last = len(prompt) + end - start + len(closing)
    span = Span(turn, first, last, "served")
    return Written(prompt + full[start:] + closing, [span], "served", chat, len(prompt) - start)


def _answer_start(chat: Chat, turn: int, data_start: int) -> int | None:
    """Where the render goes on with what the model writes after the served prompt; None where that is not known."""
    prompt, before = chat.prompt(turn), chat.before(turn)
    opening = prompt[len(before) :] if prompt.startswith(before) else ""
    if opening.strip() and chat.full.endswith(opening, 0, data_start):
        return data_start
    asked = _tail(chat.traced_prompt(turn), turn, len(prompt))
    given = _tail(chat.trace, turn, data_start)
    if asked is None or given is None or asked.value != given.value:
        return None
    same = common_length(asked.text, given.text)
    same = min(whole_tags(asked.text, same), whole_tags(given.text, same))
    more, own = asked.text[same:], given.text[same:]
    header = (learn(chat.template).header or "").strip()
    # what follows the header of every answer is the answer
    opened = more.rpartition(header)[2] if header and not own.strip() else more
    if opened.strip() and leaves_open(opened, own):
        return None
    if own.strip() and own.split() == more.split():
        return data_start  # the same header with other white space
    if own.strip() and not (begins_with_tag(own) and begins_with_tag(opened)):
        return None  # another header than the prompt's ("Assistant" for "assistant"), which no model is to write
    if own.strip() and not more.strip() and prompt == before:
        return None  # a header, or the answer's first words
    return data_start if more and not own.strip() else given.start + same


def _tail(trace: Trace, turn: int, end: int) -> _Tail | None:
    """What stands before `end` since the last value of an earlier message; None where one stands later, too."""
    others = [run for run in trace.runs if trace.sources[run.source].message < turn]
    if not others or others[-1].end > end:
        return None
    last = others[-1]
    source = trace.sources[last.source]
    return _Tail((source.message, source.path, last.last), trace.text[last.end : end], last.end)
