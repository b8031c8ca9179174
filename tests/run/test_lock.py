"""Promise: the lock says what a run was made with, imports nothing for it, and holds no secret."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.run.credentials import has_credentials, without_credentials
from outlive.run.lock import git, lock
from outlive.run.machine import cpu_flags, peak_memory


def test_content() -> None:
    content = lock(hashes={"model": "abc"}, gpu={"name": "X"})
    assert content["hashes"] == {"model": "abc"}
    assert content["gpu"] == {"name": "X"}
    assert content["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"outlive", "pydantic", "pyarrow"} <= content["packages"].keys()
    assert json.loads(json.dumps(content)) == content
    assert lock()["gpu"] is None


def test_no_environment_variable_and_no_credential_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "s3cret-value")
    text = json.dumps(lock(hashes={"source": "https://me:s3cret-value@host/x", "list": ["https://s3cret-value@host"]}))
    assert "s3cret-value" not in text
    assert "https://host/x" in text


def test_versions_are_found_without_importing() -> None:
    code = (
        "import sys; from outlive.run.lock import lock; lock()\n"
        "print([name for name in ('torch', 'transformers', 'pyarrow', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_git(tmp_path: Path) -> None:
    assert git(tmp_path) is None
    assert git(tmp_path / "missing") is None

    def run(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    run("init", "-q")
    (tmp_path / "f").write_text("1")
    run("add", "f")
    run("commit", "-qm", "one")
    assert git(tmp_path) == {"commit": run("rev-parse", "HEAD"), "dirty": False}
    (tmp_path / "new").write_text("untracked files are not what ran")
    assert git(tmp_path) == {"commit": run("rev-parse", "HEAD"), "dirty": False}
    (tmp_path / "f").write_text("2")
    assert git(tmp_path) == {"commit": run("rev-parse", "HEAD"), "dirty": True}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("https://me:pw@host/a", "https://host/a"),
        ("see https://token@host and git+ssh://git@host/x", "see https://host and git+ssh://host/x"),
        ("https://me:p@w@host/a", "https://host/a"),
        ("https://host/a@b", "https://host/a@b"),
        ("me@host", "me@host"),
        ("https://host", "https://host"),
    ],
)
def test_credentials_in_urls(text: str, clean: str) -> None:
    assert without_credentials(text) == clean
    assert without_credentials({"a": [text, 1]}) == {"a": [clean, 1]}
    assert has_credentials(text) == (text != clean)
    assert not has_credentials(clean)


def test_the_machine_is_read_from_the_kernel(tmp_path: Path) -> None:
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    assert all(flag in flags for flag in cpu_flags())
    assert ("avx2" in cpu_flags()) == (" avx2 " in flags)


def test_peak_memory_is_this_processes_own() -> None:
    before = peak_memory()
    block = bytearray(64 << 20)
    block[::4096] = b"x" * len(block[::4096])
    assert peak_memory() >= before
    assert peak_memory() >= 64 << 20
    code = "from outlive.run.machine import peak_memory; print(peak_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 64 << 20, "not that of the process that started it"
