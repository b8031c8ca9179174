"""The methods by name. A new method is a file with a `terms` function and one entry of METHODS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from outlive.data.record_batch import Column, Kind
from outlive.learn import sft
from outlive.learn.user_loss import Terms, checked_terms, load_terms
from outlive.run.config import Method as MethodSection


@dataclass(frozen=True)
class Method:
    """A method: `terms(batch, logprobs, columns)` gives the parts of the objective.

    `reads` says what `logprobs` is: "logprobs" the log-probability of each target [num_targets], in the order of the
    batch's positions with weight; "weighted_sum" the scalar Σ target_weight·log p, which is cheaper, as its gradient
    is made in the forward. `columns` are what it reads beside tokens and weights.
    """

    name: str
    terms: Terms
    reads: Literal["logprobs", "weighted_sum"] = "logprobs"
    columns: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, function: Terms) -> Method:
        """A method from a loss of your own, a function (batch, logprobs, columns) → list of Term.

        What it returns is checked at every call. Raises InputError where it does not take these three. Columns of the
        rows are there only in a run that declares them: method: {loss: module:function, columns: …}.
        """
        name = getattr(function, "__name__", "your loss")
        return cls(name, checked_terms(function, f"the loss {name}"))


METHODS: dict[str, Method] = {"sft": Method("sft", sft.terms, reads="weighted_sum")}


def find_method(section: MethodSection) -> Method:
    """The method of a run: one of METHODS, or the user's own loss `module:function` with the columns it declares."""
    if section.loss is None:
        return METHODS[section.name]
    return user_method(section.loss, section.columns)


def user_method(loss: str, columns: Mapping[str, Kind]) -> Method:
    """A method from `module:function`, a function (batch, logprobs, columns) → list of Term. Raises InputError."""
    columns_read = {name: Column(kind) for name, kind in columns.items()}
    return Method(loss, load_terms(loss), "logprobs", columns_read)
