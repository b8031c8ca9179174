"""Conversations → samples: which tokens the model sees, and which of them carry loss.

The mask comes from `text.spans` alone. Text is tokenised piece by piece between span bounds, as a server does it: the
prompt first, then what the model generates. A token that straddles a bound cannot exist.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from outlive.data.ahead import Ready, made_ahead
from outlive.data.conversation import ROLES, Chat, Conversation, Group, Segments, Text, Tokens, trained_turns
from outlive.data.groups import group_samples, refuse_groups
from outlive.data.part_weights import CutText, Piece, part_weights, split_at, weights_of
from outlive.data.parts_joint import parts_joint
from outlive.data.sample import Sample, sample_of
from outlive.data.tokenised import document_samples, under_policy
from outlive.run.errors import InputError
from outlive.text.certificate import certify
from outlive.text.joints import Joints
from outlive.text.refusal import Refusal
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
from outlive.text.written import written

__all__ = ["Draft", "Policy", "Sample", "SampleMaker"]

Ids = npt.NDArray[np.int32]
LossOn = Literal["assistant", "last_assistant", "completion", "all"]
TurnEnd = Literal["content", "end_of_turn", "suffix"]
_NO_IDS = np.zeros(0, np.int32)
_GUARD = "\n"  # goes before a text to which the tokenizer would add a blank
_LOOKED_AT_WHOLE = 251  # of so many texts about one is tokenised as a whole, though its bounds show no difference


@dataclass(frozen=True)
class Policy:
    """The settings that decide tokens and weights (the run file's `data` section). Lengths are tokens."""

    loss_on: LossOn = "assistant"
    turn_end: TurnEnd = "end_of_turn"
    overlong: Literal["drop", "truncate", "split"] = "drop"
    sequence_length: int | None = None
    system: str | None = None


class Draft(NamedTuple):
    """A conversation that is rendered, where it is a chat: its texts, and what was seen of it."""

    conversation: Conversation
    texts: list[CutText]
    lints: list[str]


@dataclass
class SampleMaker:
    """Turns conversations into samples. `counts` holds what happened to rows that were kept, by name.

    `groups`: whether rows that hold groups are made into samples; else the first of them is an InputError, since the
    method learns from single conversations. `lints`: what was seen in the last conversation while it was rendered.
    """

    tokenizer: Tokenizer
    template: ChatTemplate | None
    policy: Policy = Policy()
    counts: Counter[str] = field(default_factory=Counter)
    groups: bool = False
    lints: list[str] = field(default_factory=list)
    _ahead: dict[str, Ids] = field(default_factory=dict, repr=False)
    _ready: dict[int, Ready] = field(default_factory=dict, repr=False)  # by the id of a text, which it holds

    @cached_property
    def _adds_blank(self) -> bool:
        """Whether the tokenizer puts a blank before any text it is given (SentencePiece's dummy prefix)."""
        return self.tokenizer.decode(self.tokenizer.encode("a") * 2) != "aa"

    @cached_property
    def _joints(self) -> Joints:
        return Joints(self.tokenizer)

    @cached_property
    def _special_text(self) -> tuple[str, re.Pattern[str]]:
        """The characters with which special tokens' texts begin, and a pattern of these texts."""
        special = self.tokenizer.special_ids
        texts = [text for text, index in self.tokenizer.added_tokens.items() if index in special and text]
        firsts = "".join(dict.fromkeys(text[0] for text in texts))
        return firsts, re.compile("|".join(map(re.escape, texts)))

    @cached_property
    def _joint(self) -> str:
        return parts_joint(self.template) if self.template is not None else "\n"

    @cached_property
    def _roles(self) -> tuple[str, ...]:
        """The roles that the template knows: those that do not name the developer are given a system turn instead."""
        knows = self.template is None or "developer" in self.template.source
        return ROLES if knows else tuple(role for role in ROLES if role != "developer")

    def draft(self, conversation: Conversation) -> Draft:
        """What can be done of a conversation before any of it is tokenised. Raises Refusal.

        Drafts of many rows, and then the samples of all, take less time than row by row: rendering and tokenising each
        find their own data in the processor's caches.
        """
        self.lints = []
        if not isinstance(conversation, Chat) or self.policy.loss_on == "all":
            return Draft(conversation, [], self.lints)
        chat = conversation.with_system(self.policy.system)
        return Draft(chat, self.texts(chat), self.lints)

    def encode_ahead(self, drafts: Sequence[Draft]) -> None:
        """Tokenise what the drafts will need, all of it at once. Text that can't be tokenised is left to `finish`."""
        texts = list(dict.fromkeys(chain.from_iterable(map(self._needed, drafts))))
        self._ahead, self._ready = {}, {}
        with suppress(InputError):
            self._ahead = dict(zip(texts, self.tokenizer.encode_all(texts), strict=True))
            if not self._adds_blank:
                alone = [draft.texts[0] for draft in drafts if len(draft.texts) == 1]
                plain = [text for text in alone if not any(piece.parts for piece in text.pieces)]
                ready = made_ahead(plain, self._ahead, self._joints, self.tokenizer.unknown_id)
                self._ready = {id(one.text): one for one in ready}

    def _needed(self, draft: Draft) -> list[str]:
        conversation = draft.conversation
        if draft.texts:
            return [self._guarded(place, piece.text) for text in draft.texts for place, piece in enumerate(text.pieces)]
        if isinstance(conversation, Text):
            own = [conversation.prompt, conversation.completion] if conversation.prompt else [conversation.completion]
            return [self._guarded(place, text) for place, text in enumerate(own)]
        return []

    def make(self, conversation: Conversation) -> list[Sample]:
        """The samples of one conversation, before any cut to the sequence length. Raises Refusal."""
        return self.finish(self.draft(conversation))

    def finish(self, draft: Draft) -> list[Sample]:
        """The samples of a draft, as `make` gives them."""
        self.lints, conversation = draft.lints, draft.conversation
        ready = self._ready.get(id(draft.texts[0])) if len(draft.texts) == 1 else None
        made = self._chat(draft.texts) if draft.texts else self._make(conversation)
        if ready is not None and len(made) == 1 and made[0] is ready.sample:  # looked at with all others, at once
            learns, unknown = ready.learns, ready.has_unknown
        else:
            learns, unknown = self._looked_at(made)
        if not learns and not (isinstance(conversation, Group) and not conversation.branches):  # which is a prompt
            raise Refusal("no_target", "no token of the row carries loss")
        if len(self._roles) < len(ROLES) and _has_developer(conversation):
            self.counts["developer_as_system"] += 1
        if unknown:
            self.counts["unknown_tokens"] += 1
        return made

    def _looked_at(self, made: Sequence[Sample]) -> tuple[bool, bool]:
        """Whether samples have a target, and a token that stands for text that the tokenizer does not know. The weight
        of each first token becomes 0: nothing predicts it."""
        for sample in made:
            if len(sample.tokens):
                sample.weights[0] = 0.0
        unknown = self.tokenizer.unknown_id
        learns = any(sample.weights.any() for sample in made)
        return learns, unknown is not None and any((sample.tokens == unknown).any() for sample in made)

    def _make(self, conversation: Conversation) -> list[Sample]:
        if isinstance(conversation, Chat):
            return [self._all_of(conversation.with_system(self.policy.system))]
        if isinstance(conversation, Text):
            return [self.text(conversation)]
        if isinstance(conversation, Segments):
            return [self._segments(conversation)]
        if isinstance(conversation, Tokens):
            return document_samples(conversation, self.policy.loss_on, self.tokenizer.vocab_size)
        if not self.groups:
            refuse_groups(conversation)
        return group_samples(self, conversation)

    def text(self, text: Text, ended: bool = True) -> Sample:
        """The sample of a plain text; `ended`: whether the end of text follows it."""
        before, after = self.tokenizer.text_frame()
        prompt = self.encode_after(False, text.prompt) if text.prompt else _NO_IDS
        completion = self.encode_after(bool(text.prompt), text.completion)
        end = after or ([self.tokenizer.eos_id] if self.tokenizer.eos_id is not None else [])
        end = [] if self.policy.turn_end == "content" or not ended else end
        num_prompt = len(before) + len(prompt)
        tokens = np.concatenate([np.array(before, np.int32), prompt, completion, np.array(end, np.int32)])
        weights = np.ones(len(tokens), np.float32)
        if text.prompt and self.policy.loss_on != "all":
            weights[:num_prompt] = 0.0
        return Sample(tokens, weights)

    def _segments(self, value: Segments) -> Sample:
        encoded = [self.encode_after(place > 0, text) for place, (text, _) in enumerate(value.segments)]
        flat = [weight for (_, weight), ids in zip(value.segments, encoded, strict=True) for _ in ids]
        tokens = np.concatenate([_NO_IDS, *encoded]).tolist()
        return sample_of(tokens, under_policy(flat, self.policy.loss_on))

    def _all_of(self, chat: Chat) -> Sample:
        """A chat of which every token is a target. It has to be one that could be cut at its turns, too."""
        self.texts(chat)
        assert self.template is not None
        return sample_of(self.tokenizer.encode(self.template.render(self.rendered(chat), tools=chat.tools)), 1.0)

    def _chat(self, texts: Sequence[CutText]) -> list[Sample]:
        if len(texts) > 1:
            self.counts["unrolled"] += 1
            self.lints.append("served_prompt_differs")
            return [self.joined(text.pieces)._replace(part=part) for part, text in enumerate(texts)]
        (text,) = texts
        sample, differs = self.joined_as_served(text)
        if differs:
            self.counts["joint_differs"] += 1
            if not all(self.served(text.text[: span.start], sample) for span in text.spans):
                return self._unrolled(text)
        return [sample]

    def joined_as_served(self, text: CutText) -> tuple[Sample, bool]:
        """The sample of a text's pieces, and whether the tokenizer gives other ids to the text as a whole."""
        ready = self._ready.get(id(text))
        if ready is not None:
            sample, agree = ready.sample, ready.agree
        else:
            ids = self._encoded(text.pieces)
            sample = self._weighted(text.pieces, ids)
            agree = self._joints.agree([piece.text for piece in text.pieces], ids)
        if agree and len(text.text) % _LOOKED_AT_WHOLE:
            return sample, False
        differs = self.tokenizer.encode(text.text) != sample.tokens.tolist()
        if agree and differs:
            self.counts["joint_unseen"] += 1
        return sample, differs

    def texts(self, chat: Chat) -> list[CutText]:
        """What is trained of a chat: its render with all its turns, or one text for each; cut at the spans' bounds.

        Raises Refusal.
        """
        if self.template is None:
            raise Refusal("no_template", "the tokenizer has no chat template; name one with data.chat_template")
        messages = self.rendered(chat)
        trained = trained_turns(chat, self.policy.loss_on)
        texts = written(self.template, messages, tools=chat.tools, turn_end=self.policy.turn_end, turns=trained.keys())
        self._lint(messages, texts[-1].text)
        if chat.tools and not certify(self.template).takes_tools:
            self.lints.append("tools_not_shown")
        found = []
        for text in texts:
            parts = part_weights(self.template, chat, messages, text, self._joint) if chat.weights else {}
            found.append(CutText(text.text, text.spans, split_at(text.text, text.spans, trained, parts)))
        return found

    def rendered(self, chat: Chat) -> list[dict[str, Any]]:
        """The messages as this template is given them."""
        arguments = certify(self.template).arguments if self.template is not None and chat.calls_tools else "object"
        return chat.rendered_messages(self._joint, self._roles, arguments)

    def joined(self, pieces: Sequence[Piece]) -> Sample:
        """The sample of pieces that follow each other, each tokenised on its own."""
        return self._weighted(pieces, self._encoded(pieces))

    def _encoded(self, pieces: Sequence[Piece]) -> list[Ids]:
        return [self.encode_after(place > 0, piece.text) for place, piece in enumerate(pieces)]

    def _weighted(self, pieces: Sequence[Piece], encoded: Sequence[Ids]) -> Sample:
        lengths = [len(own) for own in encoded]
        weights = np.repeat(np.array([piece.weight for piece in pieces], np.float32), lengths)
        place = 0
        for piece, own in zip(pieces, encoded, strict=True):
            if piece.parts:
                weights[place : place + len(own)] = weights_of(piece, own.tolist(), self.tokenizer)
            place += len(own)
        return Sample(np.concatenate(encoded), weights)

    def encode_after(self, has_before: bool, text: str) -> Ids:
        """Ids of `text` alone. Where the tokenizer puts a blank before any text, it is kept out: text goes before."""
        asked = self._guarded(has_before, text)
        found = self._ahead.get(asked)
        ids = self.tokenizer.encode_all([asked])[0] if found is None else found
        if asked is text:
            return ids
        guard = self.tokenizer.encode(_GUARD)
        if ids[: len(guard)].tolist() != guard:
            raise Refusal("not_separable", "the tokenizer joins the prompt's last token with the answer's first")
        return ids[len(guard) :]

    def encode_with_ends_after(self, has_before: bool, text: str) -> tuple[list[int], list[int]]:
        """As `encode_after`, and where in `text` each token ends, in characters."""
        asked = self._guarded(has_before, text)
        ids, ends = self.tokenizer.encode_with_ends(asked)
        guard = len(self.tokenizer.encode(_GUARD)) if asked is not text else 0
        return ids[guard:], [end - (len(asked) - len(text)) for end in ends[guard:]]

    def _guarded(self, has_before: object, text: str) -> str:
        return _GUARD + text if has_before and self._adds_blank else text

    def served(self, prompt: str, sample: Sample) -> bool:
        """Whether the ids that a server makes of `prompt` are the first of the sample's (invariant 5)."""
        ids = self.tokenizer.encode(prompt)
        return bool(np.array_equal(np.array(ids, dtype=np.int32), sample.tokens[: len(ids)]))

    def _unrolled(self, text: CutText) -> list[Sample]:
        """One sample per trained turn: the prompt as a server tokenises it, then the turn."""
        self.counts["unrolled"] += 1
        self.lints.append("served_prompt_differs")
        made: list[Sample] = []
        place = 0
        for piece in text.pieces:
            if piece.trained:
                prompt = [Piece(text.text[:place], 0.0)] if place else []
                made.append(self.joined([*prompt, piece])._replace(part=len(made)))
            place += len(piece.text)
        return made

    def _lint(self, messages: Sequence[dict[str, object]], text: str) -> None:
        contents = [(message["role"], message.get("content")) for message in messages]
        texts = [(role, content) for role, content in contents if isinstance(content, str)]
        if any(self._quotes_special(content) for _, content in texts):
            self.counts["special_token_in_content"] += 1
            self.lints.append("special_token_in_content")
        if any(role in ("system", "user") and content.strip() not in text for role, content in texts):
            self.lints.append("message_not_shown")

    def _quotes_special(self, text: str) -> bool:
        firsts, pattern = self._special_text
        for first in firsts:
            if first in text:  # most texts have none of them, which costs a fraction to know
                return pattern.search(text) is not None
        return False


def _has_developer(conversation: Conversation) -> bool:
    messages = conversation.messages if isinstance(conversation, Chat) else getattr(conversation, "prompt", "")
    return isinstance(messages, list) and any(message["role"] == "developer" for message in messages)
