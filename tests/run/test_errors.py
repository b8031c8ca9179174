"""Promise: an error has one form, which shows the text that is meant and hides what is to stay secret or unseen."""

from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.run.errors import InputError, Resumable, WorkError, nearest
from outlive.run.excerpt import WIDTH, Excerpt, Place, both, said_on_command_line, visible
from outlive.text.refusal import Refusal

LINE = Excerpt("run.yaml", 12, "  learning_rat: 1e-4", 3, 12)


def test_the_form() -> None:
    error = InputError(
        "optimizer has no key `learning_rat`",
        where=Place("run.yaml:12", [LINE]),
        expected="one of lr, betas",
        nearest="learning_rate",
        fix="write optimizer.lr",
    )
    assert error.render().splitlines() == [
        "error: optimizer has no key `learning_rat`",
        "  --> run.yaml:12:3",
        "   |",
        "12 |   learning_rat: 1e-4",
        "   |   ^^^^^^^^^^^^",
        "   = expected: one of lr, betas",
        "   = nearest: learning_rate",
        "   = fix: write optimizer.lr",
    ]
    assert str(error) == error.render().removeprefix("error: ")
    assert error.to_json() == {
        "what": "optimizer has no key `learning_rat`",
        "where": "run.yaml:12",
        "file": "run.yaml",
        "line": 12,
        "column": 3,
        "expected": "one of lr, betas",
        "nearest": "learning_rate",
        "fix": "write optimizer.lr",
        "exit_code": 2,
    }


def test_what_is_said_is_not_said_twice() -> None:
    error = InputError("lr: x, expected a number", expected="a number", nearest="lr", fix="did you mean lr?")
    assert error.render() == "error: lr: x, expected a number\n   = fix: did you mean lr?"
    assert (error.to_json()["expected"], error.to_json()["nearest"]) == ("a number", "lr")


def test_a_place_without_an_excerpt() -> None:
    assert WorkError("full", where="out/a", fix="free some").render() == "error: full\n  --> out/a\n   = fix: free some"
    error = InputError("wrong", where="rows.jsonl:7")
    assert [error.to_json()[key] for key in ("file", "line", "column")] == ["rows.jsonl", 7, None]
    assert (WorkError.exit_code, InputError.exit_code, Resumable.exit_code) == (1, 2, 75)


def test_two_places_and_numbers_of_other_widths() -> None:
    where = both(Place("f:9", [Excerpt("f", 9, "lr: 1", 1, 2)]), Place("f:1000", [Excerpt("f", 1000, "lr: 2", 1, 2)]))
    assert InputError("twice", where=where).render().splitlines() == [
        "error: twice",
        "    --> f:9 and f:1000",
        "     |",
        "   9 | lr: 1",
        "     | ^^",
        "1000 | lr: 2",
        "     | ^^",
    ]


def test_the_command_line_is_a_file_like_any_other() -> None:
    place = said_on_command_line("override optimizer.lr=abc", "optimizer.lr=", "abc")
    assert place.value is not None
    error = InputError("no number", where=place, excerpts=[place.value])
    assert error.render().splitlines() == [
        "error: no number", "  --> command line", "   |", "   | optimizer.lr=abc", "   |              ^^^",
    ]  # fmt: skip
    assert (error.where, error.to_json()["line"]) == ("override optimizer.lr=abc", None)


def test_several_mistakes_stand_before_their_sum() -> None:
    parts = [InputError("one", where="f:1", fix="a"), InputError("two", where="f:2", fix="b")]
    error = InputError("2 mistakes", mistakes=parts)
    assert error.render() == f"{parts[0].render()}\n\n{parts[1].render()}\n\nerror: 2 mistakes"
    assert error.to_json()["mistakes"] == [part.to_json() for part in parts]


@pytest.mark.parametrize(
    ("text", "column", "length", "line", "carets"),
    [
        ("\ta: b", 2, 1, "→   a: b", "    ^"),
        ("名前: x", 5, 1, "名前: x", "      ^"),
        ("e\u0301a: x", 3, 1, "e\u0301a: x", " ^"),
        ("a\u202eb: x", 3, 1, "a⟨U+202E⟩b: x", "         ^"),
        ("a\x1b[0mb", 2, 1, "a␛[0mb", " ^"),
        ("a\x7f\x85\ud800", 2, 3, "a␡⟨U+0085⟩⟨U+D800⟩", " ^^^^^^^^^^^^^^^^^"),
        ("abc", 4, 1, "abc", "   ^"),
        ("abc", 99, 7, "abc", "   ^"),
        ("", 1, 1, "", "^"),
        ("abc", None, 1, "abc", ""),
    ],
)
def test_what_can_not_be_seen_is_shown(text: str, column: int | None, length: int, line: str, carets: str) -> None:
    assert Excerpt("f", 1, text, column, length).draw() == (line, carets)


