"""Out of memory says what was asked for, what was there, and the next knob to turn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.data.plan import Layout
from outlive.engines.native.memory import explained, knob
from outlive.run.config import load_run
from outlive.run.errors import WorkError
from outlive.run.sizes import size
from tests.engines.test_loop import tiny_folder


def _run(*settings: str):  # type: ignore[no-untyped-def]
    return load_run(None, list(settings), model="m", data="d.jsonl").run


@pytest.mark.parametrize(
    ("settings", "micro_packs", "checkpointing", "said"),
    [
        (["batch.tokens=8192"], 4, False, "batch.micro_tokens=2048"),
        (["batch.sequences=8"], 4, False, "batch.micro_sequences=2"),
        ([], 1, False, "activation_checkpointing=true"),
        ([], 1, True, "adapter.rank"),
        (["adapter.rank=4"], 1, True, "data.sequence_length=512"),
    ],
)
def test_the_next_knob(settings: list[str], micro_packs: int, checkpointing: bool, said: str) -> None:
    """What changes no result comes first."""
    assert said in knob(_run(*settings), Layout(1024, 8), micro_packs, checkpointing)


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="shape"), explained(_run(), Layout(64, 8), 1, False):
        raise RuntimeError("shape mismatch")


LIMITED = """
import resource, sys, torch
from pathlib import Path
from tests.engines.resuming import Verb
from outlive.engines.native import loop
from outlive.run.errors import OutliveError
root, model, rows = map(Path, sys.argv[1:])
forward_backward = loop.forward_backward
def hungry(training, step):
    if step.cursor.step == 4:  # what a long sequence would do
        held = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
        resource.setrlimit(resource.RLIMIT_AS, (held + (64 << 20), resource.RLIM_INFINITY))
        try:
            torch.ones(1 << 28)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return forward_backward(training, step)
loop.forward_backward = hungry
try:
    Verb(root, model, rows).train()
except OutliveError as error:
    print(error)
    print("exit", error.exit_code)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_real_failure_to_allocate(tmp_path: Path, rows: Path) -> None:
    program = tmp_path / "limited.py"
    program.write_text(LIMITED)
    model = tiny_folder(tmp_path / "model", "llama")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OUTLIVE_HOME": str(tmp_path / "home")}
    command = [sys.executable, str(program), str(tmp_path), str(model), str(rows)]
    ran = subprocess.run(command, capture_output=True, text=True, env=env)
    assert "out of memory: 1.07 GB were asked for at once" in ran.stdout, ran.stdout + ran.stderr
    assert "were free" in ran.stdout
    assert "activation_checkpointing=true" in ran.stdout
    assert "step-00000003" in ran.stdout
    assert "exit 1" in ran.stdout


def test_sizes_for_people() -> None:
    assert [size(n) for n in (0, 999, 1234, 99.2e3, 1.6e9, 123.4e9, 5e13)] == [
        "0 bytes", "999 bytes", "1.23 kB", "99.2 kB", "1.6 GB", "123 GB", "50 TB",
    ]  # fmt: skip


def test_the_error_is_a_failure_of_the_work() -> None:
    with pytest.raises(WorkError, match="out of memory"), explained(_run(), Layout(64, 8), 1, False):
        raise MemoryError
