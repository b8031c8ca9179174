"""Promise: a file or model that a run file names and that is not there is reported at the line that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.run.errors import InputError
from outlive.run.load import load_run

RUN = """\
model: ./model
data:
  train:
    - path: here.jsonl
    - {path: missing.jsonl, weight: 2}
  validation: [{path: held.jsonl}]
  chat_template: own.jinja
"""


@pytest.fixture(autouse=True)
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text(RUN)


def located(where: str | None, *overrides: str) -> InputError:
    with pytest.raises(InputError) as raised, load_run("run.yaml", list(overrides)).at_its_line():
        raise InputError("there is no such file", where=where, fix="did you mean b?", nearest="b")
    return raised.value


@pytest.mark.parametrize(
    ("where", "key", "line", "column"),
    [
        ("./model", "model", 1, 8),
        ("model", "model", 1, 8),
        ("missing.jsonl", "data.train.1.path", 5, 14),
        ("held.jsonl", "data.validation.0.path", 6, 23),
        ("own.jinja", "data.chat_template", 7, 18),
    ],
)
def test_the_line_that_names_it(where: str, key: str, line: int, column: int) -> None:
    error = located(where)
    told = error.to_json()
    assert (told["file"], told["line"], told["column"]) == ("run.yaml", line, column)
    assert error.what == f"{key}: there is no such file"
    assert (error.fix, error.nearest) == ("did you mean b?", "b")


@pytest.mark.parametrize("where", [None, "other.jsonl", "here.jsonl:3"])
def test_what_the_run_file_does_not_say_stays(where: str | None) -> None:
    error = located(where)
    assert (error.what, error.where, error.excerpts) == ("there is no such file", where, ())


def test_what_the_command_line_says_stays() -> None:
    error = located("typed.jsonl", "data.train.1.path=typed.jsonl")
    assert (error.what, error.where) == ("there is no such file", "typed.jsonl")
    assert located("typed.jsonl", "data.train=[{path: typed.jsonl}]").where == "typed.jsonl"


def test_an_error_of_another_kind_stays() -> None:
    class Other(InputError):
        pass

    with pytest.raises(Other), load_run("run.yaml").at_its_line():
        raise Other("there is no such file", where="missing.jsonl", fix="look")
