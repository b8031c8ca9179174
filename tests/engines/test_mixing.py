"""Promise: what a run trains on is mixed as its file says, also where stores are opened again from a job."""

from __future__ import annotations

import pytest

from outlive.engines.native.build import from_job, get_ready, job_of
from outlive.run.config import load_run
from tests.engines.resuming import SMALL, Verb


@pytest.mark.parametrize("mix_by", ["passes", "tokens"])
def test_a_job_mixes_as_its_run(made: Verb, monkeypatch: pytest.MonkeyPatch, mix_by: str) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(made.root / "home"))
    keys = {**SMALL, "data.mix_by": mix_by, "data.train.0.epochs": "1.5", "data.order": "windowed", "data.window": "16"}
    overrides = [f"{key}={value}" for key, value in keys.items()]
    ready = get_ready(load_run(None, overrides, model=str(made.model), data=str(made.rows)).run)
    again = from_job(job_of(ready, made.root / "nowhere"))
    assert ready.source.mixture.mixing is not None
    assert ready.source.mixture.mixing.epochs == [1.5]
    assert ready.source.layout.window == 16
    assert again.source.mixture.mixing == ready.source.mixture.mixing
    assert again.source.plan_key == ready.source.plan_key
    assert again.source.num_steps() == ready.source.num_steps()


def test_a_run_in_windows_trains_and_resumes_exactly(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_HOME", str(verb.root / "home"))
    windowed = ("data.order=windowed", "data.window=16")
    verb.train(*windowed)
    before = verb.curve()
    assert len(before) >= 8
    verb.train(*windowed, resume="3")
    assert verb.curve() == before
