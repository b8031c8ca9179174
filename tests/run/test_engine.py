"""Promise: a job and a result pass between processes as JSON, and nothing of them is lost or added."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outlive.run.config import load_run
from outlive.run.engine import Job, Problem, Result
from outlive.run.errors import InputError

RUN = load_run(None, ["adapter={}", "optimizer.lr=1e-5"], model="m", data="a.jsonl").run


@pytest.mark.parametrize("more", [{}, {"validation_stores": [Path("v")], "resume_from": Path("c"), "attempt": 2}])
def test_a_job_as_json(more: dict[str, object]) -> None:
    job = Job(
        run=RUN, folder=Path("runs/a"), model=Path("m"), tokenizer=Path("m"), stores=[Path("s"), Path("t")], **more
    )  # type: ignore[arg-type]
    assert Job.from_json(job.to_json()) == job


def test_a_result_as_json() -> None:
    result = Result("done", 10, 1000, 100, 3.5, loss=0.5, output=Path("runs/a/model"), facts={"a": [1]})
    assert Result.from_json(result.to_json()) == result
    assert Result.from_json(Result("failed", 0, 0, 0, 0.0, message="why").to_json()).message == "why"


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"status": "done"})])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Job.from_json(text)
    with pytest.raises(InputError):
        Result.from_json(text)
    values = json.loads(Result("done", 1, 1, 1, 1.0).to_json())
    with pytest.raises(InputError):
        Result.from_json(json.dumps({**values, "unknown": 1}))


def test_a_problem_is_an_error_of_the_input() -> None:
    error = Problem("error", "what", where="where", fix="fix").error()
    assert (error.exit_code, error.what, error.where, error.fix) == (2, "what", "where", "fix")
