"""Promise: rows of every dialect are read unchanged, into the same few shapes; what is not clear is refused by name."""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

import pytest

from outlive.data.conversation import Chat, Conversation, Group, Segments, Text
from outlive.data.formats import FORMATS, detect, read_conversation
from outlive.data.messages import read_messages
from outlive.data.naming import Naming
from outlive.run.config import Data, Source
from outlive.run.errors import InputError
from outlive.run.settings.data import RowFormat
from outlive.text.refusal import Refusal
from tests.data.golden_rows import GOLDEN, QA, Golden, said

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


def plainly(conversation: Conversation) -> Any:
    """A conversation as the golden rows write it."""
    if isinstance(conversation, Chat):
        return conversation.messages
    if isinstance(conversation, Text):
        return [conversation.prompt, conversation.completion]
    if isinstance(conversation, Segments):
        return list(conversation.segments)
    if isinstance(conversation, Group):
        answer = {} if conversation.answer is None else {"answer": conversation.answer}
        return {"prompt": conversation.prompt, **dict(conversation.branches), **answer}
    return list(conversation.documents)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{golden.format}: {golden.about}")
def test_golden_rows(golden: Golden) -> None:
    if FORMATS[golden.format].detected:
        assert detect(golden.row)[0] == golden.format
    assert plainly(read_conversation(golden.row, golden.format)) == golden.becomes


def test_every_format_has_a_golden_row_and_a_name_in_the_run_file() -> None:
    assert set(FORMATS) == {golden.format for golden in GOLDEN} == set(typing.get_args(RowFormat))


def table() -> str:
    """The table of docs/formats.md."""
    lines = ["| format | made by, or what is special | a row |", "|---|---|---|"]
    for golden in GOLDEN:
        row = json.dumps(golden.row, ensure_ascii=False).replace("|", "\\|")
        lines.append(f"| `{golden.format}` | {golden.about} | `{row}` |")
    return "\n".join(lines)


def test_the_page_shows_the_rows_that_are_tested() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


