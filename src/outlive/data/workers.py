"""Chunks made by several processes of this machine, and given back in their order.

Each is a Python of its own, so that neither threads nor the caller's main module come with it.
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
from pathlib import Path
from types import TracebackType
from typing import IO

from outlive.data.chunks import Chunk, Made, Recipe
from outlive.run.errors import WorkError
from outlive.run.stopping import SIGNALS

WORKER = "outlive.data.worker"
_ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_AHEAD = 2  # chunks that wait for each process: its next one is there when it has done one


class Workers:
    """`number` processes that follow a recipe. In a `with` block: they end with it, or with this process."""

    def __init__(self, recipe: Recipe, number: int) -> None:
        self._recipe, self._number = pickle.dumps(recipe, protocol=5), number
        self._threads = ThreadPoolExecutor(number)
        self._local = threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock, self._is_over = threading.Lock(), False

    def map(self, chunks: Iterable[Chunk]) -> Iterator[Made]:
        """What becomes of each chunk, in their order; few chunks are taken before they are needed.

        Raises what `Recipe.make` raises, for the first chunk of which it does. WorkError where a process died.
        """
        waiting: deque[Future[Made]] = deque()
        for chunk in chunks:
            waiting.append(self._threads.submit(self._make, chunk))
            if len(waiting) > _AHEAD * self._number:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

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
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


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
