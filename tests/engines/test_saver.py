"""What is saved, when and for how long; and that a save which fails leaves what was there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.checkpoint.manifest import verify_manifest
from outlive.engines.native import saver
from outlive.run.errors import InputError, WorkError
from tests.engines.resuming import Verb
from tests.engines.test_loop import tiny_folder


@pytest.fixture
def verb(tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    return Verb(tmp_path, tiny_folder(tmp_path / "model", "llama"), rows)


def _best(verb: Verb) -> int:
    losses = {}
    for step in verb.steps():
        manifest = json.loads((verb.folder.checkpoint(step) / "manifest.json").read_text())
        losses[step] = manifest["validation_loss"]
    return min(losses, key=lambda step: (losses[step], -step))


def test_the_newest_and_the_best_are_kept(verb: Verb) -> None:
    """A learning rate that soon does harm: the best is an early one, and stays beside the newest two."""
    verb.train("checkpoint.every=1", "checkpoint.keep=2", "optimizer.lr=0.3", "optimizer.warmup=5", "stop.steps=6")
    assert verb.steps()[-2:] == [5, 6]
    assert len(verb.steps()) == 3
    assert _best(verb) == verb.steps()[0]
    removed = [event["step"] for event in verb.events("removed")]
    assert sorted([*removed, *verb.steps()]) == [1, 2, 3, 4, 5, 6]
    verb.train("name=all", "checkpoint.every=3", "checkpoint.keep=null")
    assert len(list((verb.root / "runs" / "all" / "checkpoints").iterdir())) == 3


@pytest.mark.parametrize(("policy", "holds"), [("every", [3, 6, 8]), ("last", [8])])
def test_which_checkpoints_hold_a_model(verb: Verb, policy: str, holds: list[int]) -> None:
    verb.train(f"checkpoint.model={policy}")
    assert [step for step in verb.steps() if (verb.folder.checkpoint(step) / "model").is_dir()] == holds
    assert all((verb.folder.checkpoint(step) / "state").is_dir() for step in (3, 6, 8))


def test_only_the_best_so_far_hold_a_model(verb: Verb) -> None:
    result = verb.train("checkpoint.model=best", "checkpoint.every=1", "checkpoint.keep=null", "optimizer.lr=1.0")
    holds = [step for step in verb.steps() if (verb.folder.checkpoint(step) / "model").is_dir()]
    losses = {
        step: json.loads((verb.folder.checkpoint(step) / "manifest.json").read_text())["validation_loss"]
        for step in verb.steps()
    }
    assert holds == [step for step in losses if losses[step] == min(losses[s] for s in losses if s <= step)]
    assert 0 < len(holds) < len(losses)
    assert result.output == verb.folder.checkpoint(holds[-1]) / "model"


def test_without_validation_the_last_holds_the_model(verb: Verb) -> None:
    verb.train("checkpoint.model=best", "data.validation=null")
    assert [step for step in verb.steps() if (verb.folder.checkpoint(step) / "model").is_dir()] == [8]


def test_a_save_in_the_background_equals_one_that_waits(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot is what the weights were, though training has gone on."""
    verb.train()
    assert "while training goes on" in verb.said
    monkeypatch.setattr(saver, "SNAPSHOT_SHARE", 0.0)
    verb.train("name=waits")
    assert "while training waits" in verb.said
    for step in (3, 6, 8):
        files = [root / "checkpoints" / f"step-{step:08d}" for root in (verb.folder.root, verb.root / "runs" / "waits")]
        written = [next((folder / "state").glob("*.safetensors")).read_bytes() for folder in files]
        assert written[0] == written[1]


def test_planned_saves_that_do_not_fit_are_refused_before_step_1(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "free_space", lambda path: 1_000_000)
    with pytest.raises(InputError, match=r"need .* MB .*and 1 MB are free"):
        verb.train("checkpoint.keep=null", "checkpoint.every=1")
    assert not verb.folder.root.exists()


def test_the_trial_leaves_nothing(verb: Verb) -> None:
    verb.train("checkpoint.every=null")
    assert verb.steps() == [8]
    assert "trial save" in verb.said


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EACCES], ids=["full disk", "no permission"])
def test_a_disk_that_refuses_leaves_the_last_good_checkpoint(
    verb: Verb, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    """The run ends with exit code 1 and says where it can go on; then it does."""
    real = os.mkdir

    def refusing(path: str | Path, *arguments: int) -> None:
        if "step-00000006" in str(path):
            raise OSError(reason, os.strerror(reason), str(path))
        real(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refusing)
        with pytest.raises(WorkError, match=r"last good checkpoint is .*step-00000003") as error:
            verb.train()
    assert error.value.exit_code == 1
    assert "--resume" in str(error.value)
    assert verb.steps() == [3]
    verify_manifest(verb.folder.checkpoint(3))
    verb.train(resume="latest")
    assert verb.steps() == [3, 6, 8]


def test_a_folder_deleted_during_the_run_is_named(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    save = saver.Saver.save

    def deleting(self: saver.Saver, *arguments: object) -> None:
        if arguments[0].source.cursor.step == 6:  # type: ignore[attr-defined]
            # moved in one step first: the writer in the background may be tidying up in there meanwhile
            away = verb.folder.root.rename(verb.root / "deleted")
            shutil.rmtree(away, ignore_errors=True)
        save(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(saver.Saver, "save", deleting)
    with pytest.raises(WorkError, match="deleted during the run"):
        verb.train()
    assert not verb.folder.root.exists()


FULL_DISK = """
import sys
from pathlib import Path
from tests.engines.resuming import Verb
from outlive.run.errors import OutliveError
root, model, rows = map(Path, sys.argv[1:])
verb = Verb(root, model, rows, **{"checkpoint.every": "1", "checkpoint.keep": "1"})
def fill():  # what another program does meanwhile
    with open(verb.root / "other", "wb", buffering=0) as other:
        try:
            while True:
                other.write(bytes(1 << 14))
        except OSError:
            pass
import outlive.engines.native.saver as saver
save = saver.Saver.save
def save_on_a_full_disk(self, training, *rest):
    if training.source.cursor.step == 4:
        self.wait()
        fill()
    save(self, training, *rest)
saver.Saver.save = save_on_a_full_disk
try:
    verb.train()
except OutliveError as error:
    print(error)
    print("exit", error.exit_code, "steps", *verb.steps())
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare(1), to mount a file system of its own")
def test_a_full_disk(verb: Verb, tmp_path: Path) -> None:
    """A real one, of 4 MB: the message names the figures, and the last good checkpoint is whole."""
    disk = tmp_path / "disk"
    disk.mkdir()
    program = tmp_path / "full.py"
    program.write_text(FULL_DISK)
    command = (
        f"mount -t tmpfs -o size=4m tmpfs {disk} && {sys.executable} {program} {disk} {verb.model} {verb.rows} "
        f"&& cp -r {disk}/runs {tmp_path}/kept"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    ran = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", command], capture_output=True, text=True, env=env
    )
    if "unshare" in ran.stderr or "mount:" in ran.stderr:
        pytest.skip(f"no file system can be mounted here: {ran.stderr.strip()}")
    assert "No space left" in ran.stdout, ran.stdout + ran.stderr
    assert "were free" in ran.stdout or "are free" in ran.stdout
    assert "last good checkpoint is" in ran.stdout
    assert "exit 1" in ran.stdout
    steps = [int(word) for word in ran.stdout.split("steps")[-1].split()]
    assert 3 in steps
    assert 4 not in steps
    for step in steps:
        verify_manifest(tmp_path / "kept" / "run" / "checkpoints" / f"step-{step:08d}")
