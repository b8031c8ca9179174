"""Promise: a run that trains while its rows are prepared takes the steps of one whose rows were there before; it waits
where they are not there yet, can be stopped meanwhile, and saves what it did where the preparation fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outlive.data import growing as growing_module
from outlive.data.growing import GrowingStore, end_growing
from outlive.engines.native.build import get_ready
from outlive.run.config import Run, load_run
from outlive.run.errors import WorkError
from tests.data.making.test_growing import Gated
from tests.engines.resuming import SMALL, Verb

WINDOWED = {"data.order": "windowed", "data.window": "16", "data.validation": "null", "data.bad_rows": "drop"}
MEANWHILE = ("data.train_while_preparing=true",)


@pytest.fixture
def slow(made: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    """Nothing is prepared; chunks are of some rows, and their making waits at each (`Gated`)."""
    monkeypatch.setattr("outlive.data.chunks.CHUNK_BYTES", 1000)
    monkeypatch.setattr("outlive.data.preparer.SAVE_SECONDS", -1.0)
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    rows = tmp_path / "rows.jsonl"
    with rows.open("w") as file:
        for number in range(200):
            turns = [{"role": "user", "content": f"Say {number}"}, {"role": "assistant", "content": f"it is {number}"}]
            file.write(json.dumps({"messages": turns}) + "\n")
    return Verb(tmp_path, made.model, rows, **WINDOWED)


def run_of(verb: Verb, *changes: str) -> Run:
    given = {**SMALL, **WINDOWED, **dict(change.split("=", 1) for change in changes)}
    overrides = [f"{key}={value}" for key, value in given.items()]
    return load_run(None, overrides, model=str(verb.model), data=str(verb.rows)).run


def gate(monkeypatch: pytest.MonkeyPatch, chunks: int) -> list[Gated]:
    """Let the next builders make so many chunks; who they are."""
    made: list[Gated] = []

    class Begun(Gated):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)
            self.make(chunks)

    monkeypatch.setattr(growing_module, "Builder", Begun)
    return made


def test_the_steps_are_those_of_prepared_data(slow: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each window is prepared when the step that needs it waits for it."""
    builders = gate(monkeypatch, 3)
    source = get_ready(run_of(slow, *MEANWHILE, "stop.steps=40")).source
    (store,) = source.mixture.stores
    assert isinstance(store, GrowingStore)
    steps, sizes = [], [len(store)]

    def one_more() -> bool:
        builders[0].make(1)
        return False

    for _ in range(40):
        source.wait(one_more)
        steps.append(next(iter(source)))
        sizes.append(len(store))
    end_growing([store])
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "other"))
    whole = get_ready(run_of(slow, "stop.steps=40")).source
    assert whole.plan_key == source.plan_key
    assert len(set(sizes)) > 3
    assert sizes[-1] == len(whole.mixture.stores[0])
    expected = list(whole)
    assert [step.cursor for step in steps] == [step.cursor for step in expected]
    assert steps[-1].cursor.epoch > 0
    for mine, other in zip(steps, expected, strict=True):
        assert mine.totals == other.totals
        pairs = zip(mine.micro_batches, other.micro_batches, strict=True)
        assert all(a.tokens.tolist() == b.tokens.tolist() and a.segments == b.segments for a, b in pairs)


def test_a_run_and_its_record(slow: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real process: the curve, and at the end the ledger and plan of all rows."""
    slow.train()
    curve, data = slow.curve(), json.loads(slow.folder.data.read_text())
    slow.folder.root.rename(tmp_path / "before")
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "other"))
    slow.train(*MEANWHILE)
    assert slow.curve() == curve
    again = json.loads(slow.folder.data.read_text())
    if "unfinished" not in again:  # a run may end before its rows are prepared
        assert again["ledger"] == data["ledger"]
        assert again["plan"] == data["plan"]


def test_it_waits_until_there_is_more_or_it_is_to_stop(slow: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    builders = gate(monkeypatch, 3)
    source = get_ready(run_of(slow, *MEANWHILE)).source
    asked = iter([False, False, True])
    steps = iter(source)
    while source.plan(0).num_packs > source.cursor.pack + source.layout.packs_per_step:
        next(steps)
    source.wait(lambda: next(asked))
    assert list(asked) == []
    before = source.plan(0).num_packs
    builders[0].finish()
    source.wait()
    assert source.mixture.is_whole
    assert source.plan(0).num_packs > before
    end_growing(source.mixture.stores)


class Failing(Gated):
    """Makes eight chunks, and is found to be over with an error when more are asked for."""

    def __init__(self, *arguments: Any) -> None:
        self._asked = 0
        super().__init__(*arguments)
        self.make(8)

    @property
    def is_over(self) -> bool:
        self._asked += 1
        return self._asked > 10

    @is_over.setter
    def is_over(self, value: bool) -> None:
        pass

    def error(self) -> WorkError:
        return WorkError("no space left", where="there", fix="free some")


def test_a_failed_preparation_leaves_a_checkpoint_to_go_on_from(slow: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(growing_module, "Builder", Failing)
        with pytest.raises(WorkError, match="the preparation of the data has failed: no space left") as caught:
            slow.train(*MEANWHILE, "stop.steps=16")
    assert "the last good checkpoint is" in str(caught.value)
    done = slow.steps()[-1]
    assert 0 < done < 16
    assert done % 3  # saved for the failure, not because it was due
    monkeypatch.setenv("OUTLIVE_HOME", str(slow.root / "anew"))
    slow.train(*MEANWHILE, "stop.steps=16", resume="latest")
    resumed = slow.curve()
    slow.folder.root.rename(slow.root / "aside")
    slow.train("stop.steps=16")
    assert resumed == slow.curve()
