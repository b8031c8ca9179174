"""Promise: a run file's YAML means what it seems to mean, and what is wrong is named with its line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from outlive.run.errors import InputError
from outlive.run.yaml_file import dump, parse, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1e5", 1e5),
        (".5e3", 500.0),
        ("2E-5", 2e-5),
        ("-1.", -1.0),
        ("+5", 5),
        ("010", 10),
        ("0x10", 16),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("none", "none"),
        ("2026-01-01", "2026-01-01"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("'1e-4'", "1e-4"),
        ("!!int '3'", 3),
        ("!!str 3", "3"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    found = parse(f"a: {text}", "f").value["a"]
    assert found == value
    assert type(found) is type(value)


def test_nan() -> None:
    assert math.isnan(parse("a: .nan", "f").value["a"])


def test_lines_of_keys_and_entries() -> None:
    parsed = parse("a: 1\nb:\n  c: 2\n  d:\n    - x\n    - {e: 3}\n", "f")
    assert parsed.places == {
        ("a",): "f:1",
        ("b",): "f:2",
        ("b", "c"): "f:3",
        ("b", "d"): "f:4",
        ("b", "d", 0): "f:5",
        ("b", "d", 1): "f:6",
        ("b", "d", 1, "e"): "f:6",
    }


def test_anchors_and_merge_keys() -> None:
    text = "a: &x {p: 1, q: 2}\nb: {q: 3, <<: *x}\nc:\n  <<: [{z: 1}, {z: 2, y: 1}]\nd: *x"
    assert parse(text, "f").value == {
        "a": {"p": 1, "q": 2},
        "b": {"p": 1, "q": 3},
        "c": {"z": 1, "y": 1},
        "d": {"p": 1, "q": 2},
    }


def test_an_alias_is_a_copy() -> None:
    value = parse("a: &x {p: 1}\nb: *x", "f").value
    value["a"]["p"] = 2
    assert value["b"] == {"p": 1}


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("a: 1\nb: 2\na: 3", "a stands twice", "f:1 and f:3"),
        ("a:\n  b: 1\n  c: 2\n  b: 1", "a.b stands twice", "f:2 and f:4"),
        ("a: 1\nb:\n\tc: 1", "a tab is used to indent", "f:3"),
        ("a: 1\n\tb: 2", "a tab is used to indent", "f:2"),
        ("a: 1\n---\nb: 2", "one YAML document", "f:2"),
        ("a: 1\nb: c: d", "not YAML", "f:2"),
        ("a: [1", "not YAML", "f:1"),
        ("a: *nobody", "not YAML", "f:1"),
        ("a: &x [*x]", "too large or too deep", "f:1"),
        ("a: !foo 1", "can't be read as !foo", "f:1"),
        ("a: !foo {b: 1}", "knows no !foo", "f:1"),
        ("a: 1\nb: !!python/object/apply:os.getcwd []", "knows no", "f:2"),
        ("a: !!int x", "can't be read as int", "f:1"),
        ("a: !!bool maybe", "can't be read as bool", "f:1"),
        ("a: " + "9" * 5000, "can't be read as int", "f:1"),
        ("? [1]\n: 2", "a key must be text", "f:1"),
        ("<<: 3", "takes a mapping", "f:1"),
        ("a: 1\nb: \x07", "control character", "f:2"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, what: str, where: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        parse(text, "f")
    assert caught.value.where == where


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(InputError, match="too large"):
        parse("\n".join(lines), "f")


def test_files_bom_crlf_and_encodings(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: \xc3\xa9\r\nb: 2\r\n")
    parsed = read(path)
    assert parsed.value == {"a": "é", "b": 2}
    assert parsed.places[("b",)] == f"{path}:2"
    path.write_bytes(b"a: \xff")
    with pytest.raises(InputError, match="not UTF-8"):
        read(path)
    path.write_text("- 1")
    with pytest.raises(InputError, match="keys and values"):
        read(path)
    path.write_text("# nothing yet\n")
    assert read(path).value == {}
    with pytest.raises(InputError, match="no such run file"):
        read(tmp_path / "missing.yaml")
    with pytest.raises(InputError, match="no such run file"):
        read(tmp_path)


_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), max_size=30) | st.sampled_from(
    [
        "yes",
        "on",
        "1e-4",
        "1e5",
        "null",
        "~",
        "",
        "2026-01-01",
        "<<",
        "=",
        "1:30",
        "0o7",
        "010",
        "true",
        "a: b",
        "# c",
        "\t",
    ]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_TEXT, _VALUES, max_size=5))
def test_what_is_written_reads_back_here_and_with_yaml_1_1(value: dict[str, Any]) -> None:
    text = dump(value)
    assert parse(text, "f").value == value
    assert yaml.safe_load(text) == value


def test_what_is_too_deep_for_the_reader_is_refused() -> None:
    with pytest.raises(InputError, match="too deep"):
        parse("evals: " + "[" * 2000 + "]" * 2000, "f")
