"""Promise: what Axolotl and LLaMA-Factory train on is trained on here, token by token, or they are wrong by name.

`TOOL_FAULTS` is the table of docs/templates.md. A mask is compared as text with marks and, where the real tokenizer is
there (OUTLIVE_TEST_MODEL), as ids and labels.
"""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from outlive.text.chat import Chat
from outlive.text.spans import TurnEnd, places, spans
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import CHATML, cases
from tests.text.conversations import Message

FOLDER = cases() / "masks"
PAGE = Path(__file__).parents[2] / "docs" / "templates.md"
END = "<|im_end|>"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no case masks")

# (tool, key of its options, conversation) → what is wrong with its mask. "*": any conversation.
TOOL_FAULTS = {
    ("axolotl", '{"roles_to_train": null, "train_on_eos": null}', "ends_user"): "the user's last message is cut to its "
    "last letter and trained as an answer",
    ("axolotl", '{"train_on_eos": "all"}', "empty_answer"): "the end of an empty answer is the only one that is not "
    "trained, since its empty content is not found",
    ("llamafactory", '{"cutoff_len": 24}', "*"): "the cut takes the end off each message before the answer, so the "
    "answer follows the middle of the system text without its header",
    ("llamafactory", "*", "ends_user"): "the conversation is dropped, with a warning in the log only",
    ("llamafactory", "*", "two_assistants"): "the conversation is dropped, with a warning in the log only",
}


class Policy(NamedTuple):
    """What belongs to a tool's options: which turns, up to where, and whether questions and their ends are trained."""

    turn_end: TurnEnd
    last_only: bool = False
    everything: bool = False
    questions: bool = False
    ends_of_questions: bool = False
    only_flagged: bool = False
    weighted: bool = True


def policy_of(case: dict[str, Any]) -> Policy:
    options = case["options"]
    if case["tool"].startswith("llamafactory"):
        return Policy("suffix", last_only="mask_history" in options, everything="train_on_prompt" in options)
    if options.get("roles_to_train", ...) is None:  # the trainer's old way: the last answer with all that follows
        return Policy("suffix", last_only=True, everything=bool(case["train_on_inputs"]), weighted=False)
    if "message_field_training" in options:
        return Policy("end_of_turn", only_flagged=True)
    eos = options.get("train_on_eos", "turn")
    questions = bool(case["train_on_inputs"]) or len(options.get("roles_to_train") or []) > 1
    return Policy("content" if eos == "none" else "end_of_turn", questions=questions, ends_of_questions=eos == "all")


def all_cases() -> list[dict[str, Any]]:
    found = []
    for name in ("axolotl", "llamafactory"):
        found += json.loads((FOLDER / f"{name}_smollm2.json").read_text("utf-8"))
    return found


def fault_of(case: dict[str, Any]) -> str | None:
    tool, options = case["tool"].split()[0], json.dumps(case["options"])
    for key in ((tool, options, case["conv"]), (tool, options, "*"), (tool, "*", case["conv"])):
        if key in TOOL_FAULTS:
            return TOOL_FAULTS[key]
    return None


def text_of(message: Message) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def rendered(case: dict[str, Any], conversations: dict[str, list[Message]]) -> tuple[ChatTemplate, list[Message]]:
    dot = "." if case["tool"].startswith("llamafactory") else ""
    system = f"a helpful AI assistant named SmolLM, trained by Hugging Face{dot}"
    template = ChatTemplate(CHATML.replace("a small assistant.", system), end_of_turn=[END])
    return template, [{"role": m["role"], "content": text_of(m)} for m in conversations[case["conv"]]]


