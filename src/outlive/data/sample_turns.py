"""Which message each token of a chat's samples comes from: made again for whoever looks, never while data is prepared.

A character belongs to the message whose value it was made of, by the traced render, or whose trained span it stands in.
The template's own text around other messages belongs to none. What can't be made again token by token is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from outlive.data.conversation import Chat, Conversation, trained_turns
from outlive.data.overlong import fit
from outlive.data.part_weights import Piece
from outlive.data.sample import Sample
from outlive.data.samples import SampleMaker
from outlive.run.errors import InputError
from outlive.text.render.trace import Run, Trace
from outlive.text.written import Written, written

NONE = -1


class Turn(NamedTuple):
    """Tokens [start, start + length) of a sample come from a message: its place in the row from 0, and its role."""

    start: int
    length: int
    message: int
    role: str


def turns_of(maker: SampleMaker, conversation: Conversation, samples: Sequence[Sample]) -> list[list[Turn]] | None:
    """The turns of each of the samples that `maker` and `fit` made of a conversation; None where they are not known.

    `maker` counts nothing: a copy of it does the work.
    """
    if not isinstance(conversation, Chat) or maker.template is None:
        return None
    own = replace(maker, counts=Counter(), lints=[], _ahead={}, _ready={})
    try:
        found = _owners(own, conversation.with_system(maker.policy.system), own.make(conversation))
        length = maker.policy.sequence_length
        if found is not None and length is not None:
            found = fit(found, length, maker.policy.overlong, Counter())  # cut where the tokens were
    except InputError:
        return None
    if found is None or [len(one.tokens) for one in found] != [len(one.tokens) for one in samples]:
        return None
    added = len(conversation.with_system(maker.policy.system).messages) - len(conversation.messages)
    roles = [str(message["role"]) for message in conversation.messages]
    return [_turns((one.tokens - added).tolist(), roles) for one in found]


def _turns(owners: Sequence[int], roles: Sequence[str]) -> list[Turn]:
    found, start = [], 0
    for owner, run in groupby(owners):
        length = len(list(run))
        if owner >= 0:
            found.append(Turn(start, length, owner, roles[owner]))
        start += length
    return found


def _owners(maker: SampleMaker, chat: Chat, made: Sequence[Sample]) -> list[Sample] | None:
    """The samples with the place of each token's message instead of its id; None where the ids are not found again."""
    assert maker.template is not None
    messages, on = maker.rendered(chat), maker.policy.loss_on
    if len(messages) != len(chat.messages):
        return None
    turns = trained_turns(chat, on).keys()
    texts = written(maker.template, messages, tools=chat.tools, turn_end=maker.policy.turn_end, turns=turns)
    owners = [_characters(text) for text in texts]
    if on == "all":
        whole = maker.template.render(messages, tools=chat.tools)
        if len(texts) > 1 or not texts[0].text.startswith(whole):
            return None
        pieces = [[Piece(whole, 1.0)]]
    else:
        pieces = [list(text.pieces) for text in maker.texts(chat)]
    if len(made) > len(texts) == 1:
        pieces = _one_by_one(pieces[0])
        owners *= len(pieces)
    if not len(made) == len(pieces) == len(owners):
        return None
    found = []
    for sample, own, characters in zip(made, pieces, owners, strict=True):
        ids, of_each = _tokens(maker, own, characters)
        if ids != sample.tokens.tolist():
            return None
        found.append(sample._replace(tokens=np.array(of_each, np.int32)))
    return found


def _one_by_one(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The pieces of one sample for each trained turn, of a text that a server would tokenise otherwise."""
    found, before = [], ""
    for piece in pieces:
        if piece.trained:
            found.append([*([Piece(before, 0.0)] if before else []), piece])
        before += piece.text
    return found


def _characters(text: Written) -> list[int]:
    """The place of the message that each character comes from, or NONE."""
    owners = [NONE] * len(text.text)
    for span in text.spans:
        owners[span.start : span.end] = [span.turn] * (span.end - span.start)
    first = 0
    if text.how == "served":  # the prompt, and then the answer from the render
        turn = text.spans[0].turn
        first = len(text.chat.prompt(turn))
        _fill(owners, text.chat.traced_prompt(turn), 0, 0, first)
    _fill(owners, text.chat.trace, text.shift, first, len(owners))
    return owners


def _fill(owners: list[int], trace: Trace, shift: int, first: int, last: int) -> None:
    run: Run
    for run in trace.runs:
        start, end = max(run.start + shift, first), min(run.end + shift, last)
        if start < end:
            owners[start:end] = [trace.sources[run.source].message] * (end - start)


def _tokens(maker: SampleMaker, pieces: Sequence[Piece], owners: Sequence[int]) -> tuple[list[int], list[int]]:
    """The ids of pieces that follow each other, and the message of each: NONE where it holds two, or none."""
    ids: list[int] = []
    found: list[int] = []
    begin = 0
    for place, piece in enumerate(pieces):
        own, ends = maker.encode_with_ends_after(place > 0, piece.text)
        last = 0
        for end in ends:
            first = min(last, end - 1)  # several tokens may make one character
            inside = set(owners[begin + max(first, 0) : begin + end]) - {NONE}
            found.append(inside.pop() if len(inside) == 1 else NONE)
            last = max(last, end)
        ids += own
        begin += len(piece.text)
    return ids, found
