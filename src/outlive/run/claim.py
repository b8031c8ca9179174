"""The claim on a run folder: one process at a time writes in it, and a dead one holds nothing."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outlive.run.errors import InputError
from outlive.run.files import disk_error
from outlive.run.flock import NO_LOCKS, lock, unlock
from outlive.run.folder import RunFolder
from outlive.run.notes import to_stderr

NAME = ".claim"
_TRIES = 100


@contextmanager
def claim(folder: RunFolder, say: Callable[[str], None] = to_stderr) -> Iterator[None]:
    """Hold the run folder, which exists. InputError where another process, or this one, holds it already.

    The lock is flock's, on `.claim` in the folder, which also says who holds it: it is free at once when the process
    ends, however it ends (children that were forked meanwhile count as the process). Where the file system has no
    flock, a file with the process's number stands for it, and `say` gets a note. WorkError where the folder can't be
    written.
    """
    path = folder.root / NAME

    def refuse(content: bytes) -> None:
        raise _in_use(path, _read(content))

    try:
        descriptor = lock(path, refuse)
    except OSError as error:
        raise disk_error(error, path, "claim the run folder") from error
    if descriptor is None:
        say(f"{folder.root}: this file system has no locks; a file with the process's number stands for one")
        release = _pid_file(path)
    else:
        release = _locked_file(path, descriptor)
    try:
        yield
    finally:
        release()


def _locked_file(path: Path, descriptor: int) -> Callable[[], None]:
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _about_us().encode(), 0)
    except OSError as error:
        os.close(descriptor)
        raise disk_error(error, path, "claim the run folder") from error
    return lambda: unlock(path, descriptor)


def _pid_file(path: Path) -> Callable[[], None]:
    """The claim without flock: made whole under another name, then linked to its own, which only one can do."""
    ours = _about_us()
    for _ in range(_TRIES):
        try:
            _create(path, ours)
        except FileExistsError:
            content = _content(path)
            if content is None:
                continue
            if content and _lives(holder := _read(content)):  # an empty one: made when the lock was tried
                raise _in_use(path, holder, has_locks=False) from None
            _take_away(path, content)
            continue
        except OSError as error:
            raise disk_error(error, path, "claim the run folder") from error

        def release() -> None:
            if _content(path) == ours.encode():
                with contextlib.suppress(OSError):
                    path.unlink()

        return release
    raise _in_use(path, {}, has_locks=False)


def _create(path: Path, content: str) -> None:
    whole = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        whole.write_text(content)
        os.link(whole, path)
    except OSError as error:
        if isinstance(error, FileExistsError) or error.errno not in {*NO_LOCKS, errno.EPERM}:
            raise
        with open(path, "x") as file:  # no links here either: not whole at once, but still made by one alone
            file.write(content)
    finally:
        with contextlib.suppress(OSError):
            whole.unlink()


def _take_away(path: Path, dead: bytes) -> None:
    """Remove a dead process's claim. If another has replaced it meanwhile, that one is put back."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    with contextlib.suppress(OSError):
        os.rename(path, aside)
        if _content(aside) == dead:
            aside.unlink()
        elif not path.exists():
            os.rename(aside, path)


def _lives(holder: dict[str, Any]) -> bool:
    """Whether the holder may still run. Of processes on other machines nothing is known: they may."""
    pid = holder.get("pid")
    if holder.get("host") != platform.node() or not isinstance(pid, int) or pid <= 0 or os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    started = _started(pid)
    return started is None or holder.get("process_started") in (None, started)  # else its number was given again


def _about_us() -> str:
    values = {
        "pid": os.getpid(),
        "host": platform.node(),
        "start": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "process_started": _started(os.getpid()),
        "claim": secrets.token_hex(8),
    }
    return json.dumps(values) + "\n"


def _started(pid: int) -> int | None:
    """When a process began, in clock ticks since boot (field 22 of /proc/PID/stat, see proc(5)); None elsewhere."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _read(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        return {}  # not yet written
    return value if isinstance(value, dict) else {}


def _in_use(path: Path, holder: dict[str, Any], has_locks: bool = True) -> InputError:
    pid, host, start = (holder.get(key) for key in ("pid", "host", "start"))
    who = f"process {pid} on {host} (since {start})" if pid else "another process"
    if pid == os.getpid() and host == platform.node():
        who = f"this very process ({pid} on {host}, since {start})"
    fix = "wait until it ends, or start under another name: name=…"
    if pid and pid != os.getpid():
        fix = f"wait until it ends, or stop it (kill {pid} on {host}: it saves first); or use another name: name=…"
    if not has_locks:
        fix += f". If that process is gone: delete {path}"
    return InputError(f"the run folder is in use by {who}", where=str(path.parent), fix=fix)
