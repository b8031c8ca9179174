"""Promise: whenever a save stops, its folder is absent or whole, others are untouched, and the rest can be swept."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outlive.checkpoint.building import building_checkpoint
from outlive.checkpoint.folder import remove, saved_checkpoints, sweep
from outlive.checkpoint.manifest import verify_manifest
from outlive.run.errors import InputError, WorkError
from outlive.run.files import hash_file
from tests.checkpoint.faults import Disk, Killed, dies, kills, refuses, save_step, tokenizer_folder

Act = Callable[[int, Callable[[], Any]], Any]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return tokenizer_folder(tmp_path / "tokenizer")


@pytest.fixture
def checkpoints(tmp_path: Path, tokenizer: Path) -> Path:
    """A run's checkpoints, one of them there already."""
    save_step(tmp_path / "checkpoints", 1, tokenizer)
    return tmp_path / "checkpoints"


def _calls(work: Callable[[], Any]) -> list[tuple[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)
        work()
    return disk.done


def _failing(work: Callable[[], Any], act: Act, error: type[BaseException] | tuple[type[BaseException], ...]) -> bool:
    """Whether the work was stopped by `act`, with that error."""
    with pytest.MonkeyPatch.context() as patch:
        Disk(patch, act)
        try:
            work()
        except error:
            return True
    return False


def _content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): hash_file(path) for path in folder.rglob("*") if path.is_file()}


def _whole_or_absent(checkpoints: Path, before: dict[str, str], step: int = 2) -> bool:
    """Check what a stopped save left, and sweep; return whether the new checkpoint is there."""
    final = checkpoints / f"step-{step:08d}"
    assert _content(checkpoints / "step-00000001") == before
    if there := final.exists():
        verify_manifest(final)
    assert [one.step for one in saved_checkpoints(checkpoints)] == ([1, step] if there else [1])
    sweep(checkpoints)
    left = sorted(os.listdir(checkpoints))
    assert left == ["step-00000001", final.name][: 1 + there]
    return there


def test_each_call_can_be_the_last(checkpoints: Path, tokenizer: Path) -> None:
    before = _content(checkpoints / "step-00000001")

    def save() -> Path:
        return save_step(checkpoints, 2, tokenizer)

    calls = _calls(save)
    counted = Counter(name for name, _ in calls)
    assert counted["fsync"] >= 10 + 4  # files and folders: the promise is tested at real calls, and at all of them
    shutil.rmtree(checkpoints / "step-00000002")
    outcomes = []
    for number in range(len(calls)):
        for after in (False, True):
            assert _failing(save, dies(number, after), Killed)
            if there := _whole_or_absent(checkpoints, before):
                shutil.rmtree(checkpoints / "step-00000002")
            outcomes.append(there)
    rename = [name for name, _ in calls].index("rename")
    assert outcomes == [False] * (2 * rename + 1) + [True] * (2 * (len(calls) - rename) - 1)


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.ENOENT])
def test_each_call_can_be_refused(checkpoints: Path, tokenizer: Path, reason: int) -> None:
    """A refused call is one WorkError; nothing is left behind, so that the next save works."""
    before = _content(checkpoints / "step-00000001")

    def save() -> Path:
        return save_step(checkpoints, 2, tokenizer)

    calls = _calls(save)
    shutil.rmtree(checkpoints / "step-00000002")
    for number, (name, _) in enumerate(calls):
        stopped = _failing(save, refuses(number, reason), WorkError)
        assert stopped, (number, name)
        hidden = [left for left in os.listdir(checkpoints) if left.startswith(".")]
        assert not hidden, (number, name)
        if _whole_or_absent(checkpoints, before):
            shutil.rmtree(checkpoints / "step-00000002")
    save()
    assert _whole_or_absent(checkpoints, before)


def test_kill_9_before_and_after_each_call(checkpoints: Path, tokenizer: Path) -> None:
    """The same with real processes, whose memory and open files are gone."""
    before = _content(checkpoints / "step-00000001")

    def save() -> Path:
        return save_step(checkpoints, 2, tokenizer)

    calls = _calls(save)
    shutil.rmtree(checkpoints / "step-00000002")
    found = set()
    for number in range(len(calls)):
        for after in (False, True):
            assert _dies_in_a_child(save, kills(number, after)) == signal.SIGKILL
            there = _whole_or_absent(checkpoints, before)
            found.add(there)
            if there:
                shutil.rmtree(checkpoints / "step-00000002")
    assert found == {True, False}


