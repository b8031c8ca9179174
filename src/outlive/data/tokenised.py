"""Samples of rows that another tool has tokenised: their ids and weights as they are, one sample for each document."""

from __future__ import annotations

from outlive.data.conversation import Tokens
from outlive.data.sample import Sample, sample_of
from outlive.text.refusal import Refusal


def document_samples(tokens: Tokens, loss_on: str, vocab_size: int) -> list[Sample]:
    """One sample for each document, its weights under `loss_on`. Raises Refusal for an id that the vocabulary lacks."""
    made = []
    for part, (ids, weights) in enumerate(tokens.documents):
        if max(ids) >= vocab_size:
            raise Refusal("bad_tokens", f"the id {max(ids)} is past the tokenizer's {vocab_size} ids: was it another?")
        made.append(sample_of(list(ids), under_policy(list(weights), loss_on), part))
    return made


def under_policy(weights: list[float], loss_on: str) -> list[float]:
    """The weights that a row gives its tokens, under `loss_on`: all of them 1, the last run of them, or as they are."""
    if loss_on == "all":
        return [1.0] * len(weights)
    return _last_run(weights) if loss_on == "last_assistant" else weights


def _last_run(weights: list[float]) -> list[float]:
    end = max((place for place, weight in enumerate(weights) if weight), default=-1)
    start = end
    while start > 0 and weights[start - 1]:
        start -= 1
    return [weight if start <= place <= end else 0.0 for place, weight in enumerate(weights)]
