"""Chunks made by several processes of this machine, this one among them, and given back in their order.

Each other one is a Python of its own, so that neither threads nor the caller's main module come with it.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from outlive.data.chunks import Chunk, Made, Recipe
from outlive.run.errors import OutliveError, WorkError
from outlive.run.stopping import SIGNALS

WORKER = "outlive.data.worker"
_ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_AHEAD = 2  # chunks that wait for each other process: its next one is there when it has done one
_PIPE = 1 << 20  # bytes: the most that any user may have
_HELD = 8  # chunks for each process, at most, that are made or given out while an earlier one is not there yet


class _Given(NamedTuple):
    """A chunk, and what becomes of it."""

    chunk: Chunk
    found: Future[Made]


class Workers:
    """`number` processes, 2 at least, that follow a recipe: this one, which need not start, and others. In a `with`
    block: they end with it, or with this process."""

    def __init__(self, recipe: Recipe, number: int) -> None:
        self._own, self._recipe, self._number = recipe, pickle.dumps(recipe, protocol=5), number
        self._threads = ThreadPoolExecutor(number - 1)
        self._local = threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock, self._is_over = threading.Lock(), False

    def map(self, chunks: Iterable[Chunk]) -> Iterator[Made]:
        """What becomes of each chunk, in their order; few chunks are taken before they are needed.

        Raises what `Recipe.make` raises, for the first chunk of which it does. WorkError where a process died.
        """
        coming = iter(chunks)
        waiting: deque[_Given] = deque()
        while True:
            self._give_out(coming, waiting)
            if not (waiting and waiting[0].found.done()) and len(waiting) < _HELD * self._number:
                if (chunk := next(coming, None)) is not None:
                    waiting.append(_Given(chunk, self._made_here(chunk)))
                    continue
                self._take_back(waiting)
            if not waiting:
                return
            yield waiting.popleft().found.result()

    def _give_out(self, coming: Iterator[Chunk], waiting: deque[_Given]) -> None:
        """Have the other processes' next chunks there when they have done one."""
        free = _AHEAD * (self._number - 1) - sum(not given.found.done() for given in waiting)
        for chunk in islice(coming, max(free, 0)):
            waiting.append(_Given(chunk, self._threads.submit(self._make, chunk)))

    def _take_back(self, waiting: deque[_Given]) -> None:
        """At the end, make a chunk here that waits for another process."""
        for place in reversed(range(len(waiting))):
            if waiting[place].found.cancel():
                waiting[place] = waiting[place]._replace(found=self._made_here(waiting[place].chunk))
                return

    def _made_here(self, chunk: Chunk) -> Future[Made]:
        found: Future[Made] = Future()
        try:
            found.set_result(self._own.make(chunk))
        except OutliveError as error:  # of the first chunk that has one, in their order
            found.set_exception(error)
        return found

    def _make(self, chunk: Chunk) -> Made:
        process = getattr(self._local, "process", None)
        if process is None:
            process = self._local.process = self._start()
        try:
            send(process.stdin, pickle.dumps(chunk, protocol=5))
            answer = receive(process.stdout)
        except OSError:
            answer = None
        if answer is None:
            raise died(process)
        made = pickle.loads(answer)
        if isinstance(made, BaseException):
            raise made
        assert isinstance(made, Made)
        return made

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_over:
                raise WorkError("the preparation has ended", where="data.processes", fix="run it again")
            process = start_python(WORKER, _ONE_THREAD)
            self._processes.append(process)
        try:
            send(process.stdin, self._recipe)
        except OSError:
            raise died(process) from None
        return process

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_over = True
        for process in self._processes:
            if kind is None:
                assert process.stdin is not None
                process.stdin.close()  # it ends after its last chunk
            else:
                process.kill()
        for process in self._processes:
            process.wait()
        self._threads.shutdown(cancel_futures=True)


def start_python(module: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """A process of its own that runs a module of this package, with pipes to and from it."""
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, **(environment or {})}
    command = [sys.executable, "-m", module]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    for pipe in (process.stdin, process.stdout):
        _widen(pipe)
    return process


def _widen(pipe: IO[bytes] | None) -> None:
    """Let a pipe hold a whole message, where the system can: each further piece waits until this process, which has
    work of its own, lets another thread run."""
    with suppress(ImportError, AttributeError, OSError):  # OSError: all the user's pipes together would be too large
        import fcntl

        assert pipe is not None
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


def died(process: subprocess.Popen[bytes]) -> WorkError:
    """The error for a process that ended before its work."""
    code = process.wait()
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return WorkError(
        f"a process that prepares the data {how}",
        where=f"process {process.pid}",
        fix="if memory ran out (signal 9), take fewer processes: data.processes=1",
    )


def pipes_of_child() -> tuple[IO[bytes], IO[bytes]]:
    """For a process that `start_python` has started: its pipes, from and to the one that did. Whatever a library prints
    is no message, and goes to stderr.

    Ctrl-C, and what a scheduler sends to the whole group, are left to that one, which may still need this one to stop
    well; this one ends when its pipe does.
    """
    for name in SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    told = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return sys.stdin.buffer, told


def send(pipe: IO[bytes] | None, message: bytes) -> None:
    """Write a message, its length before it. Raises OSError where nobody reads."""
    assert pipe is not None
    pipe.write(len(message).to_bytes(8, "little"))
    pipe.write(message)
    pipe.flush()


def receive(pipe: IO[bytes] | None) -> bytes | None:
    """The next message, or None where there is none any more."""
    assert pipe is not None
    size = pipe.read(8)
    if len(size) < 8:
        return None
    length = int.from_bytes(size, "little")
    message = pipe.read(length)
    return message if len(message) == length else None
