"""`make bench-data`: the pieces of the script that its numbers stand on. No time is measured, and no TRL needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks import data_ours
from benchmarks.data import CAPACITY, drawn_lengths, marked, ratio, table, varied

from outlive.text.template import ChatTemplate
from tests.fixtures import CHATML

CHATS = [
    {"messages": [{"role": "user", "content": "How far is\nParis?"}, {"role": "assistant", "content": "Far away."}]},
    {"messages": [{"role": "user", "content": "And Rome?"}, {"role": "assistant", "content": "Even farther: " * 30}]},
]


def test_rows_are_repeated_with_other_words_and_the_same_shape() -> None:
    rows = varied(CHATS, 7)
    assert len(rows) == 7
    assert rows[:2] == CHATS
    assert varied(CHATS, 7) == rows
    for place, row in enumerate(rows):
        messages = CHATS[place % 2]["messages"]
        assert [m["role"] for m in row["messages"]] == [m["role"] for m in messages]
        for found, given in zip(row["messages"], messages, strict=True):
            assert len(found["content"].split(" ")) == len(given["content"].split(" "))
    assert len({row["messages"][1]["content"] for row in rows[1::2]}) == 3


def test_lengths_fit_and_have_the_mean_that_the_page_names() -> None:
    lengths = drawn_lengths(100_000)
    assert lengths.min() >= 1
    assert lengths.max() == CAPACITY
    assert abs(lengths.mean() - 653) < 5


def test_the_ratio_is_of_rounds_and_a_dash_where_nothing_was_measured() -> None:
    results = {
        "a": [{"seconds": 1.0}, {"seconds": 2.0}, {"seconds": 8.0}],
        "b": [{"seconds": s} for s in (3.0, 4.0, 8)],
    }
    assert ratio(results, "a", "b") == "2.00 ×"
    assert ratio(results, "a", "missing") == "–"


def test_a_table_has_a_line_for_each_row() -> None:
    lines = table(["what", "seconds"], [["ours", 1], ["theirs", 2.5]])
    assert lines == ["| what | seconds |", "|---|--:|", "| ours | 1 |", "| theirs | 2.5 |"]


def test_the_marked_template_renders_the_same_text_and_marks_the_answers() -> None:
    plain, twin = ChatTemplate(CHATML), ChatTemplate(marked(CHATML))
    for chat in CHATS:
        text, marks = twin.render_marked(chat["messages"])
        assert text == plain.render(chat["messages"])
        assert [text[start:end] for start, end in marks] == [chat["messages"][1]["content"] + "<|im_end|>"]


def test_the_arms_that_plan_lengths(tmp_path: Path) -> None:
    np.save(tmp_path / "lengths.npy", drawn_lengths(1000))
    given = {"lengths": str(tmp_path / "lengths.npy"), "capacity": CAPACITY}
    for arm in ("packing", "mixing"):
        found = data_ours.ARMS[arm](given)
        assert 0 < found["packs"] <= found["rows"]
