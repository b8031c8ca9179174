"""Promise: the first signal waits for the step, the second for nothing, whatever the main thread is doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from outlive.run import stopping
from outlive.run.stopping import SIGNALS, Stopping

# What a child of a test runs: it writes what is said on a pipe, and the clock makes each signal one of its own.
BEGIN = """
import hashlib, itertools, os, signal, sys
from outlive.run.stopping import Stopping
clock = itertools.count(step=10.0).__next__
def say(note): os.write(1, (note + "\\n").encode())
"""
LONG = BEGIN + (
    "with Stopping(say, lambda: 33, clock):\n"
    "    say('ready')\n"
    "    hashlib.pbkdf2_hmac('sha256', b'x', b'y', 2**31 - 1)\n"  # hours in one C call
)


def child(code: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload, no-any-return]


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def heard() -> tuple[list[str], threading.Event, Callable[[str], None]]:
    said, event = [], threading.Event()

    def say(note: str) -> None:
        said.append(note)
        event.set()

    return said, event, say


@pytest.mark.parametrize("name", SIGNALS)
def test_the_second_signal_ends_the_process_inside_a_long_c_call(name: str) -> None:
    with child(LONG) as process:
        assert line(process) == "ready"
        process.send_signal(getattr(signal, name))
        assert line(process) == f"{name}: the step is finished, then the run is saved; once more ends it at once"
        process.send_signal(getattr(signal, name))
        assert process.wait() == 33


def test_the_second_signal_ends_it_even_where_nothing_can_be_said_and_the_code_can_not_be_told() -> None:
    code = BEGIN + (
        "import threading\n"
        "def stuck(note): say('stuck'); threading.Event().wait()\n"
        "with Stopping(stuck, lambda: 1 // 0, clock):\n"
        "    say('ready')\n"
        "    hashlib.pbkdf2_hmac('sha256', b'x', b'y', 2**31 - 1)\n"
    )
    with child(code) as process:
        assert line(process) == "ready"
        process.terminate()
        assert line(process) == "stuck"
        process.terminate()
        assert process.wait() == 75


def test_one_signal_lets_the_work_end_well_and_a_broken_console_does_not_matter() -> None:
    code = BEGIN + (
        "def broken(note): say('heard'); raise OSError\n"
        "with Stopping(broken) as stop:\n"
        "    say('ready')\n"
        "    while not stop.requested: pass\n"
        "say(stop.requested)\n"
    )
    with child(code) as process:
        assert line(process) == "ready"
        process.send_signal(signal.SIGUSR1)
        assert {line(process), line(process)} == {"heard", "SIGUSR1"}
        assert process.wait() == 0


def test_handlers_and_wakeup_are_put_back() -> None:
    before = [signal.getsignal(getattr(signal, name)) for name in SIGNALS]
    read, write = os.pipe()
    os.set_blocking(write, False)
    old = signal.set_wakeup_fd(write)
    try:
        with Stopping(print):
            assert signal.getsignal(signal.SIGTERM) not in before
        assert [signal.getsignal(getattr(signal, name)) for name in SIGNALS] == before
        assert signal.set_wakeup_fd(-1) == write
    finally:
        signal.set_wakeup_fd(old)
        os.close(read)
        os.close(write)


def test_a_request_that_comes_twice_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the terminal, and from a launcher that got it too and passes it on; timeout(1) signals child and group."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    times = iter([0.0, 0.1, 0.2, 5.0, 5.1, 9.0])
    stop = Stopping(lambda note: None, clock=lambda: next(times))
    for name, number in (("SIGINT", 0), ("SIGINT", 0), ("SIGINT", 0), ("SIGINT", 1), ("SIGTERM", 1), ("SIGTERM", 2)):
        stop._on(name)
        assert len(ended) == number
    assert stop.requested == "SIGINT"
    assert ended == [75, 75]


def test_a_forked_child_does_not_count_for_its_parent_and_outlives_a_ctrl_c() -> None:
    """A terminal's Ctrl-C and a scheduler's warning reach the whole process group."""
    code = BEGIN + (
        "with Stopping(say, clock=clock) as stop:\n"
        "    begin, go = os.pipe(), os.pipe()\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os.write(begin[1], b'1')\n"
        "        os.read(go[0], 1)\n"
        "        os._exit(7)\n"
        "    os.read(begin[0], 1)\n"
        "    for number in (signal.SIGINT, signal.SIGUSR1): os.kill(child, number)\n"
        "    os.write(go[1], b'1')\n"
        "    say(f'child {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}, {stop.requested}')\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    while not stop.requested: pass\n"
        "    child = os.fork()\n"
        "    if child == 0: signal.pause()\n"
        "    os.kill(child, signal.SIGTERM)\n"
        "    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "sys.exit(3 if code == -signal.SIGTERM else 4)\n"
    )
    with child(code) as process:
        assert line(process) == "child 7, None"
        assert process.wait() == 3


def test_an_interrupt_that_the_parent_ignores_stays_ignored_and_the_others_work() -> None:
    code = BEGIN + (
        "with Stopping(say, clock=clock) as stop:\n"
        "    say(str(signal.getsignal(signal.SIGINT) is signal.SIG_IGN))\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    while not stop.requested: pass\n"
        "say(stop.requested + str(signal.getsignal(signal.SIGINT) is signal.SIG_IGN))\n"
    )
    with child(code, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) as process:
        assert line(process) == "True"
        assert {line(process), line(process)} >= {"SIGTERMTrue"}
        assert process.wait() == 0


def test_in_another_thread_it_is_inert() -> None:
    before = [signal.getsignal(getattr(signal, name)) for name in SIGNALS]
    found: list[object] = []

    def work() -> None:
        with Stopping(print) as stop:
            found.extend([stop.requested, [signal.getsignal(getattr(signal, name)) for name in SIGNALS]])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [None, before]


def test_signals_that_a_platform_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "SIGNALS", ("SIGTERM", "SIGNONE"))
    said, event, say = heard()
    with Stopping(say) as stop:
        signal.raise_signal(signal.SIGTERM)
        event.wait()
        assert stop.requested == "SIGTERM"
    assert len(said) == 1
