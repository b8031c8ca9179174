"""Conversations → samples: which tokens the model sees, and which of them carry loss.

The mask comes from `text.spans` alone. Text is tokenised piece by piece between span bounds, as a server does it: the
prompt first, then what the model generates. A token that straddles a bound cannot exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from outlive.data.conversation import Chat, Conversation, Text, trained_turns
from outlive.text.spans import Refusal, Span, spans
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer

LossOn = Literal["assistant", "last_assistant", "completion", "all"]
TurnEnd = Literal["content", "end_of_turn", "suffix"]


class Sample(NamedTuple):
    """`tokens` int32 [L]; `weights` float32 [L], where weights[t] ≥ 0 belongs to tokens[t] as a target, weights[0] = 0.

    `group`, `role`, `prefix`: for samples that belong together (a preference pair, branches of one prompt). `prefix`
    is the place, within the group, of the sample that this one continues; -1: none. A branch repeats the last token
    of its prefix's text as its own first token, so that its first target has a position that predicts it.
    """

    tokens: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    part: int = 0
    role: str = ""
    prefix: int = -1

    @property
    def coupled(self) -> bool:
        """Whether the sample belongs to a group: its loss or its context reaches into another sample of the row."""
        return bool(self.role) or self.prefix >= 0


class Piece(NamedTuple):
    """Text between two span bounds and the weight of its tokens as targets."""

    text: str
    weight: float


@dataclass(frozen=True)
class Policy:
    """The settings that decide tokens and weights (the run file's `data` section). Lengths are tokens."""

    loss_on: LossOn = "assistant"
    turn_end: TurnEnd = "end_of_turn"
    overlong: Literal["drop", "truncate", "split"] = "drop"
    sequence_length: int | None = None
    system: str | None = None


@dataclass
class SampleMaker:
    """Turns conversations into samples. `counts` holds what happened to rows that were kept, by name."""

    tokenizer: Tokenizer
    template: ChatTemplate | None
    policy: Policy = Policy()
    counts: Counter[str] = field(default_factory=Counter)

    @cached_property
    def _adds_blank(self) -> bool:
        """Whether the tokenizer puts a blank before any text it is given (SentencePiece's dummy prefix)."""
        return self.tokenizer.decode(self.tokenizer.encode("a") * 2) != "aa"

    @cached_property
    def _special_texts(self) -> tuple[str, ...]:
        special = self.tokenizer.special_ids
        return tuple(text for text, index in self.tokenizer.added_tokens.items() if index in special)

    def make(self, conversation: Conversation) -> list[Sample]:
        """The samples of one conversation, before any cut to the sequence length. Raises Refusal."""
        made = self._text(conversation) if isinstance(conversation, Text) else self._chat(conversation)
        for sample in made:
            if len(sample.tokens):
                sample.weights[0] = 0.0  # nothing predicts the first token
        if not any(sample.weights.any() for sample in made):
            raise Refusal("no_target", "no token of the row carries loss")
        unknown = self.tokenizer.unknown_id
        if unknown is not None and any((sample.tokens == unknown).any() for sample in made):
            self.counts["unknown_tokens"] += 1
        return made

    def _text(self, text: Text) -> list[Sample]:
        before, after = self.tokenizer.text_frame()
        prompt = self.tokenizer.encode(text.prompt) if text.prompt else []
        completion = self._encode_after(bool(text.prompt), text.completion)
        end = after or ([self.tokenizer.eos_id] if self.tokenizer.eos_id is not None else [])
        end = [] if self.policy.turn_end == "content" else end
        num_prompt = len(before) + len(prompt)
        weights = np.ones(num_prompt + len(completion) + len(end), dtype=np.float32)
        if text.prompt and self.policy.loss_on != "all":
            weights[:num_prompt] = 0.0
        return [Sample(np.array([*before, *prompt, *completion, *end], dtype=np.int32), weights)]

    def _chat(self, chat: Chat) -> list[Sample]:
        chat = chat.with_system(self.policy.system)
        if self.template is None:
            raise Refusal("no_template", "the tokenizer has no chat template; name one with data.chat_template")
        messages = chat.rendered_messages()
        trained = trained_turns(chat, self.policy.loss_on)
        found = spans(self.template, messages, tools=chat.tools, turn_end=self.policy.turn_end, turns=trained.keys())
        text = self.template.render(messages, tools=chat.tools)
        self._lint(messages)
        if self.policy.loss_on == "all":
            return [_everything(self.tokenizer.encode(text))]
        pieces = split_at(text, found, trained)
        encoded = [self._encode_after(place > 0, piece.text) for place, piece in enumerate(pieces)]
        tokens = np.array([token for ids in encoded for token in ids], dtype=np.int32)
        weights = np.repeat(np.array([piece.weight for piece in pieces], np.float32), [len(ids) for ids in encoded])
        if self.tokenizer.encode(text) != tokens.tolist():
            self.counts["joint_differs"] += 1
            if not all(self._served(text[: span.start], tokens) for span in found):
                return self._unrolled(text, found, trained)
        return [Sample(tokens, weights)]

    def _encode_after(self, has_before: bool, text: str) -> list[int]:
        """Ids of `text` alone. Where the tokenizer puts a blank before any text, it is kept out: text goes before."""
        if not has_before or not self._adds_blank:
            return self.tokenizer.encode(text)
        guard = self.tokenizer.encode("\n")
        guarded = self.tokenizer.encode("\n" + text)
        if guarded[: len(guard)] != guard:
            raise Refusal("not_separable", "the tokenizer joins the prompt's last token with the answer's first")
        return guarded[len(guard) :]

    def _served(self, prompt: str, tokens: npt.NDArray[np.int32]) -> bool:
        """Whether the ids that a server makes of `prompt` are the first of `tokens` (invariant 5)."""
        ids = self.tokenizer.encode(prompt)
        return bool(np.array_equal(np.array(ids, dtype=np.int32), tokens[: len(ids)]))

    def _unrolled(self, text: str, found: Sequence[Span], trained: dict[int, float]) -> list[Sample]:
        """One sample per trained turn: the prompt as a server tokenises it, then the turn."""
        self.counts["unrolled"] += 1
        made: list[Sample] = []
        for span in found:
            prompt = self.tokenizer.encode(text[: span.start])
            answer = self._encode_after(span.start > 0, text[span.start : span.end])
            weights = np.zeros(len(prompt) + len(answer), dtype=np.float32)
            weights[len(prompt) :] = trained[span.turn]
            made.append(Sample(np.array(prompt + answer, dtype=np.int32), weights, part=len(made)))
        return made

    def _lint(self, messages: Sequence[dict[str, object]]) -> None:
        contents = [content for message in messages if isinstance(content := message.get("content"), str)]
        if any(token in content for content in contents for token in self._special_texts):
            self.counts["special_token_in_content"] += 1


def _everything(ids: list[int]) -> Sample:
    return Sample(np.array(ids, dtype=np.int32), np.ones(len(ids), dtype=np.float32))


def split_at(text: str, found: Sequence[Span], trained: dict[int, float]) -> list[Piece]:
    """Cut `text` at the bounds of the trained spans; their pieces have the turn's weight, all others 0."""
    pieces, place = [], 0
    for span in found:
        pieces.append(Piece(text[place : span.start], 0.0))
        pieces.append(Piece(text[span.start : span.end], trained[span.turn]))
        place = span.end
    pieces.append(Piece(text[place:], 0.0))
    return [piece for piece in pieces if piece.text]
