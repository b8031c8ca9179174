"""SIGTERM, SIGUSR1 and Ctrl-C finish the step, save and exit 75; a second one ends at once, and nothing is broken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.checkpoint.folder import broken_checkpoints
from outlive.checkpoint.manifest import verify_manifest
from outlive.cli.show.progress import Progress
from outlive.run.metrics import Record
from tests.engines.resuming import SMALL, Verb
from tests.engines.test_loop import tiny_folder


@pytest.fixture
def verb(tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    return Verb(tmp_path, tiny_folder(tmp_path / "model", "llama"), rows)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT"])
@pytest.mark.parametrize("step", [5, 6], ids=["between saves", "where a save is due"])
def test_the_step_is_finished_and_saved(verb: Verb, monkeypatch: pytest.MonkeyPatch, name: str, step: int) -> None:
    expected = verb.train() and verb.curve()
    with monkeypatch.context() as patch:
        on_record = Progress.on_record

        def signalling(self: Progress, record: Record) -> None:
            on_record(self, record)
            if record.kind == "train" and record.step == step:
                os.kill(os.getpid(), getattr(signal, name))

        patch.setattr(Progress, "on_record", signalling)
        stopped = verb.train("name=stopped")
    verb.folder = type(verb.folder)(verb.root / "runs" / "stopped")
    assert stopped.status == "stopped"
    assert stopped.message == name
    assert stopped.steps in (step, step + 1)  # the signal may be seen one step later
    assert stopped.steps in verb.steps()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    result = verb.train("name=stopped", resume="latest")
    assert result.status == "done"
    assert verb.curve() == expected


TWICE = """
import os, signal, sys, time
from outlive.cli.show.progress import Progress
on_record = Progress.on_record
def signalling(self, record):
    on_record(self, record)
    if record.kind == "train" and record.step == 5:
        os.kill(os.getpid(), signal.SIGTERM)
        if os.environ["TIMES"] == "twice":
            while True:  # a step that never ends, to which the signal comes again and again
                time.sleep(0.3)
                os.kill(os.getpid(), signal.SIGTERM)
Progress.on_record = signalling
from outlive.cli.main import main
main()
"""


@pytest.mark.parametrize("times", ["once", "twice"])
def test_the_exit_code_says_that_the_run_can_go_on(verb: Verb, times: str) -> None:
    program = verb.root / "signalled.py"
    program.write_text(TWICE)
    settings = [f"{key}={value}" for key, value in SMALL.items()]
    command = [sys.executable, str(program), "train", "--model", str(verb.model), "--data", str(verb.rows), *settings]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TIMES": times}
    ran = subprocess.run(command, capture_output=True, text=True, cwd=verb.root, env=env)
    assert ran.returncode == 75, ran.stdout + ran.stderr
    if times == "once":
        assert "--resume" in ran.stderr
    assert broken_checkpoints(verb.folder.checkpoints) == []
    for step in verb.steps():
        verify_manifest(verb.folder.checkpoint(step))
    verb.train(resume="latest")
    assert verb.steps()[-1] == 8