def test_a_long_line_is_cut_around_the_carets() -> None:
    text = "x" * 5000 + "WRONG" + "y" * 5000
    line, carets = Excerpt("f", 1, text, 5001, 5).draw()
    assert line.startswith("…x")
    assert line.endswith("y…")
    assert line[carets.index("^") : len(carets)] == "WRONG"
    assert len(line) <= WIDTH + 2
    again = Excerpt("f", 1, text, 5001, 5).cut()
    assert len(again.text) < 500
    assert again.draw() == (line, carets)


@given(st.text(max_size=300), st.integers(1, 320), st.integers(1, 320), st.integers(1, 90))
def test_any_line_is_drawn_with_its_carets_under_it(text: str, column: int, length: int, around: int) -> None:
    excerpt = Excerpt("f", 1, text, column, length)
    for drawn in (excerpt, excerpt.cut(around)):
        line, carets = drawn.draw()
        assert set(carets) <= {" ", "^"}
        assert carets.endswith("^")
        assert not any(ord(character) < 32 for character in line)
        assert len(carets) <= 2 * WIDTH + 4


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("path: https://me:sesame@host/x, b: c", "b"),
        ("b: https://me:sesame@host/x", "b"),
        ("path: https://me:sesame@host/x", "https://me:sesame@host/x"),
        ("path: https://me:sesame@host/x", "sesame"),
    ],
)
def test_credentials_are_never_shown(text: str, meant: str) -> None:
    excerpt = Excerpt("f", 1, text, text.index(meant) + 1, len(meant))
    line, carets = excerpt.draw()
    assert line == text.replace("me:sesame@", "")
    assert len(carets) <= len(line)
    if meant == "b":
        assert line[len(carets) - 1] == "b"
    assert "sesame" not in excerpt.cut().text
    error = InputError(f"wrong: {text}", where=text, fix=text, excerpts=[excerpt])
    assert "sesame" not in error.render() + str(error) + str(error.to_json()) + error.what


def test_a_credential_is_no_less_one_where_the_line_is_cut() -> None:
    text = "https://me:" + "sesame" * 100 + "@host/x wrong"
    assert "sesame" not in "".join(Excerpt("f", 1, text, text.index("wrong") + 1, 5).draw())


def test_colours_are_asked_for_and_change_no_text() -> None:
    import re

    error = InputError("wrong", where=Place("run.yaml:12", [LINE]), fix="do")
    assert "\x1b" not in error.render()
    assert re.sub(r"\x1b\[[0-9;]*m", "", error.render(color=True)) == error.render()
    assert error.render(color=True).count("\x1b[1;31m") == 2


def test_text_of_the_message_can_not_steer_a_terminal() -> None:
    error = InputError("a\x1b[2Jb\nc\rd", where="x\x07", fix="\u202e")
    assert error.render().splitlines() == ["error: a␛[2Jb", "  --> x␇", "     c␍d", "   = fix: ⟨U+202E⟩"]
    assert visible("a\n\tb") == "a\n→   b"


def test_errors_survive_copies_and_processes() -> None:
    error = InputError("wrong", where=Place("run.yaml:12", [LINE]), fix="do", mistakes=[InputError("inner")])
    for other in (copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert other.render() == error.render()
    refusal = Refusal("bad_json", "x", ("a", 1))
    other = pickle.loads(pickle.dumps(refusal))
    assert (other.reason, other.detail, other.path, str(other)) == ("bad_json", "x", ("a", 1), str(refusal))


def test_the_nearest_name() -> None:
    assert nearest("lrr", ["lr", "betas"]) == "lr"
    assert nearest("zzz", ["lr", "betas"]) is None


def test_every_error_says_what_to_do() -> None:
    """Each call that makes an error for the user gives a remedy; those that gather other errors carry theirs."""
    gathering = {"bad_rows.py", "mistakes.py"}
    without = []
    for path in sorted((Path(__file__).parents[2] / "src" / "outlive").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("InputError", "WorkError", "Resumable"):
                given = {keyword.arg for keyword in node.keywords}
                if not given & {"fix", None} and path.name not in gathering:
                    without.append(f"{path.name}:{node.lineno}")
    assert without == []
