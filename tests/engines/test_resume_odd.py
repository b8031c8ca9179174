"""What happens to runs besides training: starts that come to nothing, moves, ends, full disks."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from outlive.checkpoint.manifest import write_manifest
from outlive.cli.train import command
from outlive.engines.native import engine, loop, saver
from outlive.run import folder as folders
from outlive.run.claim import claim
from outlive.run.errors import InputError, WorkError
from outlive.run.folder import RunFolder
from outlive.run.metrics import read
from outlive.run.stopping import Stopping
from tests.engines.resuming import Verb

Values = dict[str, Any]


# starts that come to nothing


@pytest.mark.parametrize("resume", ["auto", "latest"])
@pytest.mark.parametrize("left", [[], [".claim", ".run.yaml.0123456789abcdef.tmp"]], ids=["nothing", "leftovers"])
def test_a_start_that_was_killed_before_run_yaml_can_be_repeated(verb: Verb, resume: str, left: list[str]) -> None:
    verb.folder.root.mkdir(parents=True)
    for name in left:
        (verb.folder.root / name).write_text("")
    with pytest.raises(InputError, match="--resume"):
        verb.train()
    assert verb.train(resume=resume).steps == 8
    assert "came to nothing" in verb.said


def test_a_start_that_was_killed_between_its_files_can_be_repeated(done: Verb) -> None:
    """run.yaml and lock.json are there, and data.json is not yet."""
    expected = done.curve()
    for path in (done.folder.data, done.folder.metrics, done.folder.events):
        path.unlink()
    shutil.rmtree(done.folder.checkpoints)
    done.train(resume="auto")
    assert "begins anew" in done.said
    assert done.curve() == expected


def test_a_start_that_is_refused_leaves_the_other_ones_folder(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two `--resume auto` at once: whoever comes second to the claim takes nothing away."""
    create = folders.create

    def overtaken(*arguments: Any, **more: Any) -> RunFolder:
        found = create(*arguments, **more)
        held.append(claim(found))
        held[0].__enter__()
        return found

    held: list[Any] = []
    monkeypatch.setattr(folders, "create", overtaken)
    with pytest.raises(InputError, match="in use"):
        verb.train(resume="auto")
    assert verb.folder.root.is_dir()
    held[0].__exit__(None, None, None)


