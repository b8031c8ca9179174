"""Promise: help is there at once, verbs load only what they need, and every way to fail has its exit code."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from outlive.cli.main import VERBS

HEAVY = ("pydantic", "pyarrow", "tokenizers", "numpy", "rich", "torch", "transformers", "jinja2", "yaml", "xxhash")
TYPERS_OWN = ["pydantic"]  # newer versions of typer read the options of a verb with it
MAIN = "import sys; from outlive.cli.main import main\n"


def outlive(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "outlive.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def imported(*arguments: str) -> list[str]:
    """Which heavy modules a command has imported by its end."""
    report = "lambda: print('\\n', [m for m in HEAVY if m in sys.modules], file=sys.stderr)"
    code = f"{MAIN}import atexit\natexit.register({report})\nmain()"
    done = python(f"HEAVY = {HEAVY!r}\n" + code, *arguments)
    assert done.returncode == 0, done.stderr
    found: list[str] = yaml.safe_load(done.stderr.strip().splitlines()[-1])
    return found


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_nothing_heavy(option: str) -> None:
    assert imported(option) == []


@pytest.mark.parametrize("verb", ["init", "schema"])
def test_help_of_a_verb_imports_nothing_heavy(verb: str) -> None:
    assert imported(verb, "--help") in ([], TYPERS_OWN)


@pytest.mark.skipif(importlib.util.find_spec("outlive.cli.train") is None, reason="there is no train verb yet")
def test_help_of_train_imports_nothing_heavy() -> None:
    assert imported("train", "--help") in ([], TYPERS_OWN)


def test_help_lists_the_verbs_that_exist_and_loads_none() -> None:
    done = outlive("--help")
    assert done.returncode == 0
    for verb, (module, line) in VERBS.items():
        assert f"  {verb} " in done.stdout
        assert line in " ".join(done.stdout.split())
        assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_explains_itself(verb: str) -> None:
    done = outlive(verb, "--help")
    assert done.returncode == 0
    assert f"outlive.cli.main {verb}" in done.stdout.replace("python -m ", "")


def test_version() -> None:
    assert outlive("--version").stdout.startswith("outlive 0.")


def test_wrong_usage_is_exit_2() -> None:
    for arguments in (["nosuchverb"], ["schema", "--nosuchoption"], ["schema", "extra"]):
        done = outlive(*arguments)
        assert done.returncode == 2
        assert done.stdout == ""
        assert "Traceback" not in done.stderr


def test_init_writes_a_file_once(tmp_path: Path) -> None:
    done = outlive("init", "--model", "org/model", "--data", "chats.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    values = yaml.safe_load((tmp_path / "run.yaml").read_text())
    assert values["model"] == "org/model"
    assert values["data"]["train"] == [{"path": "chats.jsonl"}]
    before = (tmp_path / "run.yaml").read_bytes()
    done = outlive("init", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: this file exists already\n  --> run.yaml\n")
    assert (tmp_path / "run.yaml").read_bytes() == before
    assert outlive("init", "other/b.yaml", cwd=tmp_path).returncode == 0
    assert (tmp_path / "other" / "b.yaml").exists()


def test_schema_prints_json_and_nothing_else() -> None:
    done = outlive("schema")
    assert json.loads(done.stdout)["title"] == "Outlive run file"
    assert done.stderr == ""


FAIL = """
import sys, types
from outlive.cli import main as module
from outlive.run.errors import InputError, Resumable, WorkError
def command():
    print("before")
    raise {error}
sys.modules["failing"] = types.SimpleNamespace(command=command)
module.VERBS["fail"] = ("failing", "Fails.")
module.main()
"""


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        ("InputError('wrong', where='f:1', fix='do')", 2, "error: wrong\n  --> f:1\n   = fix: do\n"),
        ("WorkError('failed')", 1, "error: failed\n"),
        ("Resumable('stopped')", 75, "stopped: stopped\n"),
        ("KeyboardInterrupt()", 130, "interrupted\n"),
        ("SystemExit(7)", 7, ""),
    ],
)
def test_errors_become_exit_codes(error: str, code: int, text: str) -> None:
    done = python(FAIL.format(error=error), "fail")
    assert done.returncode == code
    assert done.stderr == text
    assert done.stdout == "before\n"


def test_an_unexpected_error_shows_its_trace_and_asks_to_report() -> None:
    done = python(FAIL.format(error="ZeroDivisionError('inside')"), "fail")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError: inside" in done.stderr
    assert "Please report it" in done.stderr.splitlines()[-1]


def test_a_closed_pipe_is_quiet() -> None:
    code = FAIL.replace("raise {error}", "print('x' * 10**6)")
    for command in ([sys.executable, "-c", code, "fail"], [sys.executable, "-m", "outlive.cli.main", "schema"]):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writer)
        assert done.stderr == ""
        assert done.returncode != 0


def test_ctrl_c_is_130() -> None:
    code = FAIL.format(error="SystemExit(3)").replace(
        'print("before")',
        f"import os, signal; os.kill(os.getpid(), {int(signal.SIGINT)}); [None for _ in range(10**7)]",
    )
    done = python(code, "fail")
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
