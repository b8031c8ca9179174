"""Instruction data: a question in one or more columns and its answer in another, read as a chat of two turns.

The words that other tools put around such rows ("### Instruction:", "USER:" …) are a prompt format of their own; here
the model's chat template takes their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from outlive.data.conversation import Chat, Messages
from outlive.data.dialects.chat import chat_of
from outlive.data.format import Format, Row
from outlive.data.naming import Naming
from outlive.text.refusal import Refusal

_NOTE = "the prompt text that other tools put around such rows is not reproduced: the chat template takes its place"


class Family(NamedTuple):
    """Columns of the question, joined by `joint`, and of the answer. `optional`: further columns of the question."""

    question: tuple[str, ...]
    answer: str
    optional: tuple[str, ...] = ()
    joint: str = "\n"
    system: str = "system"
    reply: Callable[[Row, str], str] = lambda row, answer: answer


def _corrected(row: Row, answer: str) -> str:
    return f"{answer}\n\n{row['reflection']}\n\n{row['corrected']}"


FAMILIES = {
    "alpaca": Family(("instruction",), "output", ("input",)),
    "gpteacher": Family(("instruction",), "response", ("input",)),
    "dolly": Family(("instruction", "context"), "response"),
    "reflection": Family(("instruction", "reflection", "corrected"), "output", ("input",), reply=_corrected),
    "oasst": Family(("INSTRUCTION",), "RESPONSE"),
    "question_answer": Family(("question",), "answer"),
    "jeopardy": Family(("question", "category"), "answer"),
    "context_qa": Family(("context", "question"), "answer", joint="\n\n"),
    "article_qa": Family(("article", "question"), "answer", joint="\n\n"),
    "multiple_choice": Family(("question", "choices"), "solution"),
    "explained_choice": Family(("question", "choices"), "explanation"),
    "summarize_tldr": Family(("article",), "summary"),
    "open_orca": Family(("system_prompt", "question"), "response", system="system_prompt"),
    "camel_ai": Family(("message_1",), "message_2"),
    "metharme": Family(("prompt",), "generation"),
    "prompt_response": Family(("prompt",), "response"),
    "query_response": Family(("query",), "response"),
    "revision": Family(("instruction",), "revision"),
}
_NOT_ASKED = ("reflection", "corrected", "system_prompt")  # needed, but no part of the question


def _needs(family: Family) -> frozenset[str]:
    return frozenset({*family.question, family.answer})


def _fits(family: Family) -> Callable[[Row], frozenset[str] | None]:
    needed = _needs(family)

    def fits(row: Row) -> frozenset[str] | None:
        for name in needed:
            value = row.get(name)
            if not isinstance(value, str) and not (name == "choices" and isinstance(value, list)):
                return None
        return needed

    return fits


def _reader(family: Family) -> Callable[[Row, Naming | None], Chat]:
    asked = tuple(name for name in family.question if name not in _NOT_ASKED)

    def read(row: Row, naming: Naming | None) -> Chat:
        parts = [_text(row, name) for name in (*asked, *family.optional)]
        question = family.joint.join(part for part in parts if part.strip())
        if not question:
            raise Refusal("empty_text", f"{' and '.join(asked)} are empty", (asked[0],))
        answer = family.reply(row, _text(row, family.answer))
        turns = [*_history(row), {"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        system = row.get(family.system)
        return chat_of((turns, ()), {**row, "system": system})

    return read


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    if value is None or value != value:  # NaN: what tables have where nothing is
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(f"- {item}" for item in value)
    if not isinstance(value, str):
        raise Refusal("content_not_text", f"'{name}' is {value!r}, not text", (name,))
    return value


def _history(row: Row) -> Messages:
    """Earlier turns, [[question, answer] …]; their answers carry loss as the last one does."""
    turns: Messages = []
    history = row.get("history") or []
    if not isinstance(history, list):
        raise Refusal("bad_message", "'history' is no list of pairs", ("history",))
    for place, pair in enumerate(history):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            raise Refusal("bad_message", f"history[{place}] is no pair of question and answer", ("history", place))
        turns += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    return turns


def _format(family: Family) -> Format:
    keys = {*_needs(family), *family.optional, family.system, "history", "tools"}
    shape = ", ".join([*family.question, *(f"{name}?" for name in family.optional), family.answer])
    return Format(frozenset(keys), _fits(family), _reader(family), shape, _NOTE)


def families(named: Mapping[str, Family]) -> dict[str, Format]:
    """The formats of a table of families."""
    return {name: _format(family) for name, family in named.items()}


FORMATS: dict[str, Any] = families(FAMILIES)
