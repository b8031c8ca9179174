"""The methods by name. A new method is a file with a `terms` function and one entry of METHODS."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from outlive.data.batch import Batch
from outlive.data.store import Column, Kind
from outlive.learn import sft
from outlive.learn.loss_rule import Term
from outlive.run.config import Method as MethodSection
from outlive.run.errors import InputError

Terms = Callable[[Batch, torch.Tensor, Mapping[str, torch.Tensor]], list[Term]]


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


METHODS: dict[str, Method] = {"sft": Method("sft", sft.terms, reads="weighted_sum")}


def find_method(section: MethodSection) -> Method:
    """The method of a run: one of METHODS, or the user's own loss `module:function` with the columns it declares."""
    if section.loss is None:
        return METHODS[section.name]
    return user_method(section.loss, section.columns)


def user_method(loss: str, columns: Mapping[str, Kind]) -> Method:
    """A method from `module:function`, a function (batch, logprobs, columns) → list of Term. Raises InputError."""
    module_name, _, function_name = loss.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name.split(".")[0]):
            raise
        raise InputError(
            f"there is no module {error.name}",
            where=f"method.loss: {loss}",
            fix="install it, or set PYTHONPATH to its folder",
        ) from None
    except AttributeError:
        raise InputError(f"{module_name} has no {function_name}", where=f"method.loss: {loss}") from None
    if not callable(function) or len(inspect.signature(function).parameters) != 3:
        raise InputError(
            f"{function_name} is to be a function of (batch, logprobs, columns)", where=f"method.loss: {loss}"
        )
    return Method(loss, function, "logprobs", {name: Column(kind) for name, kind in columns.items()})
