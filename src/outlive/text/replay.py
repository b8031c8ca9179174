"""Spans without a proof of their own: chats of one structure are written alike, so one proof holds for all of them.

A structure is what a chat has beside its texts: roles, keys, which texts are empty. Its renders are made once with
texts that are not known (`render.symbolic`): lists of literals and slots, which hold for all texts that answer the
template's questions alike. Where the served prompts and what was written at each turn are beginnings of the whole
render as such lists, where each text of a turn stands in its slot, and where literals alone decide the rest, the spans
of one chat, proved as `spans` says, are those of each: they begin and end at the same places among the slots.

Of each chat the whole render is compared with the plain one, byte for byte. Every now and then the proof is made again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from outlive.run.errors import NotTrusted
from outlive.text.chat import Chat
from outlive.text.learned import learn
from outlive.text.refusal import Refusal
from outlive.text.render.symbolic import Looked, Question, Slot, Unknown, merged
from outlive.text.render.trace import is_needed
from outlive.text.spans import Span
from outlive.text.template import REASONING_KEYS, ChatTemplate, Message, TemplateError

NO_REPLAY = "OUTLIVE_PROVE_ALL"  # in the environment: every chat is proved by itself
PROVED_AGAIN = 499  # of so many chats about one
MAX_STRUCTURES = 4096
MAX_TRIES = 8
_REASONING = frozenset(REASONING_KEYS)
_CHOOSING = ("role", "type")  # templates choose by them: part of the structure, never unknown
Pieces = tuple[str | Slot, ...]
Structure = tuple[object, ...]


class Place(NamedTuple):
    """A place in a text of pieces: `offset` characters after the beginning of a piece."""

    piece: int
    offset: int


@dataclass(frozen=True)
class Replay:
    """The render of a structure, and the spans in it."""

    pieces: Pieces
    values: list[tuple[int, str]]  # the message and the key of each slot's value
    questions: list[Question]
    spans: list[tuple[int, Place, Place, str]]

    def on(self, chat: Chat) -> list[Span] | None:
        """The spans of a chat of this structure; None where a proof of its own is needed."""
        messages = chat.messages
        values = [messages[message][key] for message, key in self.values]
        for slot, method, argument in self.questions:
            if getattr(slot.of(values[slot.value]), method)(argument):
                return None
        texts = [piece if type(piece) is str else _filled(piece, values) for piece in self.pieces]
        if "".join(texts) != chat.full:
            return None
        begins = [0, *accumulate(map(len, texts))]
        return [
            Span(turn, begins[start.piece] + start.offset, begins[end.piece] + end.offset, how)
            for turn, start, end, how in self.spans
        ]


def _filled(slot: str | Slot, values: Sequence[str]) -> str:
    assert isinstance(slot, Slot)
    return slot.of(values[slot.value]) if slot.strips else values[slot.value]


class Replays:
    """What is known of a template's structures: how to replay them, or (None) that each chat has to be proved."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._known: dict[Structure, Replay | None] = {}
        self._tries: dict[Structure, int] = {}
        self.is_on = not os.environ.get(NO_REPLAY)

    def spans(self, chat: Chat, structure: Structure) -> list[Span] | None:
        """The spans of a chat as those of its structure; None where they have to be proved."""
        replay = self._known.get(structure)
        found = None if replay is None else replay.on(chat)
        return None if found is None or len(chat.full) % PROVED_AGAIN == 0 else found

    def learn(self, chat: Chat, structure: Structure, proved: list[Span] | None) -> None:
        """Take in the proved spans of a chat; None: it has none, or they are not those of its whole render.

        Raises WorkError where they are others than those of its structure.
        """
        if structure not in self._known:
            self._try(chat, structure, proved)
        elif (replay := self._known[structure]) is not None:
            found = replay.on(chat)
            if found is not None and found != proved:
                raise NotTrusted(
                    f"a chat's spans are {proved}, those of its structure {found}",
                    where=self._template.name or "the chat template",
                    fix=f"set {NO_REPLAY}=1, which proves every chat by itself, and report the template",
                )

    def _try(self, chat: Chat, structure: Structure, proved: list[Span] | None) -> None:
        """Learn a structure from one of its chats. Some are written otherwise for their texts: then from another."""
        replay = _replay_of(chat, proved) if proved else None
        tries = self._tries.get(structure, 0) + 1
        if replay is None and tries < MAX_TRIES:
            self._tries[structure] = tries
            return
        self._known[structure] = replay
        self._tries.pop(structure, None)
        for kept in (self._known, self._tries):
            if len(kept) > MAX_STRUCTURES:
                del kept[next(iter(kept))]


def replays_of(template: ChatTemplate) -> Replays:
    """What is known of a template's structures; kept with the template."""
    if template.replays is None:
        template.replays = Replays(template)
    found: Replays = template.replays
    return found


