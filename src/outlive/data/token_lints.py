"""What is worth a look in samples: what only the tokens show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from outlive.data.conversation import Chat, Conversation, Group, Text, Tokens
from outlive.data.sample import Sample
from outlive.text.tokenizer import Tokenizer


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
        names: list[str] = []
        if any(self._is_doubled_bos(sample) for sample in samples):
            names.append("double_bos")
        if any(self._is_doubled_eos(sample) for sample in samples):
            names.append("double_eos")
        if isinstance(conversation, Group):
            return names
        if len(self._ends) and not any(self._learns_end(sample) for sample in samples):
            names.append("end_of_turn_untrained")
        if self._learns_prompt(conversation, samples):
            names.append("prompt_in_loss")
        return names

    def _is_doubled_bos(self, sample: Sample) -> bool:
        if self._bos is None or self._bos == self._eos or len(sample.tokens) < 2:
            return False
        return bool(sample.tokens[0] == self._bos == sample.tokens[1])

    def _is_doubled_eos(self, sample: Sample) -> bool:
        if self._eos is None:
            return False
        places = (sample.tokens == self._eos).nonzero()[0].tolist()
        return any(later == place + 1 for place, later in pairwise(places))

    def _learns_end(self, sample: Sample) -> bool:
        return any(bool(sample.weights[sample.tokens == end].any()) for end in self._ends)

    def _learns_prompt(self, conversation: Conversation, samples: Sequence[Sample]) -> bool:
        """Whether every token is a target, in a conversation of which something is no answer."""
        if isinstance(conversation, Tokens):  # the weights as they were given: a sample's first token is never a target
            return all(all(weights) for _, weights in conversation.documents)
        if isinstance(
            conversation, Text
        ):  # by what was asked for: a prompt of one token, the first, is no target anyway
            return bool(conversation.prompt) and self._loss_on == "all"
        return isinstance(conversation, Chat) and all(sample.weights[1:].all() for sample in samples)
