"""Promise: a secret of the environment is in no file that a run writes and in nothing that it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training needs torch")

from tests.engines.test_loop import tiny_folder

# Each its own, and assembled here, so that no scanner takes this file for a leak.
SECRETS = {
    "HF_TOKEN": "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z",
    "HUGGING_FACE_HUB_TOKEN": "hf_" + "zY3xW1vU9tS7rQ5pN3mL1kJ9hG7fE5dB3a",
    "WANDB_API_KEY": "0123456789abcdef" * 2 + "01234567",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYTESTONLY00",
    "MLFLOW_TRACKING_PASSWORD": "correct-horse-battery",
}
URL_SECRETS = ["proxy-sesame", "remote-sesame"]
TRAIN = ["data.sequence_length=128", "batch.tokens=512", "stop.steps=2", "name=one"]


def _all_text(folder: Path) -> bytes:
    """Every byte of every file below a folder, names included."""
    found = [b"\n".join([str(path).encode(), path.read_bytes()]) for path in folder.rglob("*") if path.is_file()]
    assert found
    return b"\n".join(found)


def _secrets_in(content: bytes) -> list[str]:
    return [secret for secret in (*SECRETS.values(), *URL_SECRETS) if secret.encode() in content]


@pytest.fixture
def environment(tmp_path: Path, rows: Path) -> dict[str, str]:
    """Secrets in the environment and in the git remote of the folder that the run is started in."""
    tiny_folder(tmp_path / "model", "llama")
    repository = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    remote = f"https://me:{URL_SECRETS[1]}@host.invalid/x.git"
    for command in (["init", "-q"], ["remote", "add", "origin", remote], ["add", "rows.jsonl"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, env={**os.environ, **repository})
    author = ["-c", "user.name=a", "-c", "user.email=a@host.invalid"]
    subprocess.run(
        ["git", *author, "commit", "-qm", "rows"], cwd=tmp_path, check=True, env={**os.environ, **repository}
    )
    proxy = f"http://me:{URL_SECRETS[0]}@proxy.invalid:3128"
    more = {"https_proxy": proxy, "HTTPS_PROXY": proxy, "OUTLIVE_HOME": str(tmp_path / "home"), **repository}
    return {**os.environ, **SECRETS, **more}


def _train(folder: Path, environment: dict[str, str], *settings: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "outlive.cli.main", "train", "--model", "model", "--data", "rows.jsonl"]
    return subprocess.run([*command, *TRAIN, *settings], capture_output=True, cwd=folder, env=environment)


def test_a_whole_run_writes_none_of_them(tmp_path: Path, environment: dict[str, str]) -> None:
    done = _train(tmp_path, environment, "adapter.rank=4")
    assert done.returncode == 0, done.stderr
    for folder in (tmp_path / "runs", tmp_path / "home"):
        assert _secrets_in(_all_text(folder)) == []
    assert _secrets_in(done.stdout + done.stderr) == []
    assert b'"git"' in (tmp_path / "runs" / "one" / "lock.json").read_bytes()


def test_a_run_that_fails_prints_none_of_them(tmp_path: Path, environment: dict[str, str]) -> None:
    """Nor does it leave one behind: it is refused before anything is written."""
    for setting in (f"data.train.0.hub={SECRETS['HF_TOKEN']}", f"wandb_api_key={SECRETS['WANDB_API_KEY']}"):
        done = _train(tmp_path, environment, setting)
        assert done.returncode == 2, done.stderr
        assert _secrets_in(done.stdout + done.stderr) == []
        assert b"environment only" in done.stderr
        assert not (tmp_path / "runs").exists()


def test_the_search_would_find_them(tmp_path: Path) -> None:
    (tmp_path / "leak.json").write_text('{"token": "' + SECRETS["HF_TOKEN"] + '", "proxy": "' + URL_SECRETS[0] + '"}')
    assert _secrets_in(_all_text(tmp_path)) == [SECRETS["HF_TOKEN"], URL_SECRETS[0]]