def structure_of(chat: Chat, *options: object) -> Structure | None:
    """What chats have to have in common to be replayed alike, `options` included; None where this one can't be."""
    if chat.tools is not None:
        return None
    found: list[object] = [*options]
    for message in chat.messages:
        if not _REASONING.isdisjoint(message) and _num_reasonings(message) > 1:
            return None  # what is one text in most chats is two here
        for key, value in message.items():
            if type(value) is not str:
                return None
            found.append(key)
            if key in _CHOOSING:
                found.append(value)
            elif not value:
                found.append(None)
            elif value.isspace():
                return None
        found.append(False)
    return tuple(found)


def _num_reasonings(message: Message) -> int:
    return len({message[key] for key in REASONING_KEYS if type(message.get(key)) is str})


def _replay_of(chat: Chat, proved: list[Span]) -> Replay | None:
    """How chats like this one can be replayed; None where their texts decide where something stands."""
    template = chat.template
    if template.has_generation_marks or (template.uses_date and template.date is None):
        return None
    if any(span.how == "served" for span in proved):
        return None
    try:
        symbols = _Symbols(chat)
        full = symbols.render(len(chat.messages))
        if not all(symbols.turn_is_alike(span, full) for span in proved):
            return None
    except (Looked, Refusal, TemplateError):
        return None
    bounds = [(symbols.place(span.start, full), symbols.place(span.end, full)) for span in proved]
    if any(start is None or end is None for start, end in bounds):
        return None
    spans = [
        (span.turn, start, end, span.how)
        for span, (start, end) in zip(proved, bounds, strict=True)
        if start is not None and end is not None
    ]
    replay = Replay(full, symbols.values, sorted(symbols.questions), spans)
    return replay if replay.on(chat) == proved else None


class _Symbols:
    """A chat whose texts are not known."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.values: list[tuple[int, str]] = []
        self.questions: set[Question] = set()
        self._messages = [self._message(place, message) for place, message in enumerate(chat.messages)]

    def _message(self, place: int, message: Message) -> Message:
        own: dict[str, tuple[str, Unknown]] = {}  # one text under several names is one value
        found: Message = {}
        for key, value in message.items():
            if key in _CHOOSING or not value:
                found[key] = value
                continue
            name = REASONING_KEYS[0] if key in REASONING_KEYS else key
            if name not in own:
                own[name] = value, Unknown((Slot(len(self.values)),), self.questions)
                self.values.append((place, key))
            if own[name][0] != value:
                raise Looked
            found[key] = own[name][1]
        return found

    def render(self, number: int, prompt: bool = False) -> Pieces:
        """The first messages as literals and slots. Raises Looked, and Looked where this chat is written otherwise."""
        made = self.chat.template.render_symbolic(self._messages[:number], tools=None, add_generation_prompt=prompt)
        pieces = merged([made])
        there = self.chat.prompt(number) if prompt else self.chat.beginning(number)
        if "".join(self.texts(pieces)) != there:
            raise Looked
        return pieces

    def texts(self, pieces: Pieces) -> list[str]:
        """The pieces of this chat."""
        values = [self.chat.messages[message][key] for message, key in self.values]
        return [piece if type(piece) is str else _filled(piece, values) for piece in pieces]

    def place(self, at: int, pieces: Pieces) -> Place | None:
        """Where a character stands among the pieces: at the beginning of one, or inside a literal; else None."""
        begin = 0
        for number, (piece, text) in enumerate(zip(pieces, self.texts(pieces), strict=True)):
            if at < begin + len(text):
                return Place(number, at - begin) if at == begin or isinstance(piece, str) else None
            begin += len(text)
        return Place(len(pieces), 0) if at == begin else None

    def turn_is_alike(self, span: Span, full: Pieces) -> bool:
        """Whether what the proof of a turn looked at is decided by literals and by the order of slots alone."""
        turn = span.turn
        if turn == 0:
            return False
        prompt, through = self.render(turn, prompt=True), self.render(turn + 1)
        before = self.render(turn)
        if not _begins(full, prompt) or not _begins(full, through) or not _begins(prompt, before):
            return False
        own = [piece for piece in _after(through, prompt) if isinstance(piece, Slot)]
        needed = {number for number, (message, key) in enumerate(self.values) if message == turn and is_needed((key,))}
        found = [slot.value for slot in own]
        if not found or not needed <= set(found) or len(set(found)) < len(found):
            return False
        if any(self.values[value][0] != turn for value in found):
            return False
        last = through[-1]
        ends = (*self.chat.template.end_of_turn, *learn(self.chat.template).ends)
        return isinstance(last, str) and any(end in last for end in ends)


def _begins(pieces: Pieces, first: Pieces) -> bool:
    """Whether a text begins with another, whatever stands in the slots."""
    if not first:
        return True
    *whole, last = first
    if tuple(whole) != pieces[: len(whole)] or len(pieces) < len(first):
        return False
    there = pieces[len(whole)]
    return there == last or (isinstance(there, str) and isinstance(last, str) and there.startswith(last))


def _after(pieces: Pieces, first: Pieces) -> Iterator[str | Slot]:
    """What follows `first`, with which the pieces begin."""
    if not first:
        yield from pieces
        return
    there, last = pieces[len(first) - 1], first[-1]
    if isinstance(there, str) and isinstance(last, str) and len(there) > len(last):
        yield there[len(last) :]
    yield from pieces[len(first) :]
