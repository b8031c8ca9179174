"""Weights of parts and of characters of a message, carried over to the render and from there to tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from outlive.data.conversation import CharacterWeight, Chat, Messages
from outlive.text.refusal import Refusal
from outlive.text.spans import Place, Span, places
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
from outlive.text.written import Written


class Stretch(NamedTuple):
    """Characters up to `end` (from where the one before ended) and their weight."""

    end: int
    weight: float


class Piece(NamedTuple):
    """Text between two span bounds and the weight of its tokens as targets; `parts`: where characters differ."""

    text: str
    weight: float
    parts: tuple[Stretch, ...] = ()
    trained: bool = False


class CutText(NamedTuple):
    """A text to train on, the spans of its trained turns, and the text cut at their bounds."""

    text: str
    spans: list[Span]
    pieces: list[Piece]


def split_at(
    text: str, found: Sequence[Span], trained: Mapping[int, float], parts: Mapping[int, tuple[Stretch, ...]]
) -> list[Piece]:
    """Cut `text` at the bounds of the trained spans; their pieces have the turn's weight, all others 0."""
    pieces, place = [], 0
    for span in found:
        pieces.append(Piece(text[place : span.start], 0.0))
        pieces.append(Piece(text[span.start : span.end], trained[span.turn], parts.get(span.turn, ()), True))
        place = span.end
    pieces.append(Piece(text[place:], 0.0))
    return [piece for piece in pieces if piece.text]


def part_weights(
    template: ChatTemplate, chat: Chat, messages: Messages, text: Written, joint: str
) -> dict[int, tuple[Stretch, ...]]:
    """For each trained turn with weights of its own characters: the stretches of its span. Raises Refusal."""
    made = {}
    for span in text.spans:
        own = chat.weights[span.turn]
        if isinstance(own, tuple):
            if text.how == "served":
                raise Refusal("characters_not_found", f"messages[{span.turn}] is written otherwise than in its history")
            weights = _character_weights(chat.messages[span.turn], own, joint)
            rendered = messages[: span.turn + 1] if text.how == "unrolled" else messages
            there = places(template, rendered, tools=chat.tools, turn=span.turn)
            made[span.turn] = _stretches(span, [place for place in there if place.path == ("content",)], weights)
    return made


def _stretches(span: Span, there: Sequence[Place], weights: Sequence[float]) -> tuple[Stretch, ...]:
    """The weights of the characters of a span. What the template writes around the text, its end included, has the
    weight of the character before it, at the beginning that of the first character."""
    of_each: list[float | None] = [None] * (span.end - span.start)
    for place in there:
        plain = place.length == place.end - place.start
        for at in range(max(place.start, span.start), min(place.end, span.end)):
            first = place.offset + at - place.start if plain else place.offset
            last = first + 1 if plain else place.offset + place.length
            of_each[at - span.start] = max(weights[first:last], default=None)
    known = next((weight for weight in of_each if weight is not None), None)
    if known is None:
        raise Refusal("characters_not_found", f"no text of messages[{span.turn}] stands in what the template writes")
    stretches: list[Stretch] = []
    for at, weight in enumerate(of_each, 1):
        known = known if weight is None else weight
        if stretches and stretches[-1].weight == known:
            stretches.pop()
        stretches.append(Stretch(at, known))
    return tuple(stretches)


def _character_weights(message: Mapping[str, object], own: Sequence[CharacterWeight], joint: str) -> list[float]:
    content = message["content"]
    if isinstance(content, str):
        weights = [0.0] * len(content)
        for part in own:
            weights[part.start : part.end] = [part.weight] * (part.end - part.start)
        return weights
    weights = []
    for place, part in enumerate(own):
        weights += [part.weight] * (part.end + (len(joint) if place + 1 < len(own) else 0))
    return weights


def weights_of(piece: Piece, ids: Sequence[int], tokenizer: Tokenizer) -> list[float]:
    """The weight of each token of a piece: that of the token's last character. Raises Refusal where the tokenizer
    does not say which characters a token stands for."""
    again, offsets = tokenizer.encode_with_ends(piece.text)
    if list(again) != list(ids):
        raise Refusal("characters_not_found", "the tokenizer does not say which characters a token stands for")
    made, place = [], 0
    for end in offsets:
        while place + 1 < len(piece.parts) and piece.parts[place].end < end:
            place += 1
        made.append(piece.parts[place].weight)
    return made