def _dies_in_a_child(work: Callable[[], Any], act: Act) -> int:
    """Fork, work there, and return the signal by which the child ended."""
    child = os.fork()
    if child == 0:
        try:
            Disk(pytest.MonkeyPatch(), act)
            work()
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    return os.WTERMSIG(status)


def test_a_removal_can_stop_anywhere(checkpoints: Path, tokenizer: Path) -> None:
    before = _content(checkpoints / "step-00000001")
    save_step(checkpoints, 2, tokenizer)
    shutil.copytree(checkpoints / "step-00000002", checkpoints.parent / "spare")

    def remove_newest() -> None:
        remove(saved_checkpoints(checkpoints)[-1])

    number_of_calls = len(_calls(remove_newest))
    assert number_of_calls > 10
    for number in range(number_of_calls):
        for after in (False, True):
            shutil.rmtree(checkpoints / "step-00000002", ignore_errors=True)
            shutil.copytree(checkpoints.parent / "spare", checkpoints / "step-00000002")
            assert _failing(remove_newest, dies(number, after), Killed)
            _whole_or_absent(checkpoints, before)


def test_everything_is_on_the_disk_before_it_has_its_name(checkpoints: Path, tokenizer: Path) -> None:
    """After a power failure only what was fsynced counts: files, then the manifest, folders, the rename, the parent."""
    events: list[tuple[str, str]] = []
    paths: dict[int, str] = {}
    real_open = os.open

    def opened(path: Any, *args: Any, **kwargs: Any) -> int:
        descriptor = real_open(path, *args, **kwargs)
        paths[descriptor] = str(path)
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", opened)
        for name in ("write", "fsync"):
            call = getattr(os, name)

            def noted(descriptor: int, *args: Any, name: str = name, call: Any = call) -> Any:
                events.append((name, paths[descriptor]))
                return call(descriptor, *args)

            patch.setattr(os, name, noted)
        rename = os.rename
        patch.setattr(os, "rename", lambda a, b: (events.append(("rename", str(a))), rename(a, b)))
        final = save_step(checkpoints, 2, tokenizer)
    (renamed,) = [number for number, (name, _) in enumerate(events) if name == "rename"]
    temporary = events[renamed][1]
    names = [path.relative_to(final).as_posix() for path in final.rglob("*") if path.is_file()]
    files = {f"{temporary}/{name}" for name in names}
    synced = {path: number for number, (name, path) in enumerate(events) if name == "fsync"}
    written = {path: number for number, (name, path) in enumerate(events) if name == "write"}
    manifest = f"{temporary}/manifest.json"
    first_of_manifest = min(number for number, event in enumerate(events) if event == ("write", manifest))
    assert files == set(written)
    for path in files - {manifest}:
        assert written[path] < synced[path] < first_of_manifest
    for folder in (f"{temporary}/model", f"{temporary}/state", temporary):
        assert synced[manifest] < synced[folder] < renamed
    assert synced[str(checkpoints)] == len(events) - 1 > renamed


def test_a_save_has_no_other_file_operations(checkpoints: Path, tokenizer: Path) -> None:
    """What the interpreter itself reports of opened, made and renamed things is what the tests above can stop."""
    reported: Counter[str] = Counter()
    listening = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if not listening or event.split(".")[0] not in ("open", "os", "shutil"):
            return
        if event == "open" and (not isinstance(args[2], int) or not args[2] & (os.O_WRONLY | os.O_RDWR)):
            return  # reading changes nothing
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"):
            reported[event.removeprefix("os.")] += str(args[0]).startswith(str(checkpoints))
        if event == "os.chmod":
            reported["chmod"] += 1

    sys.addaudithook(hook)
    calls = _calls(lambda: save_step(checkpoints, 2, tokenizer))
    listening.clear()
    counted = Counter(name for name, _ in calls)
    folders = 4  # opened for their fsync: the temporary one, its two, and the parent
    assert reported["open"] == counted["open"] - folders > 5
    assert (reported["mkdir"], reported["rename"]) == (counted["mkdir"], counted["rename"]) == (3, 1)
    assert sum(reported.values()) == reported["open"] + 3 + 1


