"""Signals that ask a run to stop: the first waits for the end of the step, the second waits for nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from outlive.run.errors import Resumable

SIGNALS = ("SIGTERM", "SIGUSR1", "SIGINT")
# One request can come twice: from the terminal or scheduler, and passed on by a launcher that got it too (timeout(1)
# signals its child, and then the child's whole group).
SAME_SIGNAL = 0.25  # seconds


@contextlib.contextmanager
def resumable(where: str) -> Iterator[None]:
    """In the block SIGTERM ends the process as Ctrl-C does, by an exception; where notes of the exception say that what
    was done is kept, it becomes a Resumable that says so. `where`: "in the middle of …"."""
    is_main = threading.current_thread() is threading.main_thread()
    mine = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if mine:
        signal.signal(signal.SIGTERM, _end)
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        if kept := getattr(error, "__notes__", []):
            raise Resumable(where, fix="; ".join(kept)) from None
        raise
    finally:
        if mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # the code that a shell reports for it


class Stopping:
    """A context manager for the time in which a run may be asked to stop.

    Bytes that the interpreter's C handler writes for each signal are read by a thread of our own, so that a signal
    counts at once, also while the main thread is inside a long call. In threads other than the main one, where Python
    can't handle signals, nothing is installed; so it is for signals that this platform lacks, and for SIGINT where the
    parent set it to be ignored (as shells do for jobs in the background). Forked children don't take part.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        exit_code: Callable[[], int] = lambda: Resumable.exit_code,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.requested: str | None = None
        """Name of the first signal that came, as "SIGTERM"."""
        self._say, self._exit_code, self._clock = say, exit_code, clock
        self._names: dict[int, str] = {}
        self._previous: dict[int, Any] = {}
        self._previous_wakeup = self._write = -1
        self._last = 0.0
        self._watcher: threading.Thread | None = None
        self._forking = threading.local()  # the signal mask of a thread that forks

    def __enter__(self) -> Stopping:
        if threading.current_thread() is not threading.main_thread():
            return self
        read, self._write = os.pipe()
        if os.name == "posix":
            os.set_blocking(self._write, False)  # a C handler must never wait
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._in_child
            )
        self._watcher = threading.Thread(target=self._watch, args=(read,), name="signals", daemon=True)
        self._watcher.start()
        self._previous_wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for name in SIGNALS:
            number = getattr(signal, name, None)
            if number is None or (name == "SIGINT" and signal.getsignal(number) is signal.SIG_IGN):
                continue
            self._names[int(number)] = name
            self._previous[int(number)] = signal.signal(number, _only_the_byte)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watcher is None:
            return
        self._restore()
        os.close(self._write)  # the watcher reads the end, and ends
        self._watcher.join()
        self._watcher = None

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            # None: a handler that Python did not install, and can't install again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous = {}
        signal.set_wakeup_fd(self._previous_wakeup)

    def _watch(self, read: int) -> None:
        while numbers := os.read(read, 64):
            for number in numbers:
                if number in self._names:
                    self._on(self._names[number])
        os.close(read)

    def _on(self, name: str) -> None:
        now, since = self._clock(), self._last
        self._last = now
        if self.requested is None:
            self.requested = name
            note = f"{name}: the step is finished, then the run is saved; once more ends it at once"
            # On a thread of its own: a terminal that takes no more text must not keep the second signal waiting.
            threading.Thread(target=self._tell, args=(note,), daemon=True).start()
        elif now - since > SAME_SIGNAL:
            os._exit(self._code())

    def _tell(self, note: str) -> None:
        with contextlib.suppress(Exception):  # a closed terminal is no reason not to stop well
            self._say(note)

    def _code(self) -> int:
        try:
            return self._exit_code()
        except Exception:
            return Resumable.exit_code

    def _before_fork(self) -> None:
        # Until a child has handlers of its own, a signal to it would write into the pipe that it shares with us.
        if self._watcher is not None and os.name == "posix":
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._names)

    def _after_fork(self) -> None:
        if hasattr(self._forking, "mask") and os.name == "posix":
            signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)
            del self._forking.mask

    def _in_child(self) -> None:
        """In a forked child: its signals are its own and don't count as the run's.

        Ctrl-C and a scheduler's warning reach the whole process group; a helper that died of them could not help to
        finish the step. SIGTERM is how helpers are ended.
        """
        if self._watcher is not None:
            self._watcher = None
            self._restore()
            for number, name in self._names.items():
                if name != "SIGTERM":
                    signal.signal(number, signal.SIG_IGN)
            os.close(self._write)
        self._after_fork()


def _only_the_byte(number: int, frame: FrameType | None) -> None:
    """Python's own handler, which runs whenever the main thread comes to it: too late to be of use."""