def marked_characters(case: dict[str, Any], conversations: dict[str, list[Message]]) -> tuple[str, list[bool]]:
    """The render, and for each of its characters whether it is trained under the tool's policy."""
    template, messages = rendered(case, conversations)
    given, policy = conversations[case["conv"]], policy_of(case)
    full = template.render(messages)
    trained = [policy.everything] * len(full)
    answers = spans(template, messages, turn_end=policy.turn_end)
    for span in answers[-1:] if policy.last_only else answers:
        message = given[span.turn]
        if policy.only_flagged and not message.get("train") and "train_detail" not in message:
            continue
        trained[span.start : span.end] = [True] * (span.end - span.start)
        for start, end in untrained(message) if policy.weighted else []:
            for place in places(template, messages, turn=span.turn):
                first = place.start + max(start - place.offset, 0)
                trained[first : place.start + end - place.offset] = [False] * (place.start + end - place.offset - first)
    if policy.questions or policy.ends_of_questions:
        train_questions(Chat(template, messages, None), trained, policy)
    return full, trained


def untrained(message: Message) -> list[tuple[int, int]]:
    """The characters of a message that its own flags leave out."""
    found, place = [], 0
    for part in message["content"] if isinstance(message["content"], list) else []:
        if not part.get("train", True):
            # a token holds the blank before its word, and has the weight of its last character
            found.append((place, place + len(part["text"].rstrip(" "))))
        place += len(part["text"])
    details = [detail for detail in message.get("train_detail", []) if not detail["train"]]
    return found + [(detail["begin_offset"], detail["end_offset"] + 1) for detail in details]


def train_questions(chat: Chat, trained: list[bool], policy: Policy) -> None:
    for run in chat.trace.runs:
        if chat.messages[chat.trace.sources[run.source].message]["role"] != "assistant":
            end = chat.full.index(END, run.end) + len(END)
            start = run.start if policy.questions else run.end
            trained[start:end] = [True] * (end - start)


def with_marks(text: str, trained: list[bool]) -> str:
    pieces, on = [], False
    for char, now in zip(text, trained, strict=True):
        if now != on:
            pieces.append("⟦" if now else "⟧")
            on = now
        pieces.append(char)
    return "".join(pieces) + ("⟧" if on else "")


@pytest.fixture(scope="module")
def conversations() -> dict[str, list[Message]]:
    found: dict[str, list[Message]] = runpy.run_path(str(FOLDER / "conversations.py"))["CONVS"]
    return found


def test_each_golden_mask_is_reproduced_or_wrong_by_name(conversations: dict[str, list[Message]]) -> None:
    reproduced = faults = 0
    for case in all_cases():
        text, trained = marked_characters(case, conversations)
        same = with_marks(text, trained) == case.get("marked")
        assert same == (fault_of(case) is None), (
            case["tool"],
            case["options"],
            case["conv"],
            with_marks(text, trained),
        )
        reproduced += same
        faults += not same
    print(f"{reproduced} reproduced, {faults} wrong")
    assert reproduced >= 45


def test_each_golden_vector_token_by_token(conversations: dict[str, list[Message]]) -> None:
    folder = os.environ.get("OUTLIVE_TEST_MODEL")
    if folder is None:
        pytest.skip("needs OUTLIVE_TEST_MODEL: the golden vectors are ids of SmolLM2's vocabulary")
    tokenizer = Tokenizer.load(folder)
    for case in all_cases():
        if fault_of(case) is not None:
            continue
        text, trained = marked_characters(case, conversations)
        ids: list[int] = []
        labels: list[int] = []
        start = 0
        for place in range(1, len(text) + 1):
            if place == len(text) or trained[place] != trained[start]:
                piece = tokenizer.encode(text[start:place])
                ids += piece
                labels += piece if trained[start] else [-100] * len(piece)
                start = place
        assert (ids, labels) == (case["input_ids"], case["labels"]), (case["tool"], case["options"], case["conv"])


def test_the_documentation_names_each_fault() -> None:
    page = PAGE.read_text("utf-8")
    for (tool, options, conversation), what in TOOL_FAULTS.items():
        assert f"| {tool} | `{options}` | {conversation} | {what} |" in page
