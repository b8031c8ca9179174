"""A real run in a child process, killed with SIGKILL at a moment, or at a file operation of a save; then resumed.

Children are forked from a process that has imported everything and computed nothing, so that a start costs no import.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

import outlive.engines.native.engine as engine  # what children would each import
from outlive.checkpoint.folder import broken_checkpoints, saved_checkpoints
from outlive.checkpoint.manifest import verify_manifest
from outlive.run.files import hash_file
from outlive.run.folder import RunFolder
from tests.checkpoint.faults import CALLS

STEPS = 40
SETTINGS = [
    "data.sequence_length=96", "data.validation=0.1", "batch.tokens=288", "batch.micro_tokens=96",
    f"stop.steps={STEPS}", "optimizer.lr=1e-3", "checkpoint.every=5", "checkpoint.keep=2", "precision=fp32", "name=run",
]  # fmt: skip
VARIANTS = {"lora": ["adapter.rank=4", "adapter.dropout=0.1"], "full": []}
SAVE = 20
"""The step whose save is attacked call by call."""
BACK = str(STEPS - 5)
"""Where a start goes back to that is attacked call by call."""
_ENTERED: list[bool] = []
When = Literal["before", "inside", "after"]
Curve = list[tuple[Any, ...]]


@dataclass
class Story:
    """A run's folder of work: model, rows, and one variant of the run; `reference` is what it gives undisturbed."""

    root: Path
    model: Path
    rows: Path
    variant: str
    reference: Curve = field(default_factory=list)
    final_state: str = ""
    seconds: float = 0.0
    num_calls: int = 0
    """File operations of the save after step SAVE."""
    num_start_calls: int = 0
    """File operations of a start, up to its first step."""

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.root / "runs" / "run")

    def undisturbed(self) -> None:
        """Run to the end, and keep what it gave."""
        started = time.monotonic()
        counted = self.root / "counted"
        assert _ended(_fork(self, lambda: _count_calls(counted, _in_save))) == 0, self.log()
        self.seconds = time.monotonic() - started
        self.num_calls = int(counted.read_text())
        self.reference, self.final_state = curve(self.folder), self._state()
        assert self.reference[-1][1] == STEPS
        self.clean()

    def killed_after(self, seconds: float) -> bool:
        """Kill the run after so long. Returns whether it was still going."""
        child = _fork(self)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        return _ended(child) == -signal.SIGKILL

    def killed_at(self, number: int, when: When) -> bool:
        """Kill the run at the call number `number` of the save after step SAVE."""
        return _ended(_fork(self, lambda: _kill_at(number, when, _in_save))) == -signal.SIGKILL

    def goes_back(self) -> None:
        """Run to the end, and count the calls of a start that goes back to step BACK: it sets later checkpoints and
        records aside, writes the run's files anew and makes the trial save."""
        counted = self.root / "counted"
        assert _ended(_fork(self)) == 0, self.log()
        assert _ended(_fork(self, lambda: _count_calls(counted, _in_start), BACK)) == 0, self.log()
        self.num_start_calls = int(counted.read_text())

    def killed_at_start(self, number: int, when: When) -> bool:
        """Kill a resume that goes back at the call number `number` of its start."""
        return _ended(_fork(self, lambda: _kill_at(number, when, _in_start), BACK)) == -signal.SIGKILL

    def resumed(self) -> None:
        """Resume to the end. What must hold: no broken folder is taken for a checkpoint, and every loss, gradient norm
        and final weight is that of the undisturbed run, bit for bit."""
        for saved in saved_checkpoints(self.folder.checkpoints):
            verify_manifest(saved.path)
        assert broken_checkpoints(self.folder.checkpoints) == []
        assert _ended(_fork(self)) == 0, self.log()
        assert curve(self.folder) == self.reference
        assert self._state() == self.final_state
        assert not [path for path in self.folder.checkpoints.iterdir() if path.name.startswith(".")]

    def clean(self) -> None:
        """Take the run folder away."""
        import shutil

        shutil.rmtree(self.root / "runs", ignore_errors=True)

    def log(self) -> str:
        """What the last child printed."""
        return (self.root / "log").read_text()

    def _state(self) -> str:
        return hash_file(next((self.folder.checkpoint(STEPS) / "state").glob("*.safetensors")))


def curve(folder: RunFolder) -> Curve:
    """What training computed, without times: kind, step, epoch, loss, gradient norm, learning rate, tokens."""
    keys = ("kind", "step", "epoch", "loss", "grad_norm", "lr", "tokens", "target_tokens")
    records = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [tuple(record.get(key) for key in keys) for record in records]


def _fork(story: Story, prepare: Callable[[], None] = lambda: None, resume: str = "auto") -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        log = os.open(story.root / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(story.root)
        os.environ["OUTLIVE_HOME"] = str(story.root / "home")
        torch.set_num_threads(1)  # the parent's threads are not in the child
        _note_the_loop()
        prepare()
        _train(story, resume)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _train(story: Story, resume: str) -> None:
    from rich.console import Console

    from outlive.cli.train import train
    from outlive.run.config import load_run

    given = [*SETTINGS, *VARIANTS[story.variant]]
    loaded = load_run(None, given, model=str(story.model), data=str(story.rows))
    train(loaded, Path("runs"), Console(highlight=False), resume=resume)


def _ended(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _in_save() -> bool:
    return threading.current_thread().name == f"save of step {SAVE}"


def _in_start() -> bool:
    """Whether this is the main thread, and the loop was not entered yet."""
    return threading.current_thread() is threading.main_thread() and not _ENTERED


def _note_the_loop() -> None:
    train = engine.train

    def entered(*arguments: Any) -> int:
        _ENTERED.append(True)
        return train(*arguments)

    engine.train = entered  # type: ignore[assignment]  (for a child only)


def _count_calls(counted: Path, counts: Callable[[], bool]) -> None:
    """Write down how many file operations are made where `counts` says so."""

    def act(number: int, call: Callable[[], Any]) -> Any:
        result = call()
        counted.write_text(str(number + 1))
        return result

    _stand_before(act, counts)


def _kill_at(number: int, when: When, counts: Callable[[], bool]) -> None:
    def act(current: int, call: Callable[[], Any]) -> Any:
        if current != number:
            return call()
        if when == "inside":
            _while_inside(call)
        if when == "after":
            call()
        os.kill(os.getpid(), signal.SIGKILL)

    _stand_before(act, counts)


def _while_inside(call: Callable[[], Any]) -> None:
    """Begin the call on another thread, and go on as soon as it has begun."""
    begun_read, begun_write = os.pipe()

    def work() -> None:
        _WRITE(begun_write, b".")
        call()

    threading.Thread(target=work, daemon=True).start()
    select.select([begun_read], [], [])


_WRITE = os.write


def _stand_before(act: Callable[[int, Callable[[], Any]], Any], counts: Callable[[], bool]) -> None:
    """Hand every file operation that is made where `counts` says so to `act`, with its number. For a child only: the
    operations of its `os` module stay replaced."""
    count = [0]

    def wrapped(call: Any) -> Any:
        def standing(*args: Any, **kwargs: Any) -> Any:
            if not counts():
                return call(*args, **kwargs)
            count[0] += 1
            return act(count[0] - 1, lambda: call(*args, **kwargs))

        return standing

    for name in CALLS:
        setattr(os, name, wrapped(getattr(os, name)))