def test_a_full_disk_is_told_in_figures(tmp_path: Path) -> None:
    """A real refusal of the kernel: the process may write files of 100 kB at most."""
    code = (
        "import resource, sys, numpy; from pathlib import Path\n"
        "from outlive.run.errors import WorkError; from outlive.checkpoint.building import building_checkpoint\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "  with building_checkpoint(Path(sys.argv[1]), {}) as building:\n"
        "    building.tensors('model/model.safetensors', {'w': numpy.zeros(10**6, numpy.float32)})\n"
        "except WorkError as error: print(error)\n"
    )
    final = tmp_path / "step-00000001"
    done = subprocess.run([sys.executable, "-c", code, str(final)], capture_output=True, text=True, check=True)
    what, where, fix = done.stdout.splitlines()
    assert "4 MB are needed" in what
    assert "GB are free" in what or "MB are free" in what or "TB are free" in what
    assert str(final / "model" / "model.safetensors") in where
    assert "ulimit -f" in fix
    assert os.listdir(tmp_path) == []


def _own_mounts() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True).returncode == 0


@pytest.mark.skipif(not _own_mounts(), reason="needs user namespaces, to mount a small disk")
def test_a_disk_of_three_megabytes(tmp_path: Path) -> None:
    """The older checkpoint stays, the message has both figures, and once there is space the save works."""
    code = (
        "import os, sys, numpy; from pathlib import Path\n"
        "from outlive.run.errors import WorkError; from outlive.checkpoint.building import building_checkpoint\n"
        "from outlive.checkpoint.folder import saved_checkpoints\n"
        "from outlive.checkpoint.manifest import verify_manifest\n"
        "disk = Path(sys.argv[1])\n"
        "def save(step):\n"
        "  with building_checkpoint(disk / f'step-{step:08d}', {'step': step}) as building:\n"
        "    building.tensors('model.safetensors', {'w': numpy.zeros(250_000, numpy.float32)})\n"
        "save(1)\n"
        "(disk / 'other').write_bytes(bytes(1_500_000))\n"
        "try: save(2)\n"
        "except WorkError as error: print(error.what)\n"
        "verify_manifest(disk / 'step-00000001'); print(sorted(os.listdir(disk)))\n"
        "(disk / 'other').unlink(); save(2); print([one.step for one in saved_checkpoints(disk)])\n"
    )
    mounted = 'mount -t tmpfs -o size=3m small "$1" && exec "$2" -c "$3" "$1"'
    command = ["unshare", "-rm", "sh", "-c", mounted, "sh", str(tmp_path), sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    what, listing, steps = done.stdout.splitlines()
    assert re.search(r"No space left on device: 1 MB are needed, [56]\d\d kB are free", what)
    assert listing == "['other', 'step-00000001']"
    assert steps == "[1, 2]"


def test_a_folder_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    def save() -> None:
        with building_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000001", {}) as building:
            building.text("a.json", "{}")
            shutil.rmtree(tmp_path / "run")
            building.text("b.json", "{}")

    with pytest.raises(WorkError, match="removed or moved") as error:
        save()
    assert error.value.where == str(tmp_path / "run" / "checkpoints" / "step-00000001" / "b.json")
    assert os.listdir(tmp_path) == []


def test_no_permission_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, refuses(0, errno.EACCES))
    with pytest.raises(WorkError, match="writable") as error, building_checkpoint(tmp_path / "step-00000001", {}):
        pytest.fail("the block must not run")
    assert error.value.where == str(tmp_path / "step-00000001")


def test_an_error_in_the_block_passes_and_leaves_nothing(tmp_path: Path) -> None:
    def save() -> None:
        with building_checkpoint(tmp_path / "deep" / "step-00000001", {}) as building:
            building.text("a.json", "{}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save()
    assert os.listdir(tmp_path / "deep") == []


def test_what_exists_is_not_overwritten(checkpoints: Path, tokenizer: Path) -> None:
    before = _content(checkpoints / "step-00000001")
    with pytest.raises(InputError, match="exists already"):
        save_step(checkpoints, 1, tokenizer)

    def slower() -> None:
        with building_checkpoint(checkpoints / "step-00000002", {}):
            save_step(checkpoints, 2, tokenizer)

    with pytest.raises(InputError, match="exists already"):
        slower()
    assert _whole_or_absent(checkpoints, before)
