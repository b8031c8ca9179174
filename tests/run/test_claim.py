"""Promise: one process at a time has a run folder, and a process that died, however it died, has none."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outlive.run import flock
from outlive.run.claim import NAME, claim
from outlive.run.errors import InputError, WorkError
from outlive.run.folder import RunFolder

HOLD = """
import errno, sys
from pathlib import Path
from outlive.run.claim import claim
from outlive.run.folder import RunFolder
if "no locks" in sys.argv:
    import fcntl
    def refuse(descriptor, how):
        raise OSError(errno.EOPNOTSUPP, "no locks here")
    fcntl.flock = refuse
with claim(RunFolder(Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Another process that holds the folder, until it gets a line or is killed."""
    command = [sys.executable, "-c", HOLD, str(folder), *arguments]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(flock.fcntl, "flock", refuse)


def refused(folder: Path) -> InputError:
    with pytest.raises(InputError) as caught, claim(RunFolder(folder), lambda note: None):
        raise AssertionError("the folder was had twice")
    return caught.value


def test_a_second_process_is_told_who_has_the_folder(tmp_path: Path) -> None:
    with holder(tmp_path) as child:
        about = json.loads((tmp_path / NAME).read_text())
        assert (about["pid"], about["host"]) == (child.pid, platform.node())
        error = refused(tmp_path)
        assert f"in use by process {child.pid} on {platform.node()} (since {about['start']})" in error.what
        assert error.where == str(tmp_path)
        assert f"kill {child.pid}" in str(error.fix)
        assert "name=" in str(error.fix)
        child.communicate("\n")
    assert not (tmp_path / NAME).exists()
    with claim(RunFolder(tmp_path)):
        pass


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    with holder(tmp_path) as child:
        child.kill()
    assert json.loads((tmp_path / NAME).read_text())["pid"] == child.pid
    with claim(RunFolder(tmp_path)):
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_the_same_process_has_it_once(tmp_path: Path) -> None:
    with claim(RunFolder(tmp_path)):
        error = refused(tmp_path)
        assert f"this very process ({os.getpid()}" in error.what
        assert "kill" not in str(error.fix)
        refused(tmp_path)  # the first refusal did not let go of the first claim
    with claim(RunFolder(tmp_path)):
        pass


def test_an_error_inside_lets_go(tmp_path: Path) -> None:
    with pytest.raises(KeyError), claim(RunFolder(tmp_path)):
        raise KeyError
    with claim(RunFolder(tmp_path)):
        pass


def test_a_folder_that_is_gone_or_removed_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="claim the run folder"), claim(RunFolder(tmp_path / "none")):
        raise AssertionError
    folder = tmp_path / "run"
    folder.mkdir()
    with claim(RunFolder(folder)):
        (folder / NAME).unlink()
        folder.rmdir()
        folder.mkdir()
        with claim(RunFolder(folder)):  # another folder of the same name
            pass


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_file_with_the_process_stands_for_one_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    with claim(RunFolder(tmp_path), said.append):
        assert "no locks" in said[0]
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()
        assert f"delete {tmp_path / NAME}" in str(refused(tmp_path).fix)
    assert list(tmp_path.iterdir()) == []
    with holder(tmp_path, "no locks") as child:
        assert f"process {child.pid}" in refused(tmp_path).what
        child.kill()
    with claim(RunFolder(tmp_path), said.append):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize(
    ("values", "free"),
    [
        ({"host": "elsewhere"}, False),  # nothing is known of it
        ({"process_started": 1}, True),  # the number was given to another process since
        ({}, False),
        ({"pid": "x"}, False),
    ],
)
def test_without_locks_only_a_process_that_is_surely_dead_loses_its_claim(
    tmp_path: Path, values: dict[str, Any], free: bool
) -> None:
    claimed = {"pid": os.getppid(), "host": platform.node(), "start": "some day", **values}
    (tmp_path / NAME).write_text(json.dumps(claimed))
    if free:
        with claim(RunFolder(tmp_path), lambda note: None):
            pass
    else:
        refused(tmp_path)
        assert json.loads((tmp_path / NAME).read_text()) == claimed


def test_of_many_at_once_one_gets_it(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from outlive.run.claim import claim
from outlive.run.folder import RunFolder
print("ready", flush=True)
sys.stdin.readline()
try:
    with claim(RunFolder(Path(sys.argv[1]))):
        print("held", flush=True)
        sys.stdin.readline()
except Exception as error:
    print(type(error).__name__, flush=True)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for what in ("ready", None):
        answers = []
        for child in children:
            assert child.stdout is not None
            answers.append(child.stdout.readline().strip())
        if what:
            assert answers == [what] * 4
            for child in children:
                assert child.stdin is not None
                child.stdin.write("\n")
                child.stdin.flush()
    assert sorted(answers) == ["InputError"] * 3 + ["held"]
    for child in children:
        child.communicate("\n")
