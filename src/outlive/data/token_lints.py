"""What is worth a look in samples: what only the tokens show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from outlive.data.conversation import Chat, Conversation, Group, Text, Tokens
from outlive.data.sample import Sample
from outlive.text.tokenizer import Tokenizer

Ids = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
Seen = tuple[bool, bool, bool, bool]  # of a sample: doubled BOS, doubled EOS, learns an end of turn, learns all


class TokenLints:
    """The lints of samples, by one tokenizer's ids. `of_source`: those that fit every row, whatever it holds."""

    def __init__(self, tokenizer: Tokenizer, loss_on: str = "assistant") -> None:
        self._loss_on = loss_on
        self._bos, self._eos = tokenizer.bos_id, tokenizer.eos_id
        self._ends = sorted({*tokenizer.end_of_turn_ids})
        ends = (*tokenizer.end_of_turn_ids, self._eos)
        self.of_source = ["pad_is_eos"] if tokenizer.pad_id is not None and tokenizer.pad_id in ends else []

    def of(self, conversation: Conversation, samples: Sequence[Sample]) -> list[str]:
        """The names of lints that fit the samples of one conversation, before any cut."""
        return self.of_all([(conversation, samples)])[0]

    def of_all(self, made: Sequence[tuple[Conversation, Sequence[Sample]]]) -> list[list[str]]:
        """`of` each of many conversations with its samples: no sample is looked at by itself."""
        flat = [sample for _, samples in made for sample in samples]
        if not flat:
            return [self._names(conversation, []) for conversation, _ in made]
        tokens = np.concatenate([sample.tokens for sample in flat])
        weights = np.concatenate([sample.weights for sample in flat])
        ends = np.cumsum([len(sample.tokens) for sample in flat])
        starts = np.concatenate(([0], ends[:-1]))
        seen = zip(*(own.tolist() for own in self._seen(tokens, weights, starts, ends)), strict=True)
        return [self._names(conversation, [next(seen) for _ in samples]) for conversation, samples in made]

    def _seen(self, tokens: Ids, weights: Weights, starts: Places, ends: Places) -> list[npt.NDArray[np.bool_]]:
        """Of each sample, by its place among all: whether it has a doubled BOS, a doubled EOS, an end of turn that
        is a target, and no token but the first that is none. All bool [number of samples]."""
        none = np.zeros(len(starts), bool)
        doubled_bos = none
        if self._bos is not None and self._bos != self._eos:
            long, two = ends - starts >= 2, np.append(tokens, (-1, -1))
            doubled_bos = long & (two[starts] == self._bos) & (two[starts + 1] == self._bos)
        doubled_eos = none
        if self._eos is not None:
            is_eos = tokens == self._eos
            doubled = np.flatnonzero(is_eos[1:] & is_eos[:-1])
            own = np.searchsorted(ends, doubled, "right")
            doubled_eos = _among(own[doubled + 1 < ends[own]], len(starts))
        is_target = weights != 0
        is_end = np.zeros(len(tokens), bool)
        for end in self._ends:
            is_end |= tokens == end
        learned = np.searchsorted(ends, np.flatnonzero(is_end & is_target), "right")
        is_target[starts[starts < ends]] = True
        others = np.searchsorted(ends, np.flatnonzero(~is_target), "right")
        return [doubled_bos, doubled_eos, _among(learned, len(starts)), ~_among(others, len(starts))]

    def _names(self, conversation: Conversation, seen: Sequence[Seen]) -> list[str]:
        doubled_bos, doubled_eos, learns_end, learns_all = seen[0] if len(seen) == 1 else _together(seen)
        names: list[str] = []
        if doubled_bos:
            names.append("double_bos")
        if doubled_eos:
            names.append("double_eos")
        if isinstance(conversation, Group):
            return names
        if self._ends and not learns_end:
            names.append("end_of_turn_untrained")
        if self._learns_prompt(conversation, learns_all):
            names.append("prompt_in_loss")
        return names

    def _learns_prompt(self, conversation: Conversation, learns_all: bool) -> bool:
        """Whether every token is a target, in a conversation of which something is no answer."""
        if isinstance(conversation, Chat):
            return learns_all
        if isinstance(conversation, Tokens):  # the weights as they were given: a sample's first token is never a target
            return all(all(weights) for _, weights in conversation.documents)
        if isinstance(
            conversation, Text
        ):  # by what was asked for: a prompt of one token, the first, is no target anyway
            return bool(conversation.prompt) and self._loss_on == "all"
        return False


def _together(seen: Sequence[Seen]) -> Seen:
    """What several samples of a row show: `learns_all` of all of them, all else of any."""
    doubled_bos, doubled_eos, learns_end, learns_all = zip(*seen, strict=True) if seen else ((), (), (), ())
    return any(doubled_bos), any(doubled_eos), any(learns_end), all(learns_all)


def _among(places: Places, number: int) -> npt.NDArray[np.bool_]:
    """bool [number], true at the places."""
    found = np.zeros(number, bool)
    found[places] = True
    return found