def test_the_page_lists_every_lint() -> None:
    from outlive.data.lints import LINTS

    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}` | {about} |".replace("<|…|>", "<\\|…\\|>") in page for name, about in LINTS.items())


AMBIGUOUS = [
    ({"messages": QA, "chosen": [QA[1]], "rejected": [QA[1]], "prompt": "hi"}, {"messages", "preference"}),
    ({"instruction": "a", "input": "", "output": "b", "text": "### Instruction: a"}, {"alpaca", "text"}),
    ({"messages": QA, "input_ids": [1, 2]}, {"messages", "tokens"}),
    ({"prompt": "a", "completion": "b", "answer": "c"}, {"prompt_completion", "prompt_answer"}),
]


@pytest.mark.parametrize(("row", "both"), AMBIGUOUS)
def test_a_row_that_fits_two_formats_is_refused_with_both(row: dict[str, Any], both: set[str]) -> None:
    with pytest.raises(Refusal) as error:
        detect(row)
    assert error.value.reason == "ambiguous_format"
    assert all(f"'{name}'" in error.value.detail for name in both)
    for name in both:  # named, each of them is read
        if name != "preference":
            assert read_conversation(row, name)


@pytest.mark.parametrize(
    ("row", "fields", "roles", "becomes"),
    [
        ({"dialog": {"turns": QA}}, {"messages": "dialog.turns"}, {}, QA),
        ({"chat.log": QA}, {"messages": "chat.log"}, {}, QA),
        (
            {"m": [{"who": "Kunde", "said": "hi"}, {"who": "Hilfe", "said": "yes"}]},
            {"messages": "m", "message.role": "who", "message.content": "said"},
            {"Kunde": "user", "Hilfe": "assistant"},
            QA,
        ),
        ({"q": "hi", "a": "yes"}, {"instruction": "q", "output": "a"}, {}, QA),
        (
            {"conversations": [{"from": "Q", "value": "hi"}, {"from": "gpt", "value": "yes"}]},
            {},
            {"Q": "user"},
            QA,
        ),
        ({"prompt": "hi", "answer": "yes"}, {"instruction": "prompt", "output": "answer"}, {}, QA),
    ],
)
def test_a_mapping_overrides_names(row: Any, fields: dict[str, str], roles: dict[str, str], becomes: Any) -> None:
    naming = Naming(fields, roles)
    renamed = naming.row(row)
    (name, _) = detect(renamed)
    assert plainly(read_conversation(renamed, name, naming)) == becomes


def test_a_mapping_that_names_nothing_is_refused() -> None:
    from outlive.data.conversation import ROLES
    from outlive.data.formats import FIELDS

    with pytest.raises(InputError, match="did you mean messages"):
        Naming({"mesages": "a"}).check(FIELDS, ROLES)
    with pytest.raises(InputError, match="did you mean assistant"):
        Naming({}, {"bot": "asistant"}).check(FIELDS, ROLES)
    with pytest.raises(Refusal, match="missing_field"):
        Naming({"messages": "a.b"}).row({"a": {"c": 1}})
    assert Data(train=[Source(path="x", fields={"messages": "a"}, roles={"bot": "assistant"})]).train[0].roles


@pytest.mark.parametrize(
    ("message", "weight"),
    [
        ({"weight": 0}, 0.0),
        ({"weight": 0.25}, 0.25),
        ({"train": False}, 0.0),
        ({"trainable": True}, 1.0),
        ({"train_on_turn": False}, 0.0),
        ({"loss": False}, 0.0),
        ({"loss_weight": 2.0}, 2.0),
        ({"loss_scale": 0.5}, 0.5),
        ({"content": [{"type": "text", "text": "ab"}, {"type": "text", "text": "c", "weight": 0.5}]},
         ((("content", 0, "text"), 0, 2, 1.0), (("content", 1, "text"), 0, 1, 0.5))),
        ({"content": [{"type": "text", "text": "ab", "train": False}]}, ((("content",), 0, 2, 0.0),)),
        ({"content": "abcd", "train_detail": [{"begin_offset": 1, "end_offset": 2, "train": True}]},
         ((("content",), 1, 3, 1.0),)),
    ],
)  # fmt: skip
def test_weights_of_every_tool(message: dict[str, Any], weight: Any) -> None:
    found = read_messages([QA[0], {"role": "assistant", "content": "yes", **message}], "messages")
    assert found.weights == (None, weight)
    assert not set(found.messages[1]) - {"role", "content"}


@pytest.mark.parametrize(
    "message",
    [
        {"weight": 1, "train": True},
        {"weight": "1"},
        {"train": 2e9},
        {"train_detail": [{"begin_offset": 0, "end_offset": 3, "train": True}]},
        {"train_detail": [{"begin_offset": 0, "end_offset": 1, "train": True}] * 2},
        {"train_detail": [{"begin_offset": 0, "end_offset": 1}]},
        {"train_detail": "all"},
        {"weight": 1, "train_detail": [{"begin_offset": 0, "end_offset": 1, "train": True}]},
        {"content": [{"type": "text", "text": "a", "weight": -1}]},
    ],
)
def test_weights_that_mean_nothing_are_refused(message: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="bad_weight"):
        read_messages([QA[0], {"role": "assistant", "content": "yes", **message}], "messages")


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("preference", {"chosen": [QA[0], {**QA[1], "weight": 0}], "rejected": said("hi", "no")}),
        ("kto", {"prompt": QA[:1], "completion": [{**QA[1], "train": True}], "label": 1}),
    ],
)
def test_answers_that_are_judged_as_a_whole_have_no_weights(name: str, row: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="judged as a whole"):
        read_conversation(row, name)


PAIRS = [  # chosen, rejected, and what is to come of them: (prompt, chosen, rejected), or a reason
    ("It is blue", "It is black", ("It is", " blue", " black")),
    ("yes", "yes sir", ("", "yes", "yes sir")),
    ("same", "same", "identical_pair"),
    ("a b\tc", "a b d", ("a b", "\tc", " d")),
    ("", "x", "empty_text"),
    (said("q", "a"), said("q", "a"), "identical_pair"),
    (said("q", "a", "r", "b"), said("q", "a", "r", "c"), (said("q", "a", "r"), said("", "b")[1:], said("", "c")[1:])),
    (said("q", "a"), said("q", "a", "r", "b"), (said("q"), said("", "a")[1:], said("q", "a", "r", "b")[1:])),
    (said("q", "a"), said("r", "b"), "bad_pair"),
    (said("q", "a"), "b", "bad_pair"),
    (said("q", "a")[1:], said("q", "b")[1:], "bad_pair"),
]


@pytest.mark.parametrize(("chosen", "rejected", "expected"), PAIRS)
def test_a_prompt_that_is_not_given_ends_at_a_bound(chosen: Any, rejected: Any, expected: Any) -> None:
    row = {"chosen": chosen, "rejected": rejected}
    if isinstance(expected, str):
        with pytest.raises(Refusal) as error:
            read_conversation(row, "preference")
        assert error.value.reason == expected
        return
    group = read_conversation(row, "preference")
    assert isinstance(group, Group)
    assert (group.prompt, *(own for _, own in group.branches)) == expected
    assert group.implicit


IMAGES = [
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, QA[1]]},
    {"messages": QA, "images": ["a.png"]},
    {"conversations": [{"from": "human", "value": "<image>hi"}, {"from": "gpt", "value": "yes"}], "image": "a.png"},
]


@pytest.mark.parametrize("row", IMAGES)
def test_pictures_are_refused_never_trained_as_text(row: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as error:
        read_conversation(row, detect(row)[0])
    assert error.value.reason == "images"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"input_ids": [1, 2, 3], "labels": [2, 3, -100]}, "shifted already"),
        ({"input_ids": [1, 2, 3], "labels": [1, 9, 3]}, "labels[1] is 9"),
        ({"input_ids": [1, 2, 3], "labels": [1, 2]}, "2 values"),
        ({"input_ids": [1, -2]}, "no token id"),
        ({"input_ids": [1, 2.5]}, "no token id"),
        ({"input_ids": [1, 2], "seq_lengths": [1, 2]}, "add up"),
    ],
)
def test_token_rows_that_do_not_fit_are_refused(row: dict[str, Any], said: str) -> None:
    with pytest.raises(Refusal) as error:
        read_conversation(row, "tokens")
    assert error.value.reason == "bad_tokens"
    assert said in error.value.detail
