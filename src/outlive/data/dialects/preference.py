"""Preferences: two answers to one prompt, of which one is better; and lists of answers with their ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive.data.conversation import Chat, Conversation, Group, Messages
from outlive.data.dialects.chat import system_of, unweighted
from outlive.data.dialects.sharegpt import column_of, turns_as_messages, with_roles
from outlive.data.format import Format, Row
from outlive.data.messages import read_messages
from outlive.data.naming import Naming
from outlive.data.splitting import Split, dialogue, split_messages, split_texts
from outlive.data.tool_calls import read_tools
from outlive.text.refusal import Refusal

# The columns of the better and of the worse answer; the first pair that a row has is meant.
PAIRS = (
    ("chosen", "rejected"),
    ("chosen_response", "rejected_response"),
    ("accepted", "rejected"),
    ("preferred", "dispreferred"),
    ("response_j", "response_k"),
    ("response", "rejected_response"),
    ("messages", "rejected_response"),
    ("messages", "rejected_messages"),
)
# Columns of the prompt. What is text under the first stays text; under the others it is a user's turn.
_PROMPTS = ("prompt", "instruction", "question", "query")
_ANSWERS = ("responses", "answers", "completions", "generations")
_SAID = (str, list, Mapping)
_SCORES = ("ranks", "rank", "ranking", "scores")


def pair_of(row: Row) -> tuple[str, str] | None:
    """The two columns of a pair that the row has, or None."""
    return next((pair for pair in PAIRS if all(isinstance(row.get(name), _SAID) for name in pair)), None)


def _fits(row: Row) -> frozenset[str] | None:
    pair = pair_of(row)
    if pair is None:
        return None
    prompt = {name for name in (*_PROMPTS, "conversations") if isinstance(row.get(name), str | list)}
    return frozenset({*pair, *prompt})


def _read(row: Row, naming: Naming | None) -> Group:
    pair = pair_of(row)
    assert pair is not None
    split = _split(row, pair, naming)
    if split.chosen == split.rejected:
        raise Refusal("identical_pair", f"{pair[0]} and {pair[1]} are equal", (pair[0],))
    for name, branch in zip(pair, split[1:], strict=True):
        _check_branch(branch, name)
    branches = (("chosen", split.chosen), ("rejected", split.rejected))
    implicit = pair[0] != "messages" and read_prompt(row, naming) is None
    return Group("preference", split.prompt, branches, read_tools(row), implicit=implicit)


def _split(row: Row, pair: tuple[str, str], naming: Naming | None) -> Split:
    prompt = read_prompt(row, naming)
    chosen, rejected = (_messages(row[name], name, naming) for name in pair)
    if pair[0] == "messages":  # all of them, of which the last is the better answer
        if not isinstance(chosen, list) or len(chosen) < 2 or chosen[-1]["role"] != "assistant":
            raise Refusal("bad_pair", "'messages' are to end with the assistant's turn", ("messages",))
        own = rejected if isinstance(rejected, list) else [{"role": "assistant", "content": rejected}]
        own = own[len(chosen) - 1 :] if len(own) > 1 and own[:-1] == chosen[:-1] else own
        return Split(_with_system(chosen[:-1], row), chosen[-1:], own)
    if isinstance(chosen, str) and isinstance(rejected, str):
        return _split_texts(prompt, chosen, rejected, row)
    if isinstance(chosen, str) or isinstance(rejected, str):
        raise Refusal("bad_pair", f"{pair[0]} and {pair[1]} are to be both text or both messages", (pair[0],))
    if chosen[0]["role"] != "assistant" and rejected[0]["role"] != "assistant":
        _refuse_other_prompt(prompt, chosen)
        found = split_messages(chosen, rejected)
        return found._replace(prompt=_with_system(found.prompt, row))
    if prompt is None:
        raise Refusal("bad_pair", "the row has no prompt, and its answers share none", (pair[0],))
    return Split(_with_system(_as_turn(prompt), row), chosen, rejected)


def _split_texts(prompt: Messages | str | None, chosen: str, rejected: str, row: Row) -> Split:
    if prompt is None:
        dialogues = dialogue(chosen), dialogue(rejected)
        if dialogues[0] is not None and dialogues[1] is not None:
            return split_messages(dialogues[0], dialogues[1])
        return split_texts(chosen, rejected)
    if isinstance(prompt, str) and isinstance(row.get("prompt"), str) and system_of(row) is None:
        return Split(prompt, chosen, rejected)
    turns = ([{"role": "assistant", "content": text}] for text in (chosen, rejected))
    return Split(_with_system(_as_turn(prompt), row), *turns)


def read_prompt(row: Row, naming: Naming | None) -> Messages | str | None:
    """The prompt of a row: messages, or text; None where it has none. An `input` goes after an `instruction`."""
    if (column := column_of(row)) is not None:
        return unweighted(read_messages(turns_as_messages(row[column], column), column, with_roles(naming)), column)
    name = next((name for name in _PROMPTS if row.get(name)), None)
    if name is None:
        return None
    value = row[name]
    if isinstance(value, str):
        more = row.get("input") if name == "instruction" else None
        return f"{value}\n{more}" if isinstance(more, str) and more.strip() else value
    found: Messages = _messages(value, name, naming)
    return found


def _messages(value: Any, column: str, naming: Naming | None) -> Any:
    """Text as it is; a message, or a list of them, checked, under either dialect's names."""
    if isinstance(value, str):
        return value
    listed = [value] if isinstance(value, Mapping) else value
    if isinstance(listed, list) and any(isinstance(turn, Mapping) and "from" in turn for turn in listed):
        return unweighted(read_messages(turns_as_messages(listed, column), column, with_roles(naming)), column)
    return unweighted(read_messages(listed, column, naming), column)


