"""Answers that are judged one by one: good or bad (KTO), step by step, or by a reward that knows the right answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive.data.conversation import Chat, Group, Messages
from outlive.data.dialects.chat import system_of, unweighted
from outlive.data.dialects.plain import read_pair
from outlive.data.format import Format, Row
from outlive.data.messages import ReadMessages, read_messages
from outlive.data.naming import Naming
from outlive.data.tool_calls import read_tools
from outlive.text.refusal import Refusal

_LABELS = {"true": True, "false": False, "1": True, "0": False, "good": True, "bad": False}
# What the right answer is called; the first that a row has is meant.
_ANSWERS = ("answer", "ground_truth", "solution", "reward_model")


def label_of(value: Any) -> bool | None:
    """A label as tools write it: true, 1, 1.0, "true" …; None for what is no label."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    return _LABELS.get(value.strip().lower()) if isinstance(value, str) else None


def _fits_kto(row: Row) -> frozenset[str] | None:
    asked = isinstance(row.get("prompt"), str | list) and isinstance(row.get("completion"), str | list | Mapping)
    return frozenset({"prompt", "completion", "label"}) if asked and "label" in row else None


def _read_kto(row: Row, naming: Naming | None) -> Group:
    label = label_of(row["label"])
    if label is None:
        raise Refusal("bad_label", f"the label is {row['label']!r}; it is to be true or false", ("label",))
    pair = read_pair(row["prompt"], row["completion"], row, naming)
    role = "desirable" if label else "undesirable"
    if not isinstance(pair, Chat):
        return Group("kto", pair.prompt, ((role, pair.completion),))
    unweighted(ReadMessages(pair.messages, pair.weights), "completion")
    prompt, own = pair.messages[: pair.first_trained], pair.messages[pair.first_trained :]
    return Group("kto", prompt, ((role, own),), pair.tools)


def _fits_answer(row: Row) -> frozenset[str] | None:
    name = _answer_of(row)
    return frozenset({"prompt", name}) if name and isinstance(row.get("prompt"), str | list) else None


def _answer_of(row: Row) -> str | None:
    return next((name for name in _ANSWERS if row.get(name) is not None), None)


def _read_answer(row: Row, naming: Naming | None) -> Group:
    name = _answer_of(row)
    answer = row[name] if name else None
    if isinstance(answer, Mapping):  # verl: {"style": "rule", "ground_truth": …}
        answer = answer.get("ground_truth")
    if answer is None or answer == "":
        raise Refusal("no_answer", f"'{name}' holds no answer", (name or "answer",))
    prompt: Messages | str = row["prompt"]
    if not isinstance(prompt, str):
        prompt = unweighted(read_messages(prompt, "prompt", naming), "prompt")
        prompt = Chat(prompt).with_system(system_of(row)).messages
    elif not prompt.strip():
        raise Refusal("empty_text", "the prompt is empty", ("prompt",))
    return Group("prompt_answer", prompt, (), read_tools(row), answer=answer)


def _fits_steps(row: Row) -> frozenset[str] | None:
    lists = all(isinstance(row.get(name), list) for name in ("completions", "labels"))
    return frozenset({"prompt", "completions", "labels"}) if lists and isinstance(row.get("prompt"), str) else None


def _read_steps(row: Row, naming: Naming | None) -> Group:
    steps, labels = row["completions"], [label_of(value) for value in row["labels"]]
    if len(steps) != len(labels) or not steps:
        what = f"there are {len(steps)} completions and {len(labels)} labels"
        raise Refusal("bad_label", what, ("labels",))
    branches = []
    for place, (step, label) in enumerate(zip(steps, labels, strict=True)):
        if not isinstance(step, str) or not step:
            raise Refusal("content_not_text", f"completions[{place}] is no text", ("completions", place))
        if label is None:
            raise Refusal("bad_label", f"labels[{place}] is neither true nor false", ("labels", place))
        branches.append(("good_step" if label else "bad_step", step if place == 0 else f"\n{step}"))
    return Group("stepwise", row["prompt"], tuple(branches), chained=True)


FORMATS = {
    "kto": Format(
        frozenset({"prompt", "completion", "label", "tools", "functions"}),
        _fits_kto,
        _read_kto,
        "prompt, completion, label (true, false, 0, 1)",
    ),
    "prompt_answer": Format(
        frozenset({"prompt", *_ANSWERS, "data_source", "ability", "extra_info", "system", "tools", "functions"}),
        _fits_answer,
        _read_answer,
        "prompt, and answer, ground_truth, solution or reward_model: {ground_truth}",
    ),
    "stepwise": Format(
        frozenset({"prompt", "completions", "labels"}),
        _fits_steps,
        _read_steps,
        "prompt, completions: [step], labels: [true or false]",
    ),
}