def test_a_signal_before_the_first_step_trains_none(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a validation nor a step is waited for, and the run begins anew with --resume."""
    build = engine.build

    def signalled(*arguments: Any) -> Any:
        os.kill(os.getpid(), 15)
        while not stoppings[0].requested:
            pass
        return build(*arguments)

    stoppings: list[Stopping] = []
    enter = Stopping.__enter__

    def entering(self: Stopping) -> Stopping:
        stoppings.append(self)
        return enter(self)

    with monkeypatch.context() as patch:
        patch.setattr(Stopping, "__enter__", entering)
        patch.setattr(engine, "build", signalled)
        stopped = verb.train()
    assert (stopped.status, stopped.steps) == ("stopped", 0)
    assert verb.curve() == []
    assert verb.train(resume="latest").steps == 8


def test_a_validation_that_is_owed_is_recorded_once(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal where a validation is due leaves it to the resume. A kill after that validation makes it owed again."""
    expected = verb.train() and verb.curve()
    shutil.rmtree(verb.folder.root)

    asked = iter([False] * 3 + [True] * 99)  # before the first step, and after each of three
    seen = property(lambda self: next(asked) or None, lambda self, name: None)
    with monkeypatch.context() as patch:
        patch.setattr(Stopping, "requested", seen, raising=False)
        stopped = verb.train()
    assert stopped.steps == 3
    with monkeypatch.context() as patch:
        patch.setattr(loop, "forward_backward", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            verb.train(resume="latest")
    assert [entry[:2] for entry in verb.curve()][-1] == ("validation", 3)
    verb.train(resume="latest")
    assert verb.curve() == expected


# moves


def test_a_run_folder_that_was_moved_goes_on(done: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renamed, in another place, reached through a link and from another working directory, with relative paths."""
    expected = done.curve()
    shutil.rmtree(done.folder.checkpoint(8))
    elsewhere = done.root / "elsewhere"
    elsewhere.mkdir()
    shutil.copytree(done.folder.root, elsewhere / "renamed")
    (done.root / "link").symlink_to(elsewhere / "renamed")
    monkeypatch.chdir(elsewhere)
    command(str(Path("..") / "link"), resume="latest", as_json=False)
    assert not (done.root / "runs" / "run" / "checkpoints" / "step-00000008").exists()
    done.folder = RunFolder(elsewhere / "renamed")
    assert done.curve() == expected
    monkeypatch.setenv("OUTLIVE_HOME", str(done.root / "empty"))  # the stores are made again
    shutil.rmtree(done.folder.checkpoint(8))
    command("renamed", resume="latest", as_json=False)
    assert done.curve() == expected


# ends


def test_settings_that_make_other_samples_are_accepted_once(done: Verb) -> None:
    """The samples of data.system=… are others of course: data.train is not asked for besides."""
    done.train("data.system=Be brief.", resume="6", accept=["data.system"])
    assert done.train("data.system=Be brief.", resume="8").steps == 8


def test_a_run_that_is_ended_earlier_is_that_run(done: Verb) -> None:
    """Complete where it was ended: its figures and its model are those of that step."""
    result = done.train("stop.steps=2", resume="6", accept=["stop"])
    assert result.steps == 6
    assert result.output == done.folder.checkpoint(6) / "model"
    assert result.tokens == sum(
        record.tokens or 0
        for record in read(done.folder.metrics).records
        if record.kind == "train" and record.step <= 6
    )


def test_what_was_killed_at_the_very_end_is_made_up_for(done: Verb) -> None:
    done.folder.report.unlink()
    hidden = done.folder.checkpoints / ".step-00000003.0123456789abcdef.removed"
    done.folder.checkpoint(3).rename(hidden)
    done.train(resume="latest")
    assert done.folder.report.is_file()
    assert not hidden.exists()


def test_losses_that_are_no_numbers_have_a_result(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps skipped, with a limit that is never reached: the result is JSON, with null."""
    backward = loop.forward_backward
    monkeypatch.setattr(loop, "forward_backward", lambda *arguments: backward(*arguments) * float("nan"))
    result = verb.train("stop.steps=3", "stop.nonfinite_steps=9", "data.validation=null")
    assert result.loss is None
    assert json.loads(result.to_json())["loss"] is None
    again = verb.train("stop.steps=3", "stop.nonfinite_steps=9", "data.validation=null", resume="latest")
    assert again.loss is None
    assert json.loads(again.to_json())["steps"] == 3


@pytest.mark.parametrize(
    "settings",
    [
        ["stop.steps=1", "checkpoint.every=1", "checkpoint.keep=1", "checkpoint.best=null"],
        ["stop.steps=2", "checkpoint.every=1", "checkpoint.keep=1", "checkpoint.model=last", "data.validation=null"],
        ["stop.steps=1", "checkpoint.every=null", "checkpoint.model=best"],
    ],
)
def test_shortest_runs(verb: Verb, settings: list[str]) -> None:
    result = verb.train(*settings)
    expected = verb.curve()
    assert result.output is not None
    assert verb.steps()[-1] == result.steps
    shutil.rmtree(verb.folder.checkpoint(result.steps))
    assert verb.train(*settings, resume="auto" if verb.steps() else "0").output == result.output
    assert verb.curve() == expected


# disks


@pytest.mark.parametrize(
    ("settings", "existing", "needed"),
    [
        ({"keep": 3, "every": 3, "model": "every"}, 0, 3),
        ({"keep": 9, "every": 1, "model": "every"}, 0, 9),
        ({"keep": None, "every": 3, "model": "every"}, 3, 3),  # those that are there stay
        ({"keep": 3, "every": 3, "model": "every"}, 3, 2),
        ({"keep": 1, "every": None, "model": "every"}, 4, 1),  # the next one comes before one goes
    ],
)
def test_the_space_that_is_counted(
    done: Verb, monkeypatch: pytest.MonkeyPatch, settings: Values, existing: int, needed: int
) -> None:
    """One byte less than the planned checkpoints need at once is refused before the first step."""
    for step in (3, 6, 8):
        shutil.rmtree(done.folder.checkpoint(step))
    for step in range(existing):
        done.folder.checkpoint(step).mkdir()
        (done.folder.checkpoint(step) / "file").write_bytes(b"x" * 1000)
        write_manifest(done.folder.checkpoint(step))
    keeping = saver.Saver(done.folder, saver.Checkpoint(**settings), None, {}, print, print)  # type: ignore[arg-type]
    one = 1000 + (done.folder.checkpoint(0) / "manifest.json").stat().st_size if existing else 1000
    monkeypatch.setattr(saver, "free_space", lambda path: needed * one)
    keeping._refuse_too_little_space(one, 0, 8)
    monkeypatch.setattr(saver, "free_space", lambda path: needed * one - 1)
    with pytest.raises(InputError, match="are free"):
        keeping._refuse_too_little_space(one, 0, 8)


def test_a_save_that_fails_in_the_background_ends_the_run_at_the_next_step(
    verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the path that failed and the last good checkpoint; and memory never holds two snapshots."""
    write, taken = saver.Saver._write, []

    def failing(self: saver.Saver, training: Any, folder: Path, *rest: Any, **more: Any) -> None:
        taken.append({tensor.data_ptr() for tensor in rest[1].values()})
        if folder.name == "step-00000002":
            raise RuntimeError("a fault of a library")
        write(self, training, folder, *rest, **more)

    def waited(self: saver.Saver, step: int) -> bool:
        if self._thread is not None:
            self._thread.join()
        return due(self, step)

    due = saver.Saver.due
    monkeypatch.setattr(saver.Saver, "_write", failing)
    monkeypatch.setattr(saver.Saver, "due", waited)
    with pytest.raises(WorkError, match=r"a fault of a library; the last good checkpoint is .*step-00000001") as error:
        verb.train("checkpoint.every=1")
    assert "step-00000002" in str(error.value.where)
    assert [step for kind, step, *_ in verb.curve() if kind == "train"][-1] == 3
    assert taken[1] == taken[2] != taken[0]  # the trial save writes the weights themselves


def test_a_start_that_fails_before_its_first_step_leaves_nothing(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says nothing of a resume, for which nothing is there."""

    def failing(*arguments: Any) -> None:
        raise WorkError("could not write: No space left on device", where="here", fix="free some space")

    monkeypatch.setattr(saver.Saver, "trial", failing)
    with pytest.raises(WorkError) as error:
        verb.train()
    assert "--resume" not in str(error.value)
    assert not verb.folder.root.exists()


def test_events_that_can_not_be_read_are_no_reason_to_begin_anew(done: Verb) -> None:
    """Whether checkpoints were saved is told by them: a damaged file must not turn into a new beginning."""
    shutil.rmtree(done.folder.checkpoints)
    done.folder.events.write_text("no event\n" + done.folder.events.read_text())
    before = done.curve()
    with pytest.raises(InputError, match="events"):
        done.train(resume="latest")
    assert done.curve() == before