def _as_turn(prompt: Messages | str) -> Messages:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def _with_system(prompt: Messages, row: Row) -> Messages:
    system = system_of(row)
    return prompt if system is None else Chat(prompt).with_system(system).messages


def _refuse_other_prompt(prompt: Messages | str | None, chosen: Messages) -> None:
    """Refuse a prompt that is not how the answers begin, where these are whole conversations."""
    if prompt is None:
        return
    said = [turn["content"] for turn in chosen if turn["role"] != "system"]
    asked = [prompt] if isinstance(prompt, str) else [turn["content"] for turn in prompt if turn["role"] != "system"]
    if [str(text).strip() for text in asked] != [str(text).strip() for text in said[: len(asked)]]:
        raise Refusal("bad_pair", "the prompt is not how chosen begins, which holds a whole conversation", ("prompt",))


def _check_branch(branch: Messages | str, column: str) -> None:
    if isinstance(branch, str):
        if not branch.strip():
            raise Refusal("empty_text", f"'{column}' is empty", (column,))
        return
    if not any(turn["role"] == "assistant" for turn in branch):
        raise Refusal("bad_pair", f"'{column}' has no assistant turn", (column,))


def _read_chosen(row: Row, naming: Naming | None) -> Conversation:
    group = _read(row, naming)
    return group.branch(0)


def _answers_of(row: Row) -> str | None:
    return next((name for name in _ANSWERS if isinstance(row.get(name), list) and row[name]), None)


def _fits_ranking(row: Row) -> frozenset[str] | None:
    answers = _answers_of(row)
    asked = next((name for name in _PROMPTS if row.get(name)), None)
    if answers is None or asked is None:
        return None
    scores = next((name for name in _SCORES if isinstance(row.get(name), list)), None)
    if scores is None:
        items = row[answers]
        ranked = all(isinstance(item, Mapping) and ("rank" in item or "score" in item) for item in items)
        return frozenset({asked, answers}) if ranked else None
    return frozenset({asked, answers, scores})


def _read_ranking(row: Row, naming: Naming | None) -> Group:
    answers = _answers_of(row)
    prompt = read_prompt(row, naming)
    assert answers is not None
    assert prompt is not None
    scores = next((name for name in _SCORES if isinstance(row.get(name), list)), None)
    items: list[Any] = row[answers]
    best_first = scores is None or scores != "scores"
    if scores is None:
        best_first = all("rank" in item for item in items)
        ranks = [item["rank" if best_first else "score"] for item in items]
        items = [item.get("answer", item.get("text", item.get("content"))) for item in items]
    else:
        ranks = row[scores]
    if len(ranks) != len(items) or not all(isinstance(rank, int | float) for rank in ranks) or len(set(ranks)) < 2:
        where = (scores or answers,)
        raise Refusal("bad_pair", f"'{where[0]}' ranks {len(ranks)} of {len(items)} answers, as {ranks!r}", where)
    order = sorted(set(ranks), reverse=not best_first)
    branches = []
    for text, rank in sorted(zip(items, ranks, strict=True), key=lambda pair: order.index(pair[1])):
        branch = _messages(text, answers, naming) if text is not None else ""
        _check_branch(branch, answers)
        if not isinstance(prompt, str) and isinstance(branch, str):
            branch = [{"role": "assistant", "content": branch}]
        branches.append((f"rank_{order.index(rank) + 1}", branch))
    chats = any(not isinstance(branch, str) for _, branch in branches)
    return Group("ranking", _as_turn(prompt) if chats else prompt, tuple(branches), read_tools(row))


_KEYS = frozenset(
    {*(name for pair in PAIRS for name in pair), *_PROMPTS, "input", "system", "tools", "functions", "conversations"}
)

FORMATS = {
    "preference": Format(_KEYS, _fits, _read, "chosen and rejected, each text or messages; prompt?"),
    "chosen": Format(_KEYS, _fits, _read_chosen, "as preference: only the better answer is learned", detected=False),
    "ranking": Format(
        frozenset({*_PROMPTS, *_ANSWERS, *_SCORES, "input", "tools", "functions"}),
        _fits_ranking,
        _read_ranking,
        "prompt, responses: […], ranks or scores: […]; or answers: [{answer, rank}]",
    ),
}
