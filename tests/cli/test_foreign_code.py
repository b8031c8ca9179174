"""Promise: no code that comes with a model runs unless the run file says so, and no pickle's code ever."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outlive.cli.main import app

torch = pytest.importorskip("torch", reason="training needs torch")

from tests.engines.test_loop import tiny_folder  # noqa: E402

MODELING = """
from pathlib import Path
Path({marker!r}).write_text("it ran")
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class TheirConfig(LlamaConfig):
    pass
class TheirModel(LlamaForCausalLM):
    config_class = TheirConfig
class TheirTokenizer(PreTrainedTokenizerFast):
    pass
"""
AUTO_MAP = {
    "AutoConfig": "modeling_theirs.TheirConfig",
    "AutoModelForCausalLM": "modeling_theirs.TheirModel",
    "AutoTokenizer": ["modeling_theirs.TheirTokenizer", "modeling_theirs.TheirTokenizer"],
}
SETTINGS = ["data.sequence_length=128", "batch.tokens=512", "stop.steps=1", "name=one"]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("good") / "model", "llama")


@pytest.fixture
def marker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, good: Path, rows: Path) -> Path:
    """The file that foreign code would write; beside it the rows and a model folder that brings such code."""
    monkeypatch.setenv("OUTLIVE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(good, tmp_path / "model")
    (tmp_path / "model" / "modeling_theirs.py").write_text(MODELING.format(marker=str(tmp_path / "marker")))
    for name in ("config.json", "tokenizer_config.json"):
        _update(tmp_path / "model" / name, auto_map=AUTO_MAP)
    return tmp_path / "marker"


def _update(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def outlive(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


COMMANDS = {
    "train": ["train", "--model", "model", "--data", "rows.jsonl", *SETTINGS],
    "prepare": ["prepare", "--model", "model", "--data", "rows.jsonl", *SETTINGS],
    "inspect": ["inspect", "rows.jsonl", "--tokenizer", "model"],
    "generate": ["generate", "model", "Hello", "--max-tokens", "1"],
}


@pytest.mark.parametrize("verb", COMMANDS)
def test_code_of_a_known_kind_of_model_is_not_needed_and_not_run(marker: Path, verb: str) -> None:
    """transformers has the model's type itself: its own code is used."""
    done = outlive(*COMMANDS[verb])
    assert done.exit_code == 0, done.stderr
    assert not marker.exists()


@pytest.mark.parametrize("verb", ["train", "generate"])
def test_a_model_that_is_nothing_without_its_code_is_refused(marker: Path, verb: str) -> None:
    _update(marker.parent / "model" / "config.json", model_type="theirs")
    done = outlive(*COMMANDS[verb])
    assert done.exit_code == 2, done.stderr
    assert not marker.exists()
    assert not (marker.parent / "runs" / "one").exists()
    for part in ("Python code that comes with it", "config.json", "trust_remote_code: true if you trust"):
        assert part in done.stderr


def test_the_data_of_such_a_model_needs_none_of_its_code(marker: Path) -> None:
    _update(marker.parent / "model" / "config.json", model_type="theirs")
    for verb in ("prepare", "inspect"):
        assert outlive(*COMMANDS[verb]).exit_code == 0
    assert not marker.exists()


def test_where_the_run_says_so_the_code_runs_and_that_is_said(marker: Path) -> None:
    """In a process of its own: transformers copies such code into a cache that it names when it is imported."""
    command = [sys.executable, "-m", "outlive.cli.main", *COMMANDS["train"], "trust_remote_code=true"]
    env = {**os.environ, "HF_MODULES_CACHE": str(marker.parent / "modules")}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert marker.read_text() == "it ran"
    assert "trust_remote_code is on" in done.stdout + done.stderr
    assert "trust_remote_code: true" in (marker.parent / "runs" / "one" / "run.yaml").read_text()


class _Malicious:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.marker, "it ran")


@pytest.mark.parametrize("form", ["zip", "plain"])
@pytest.mark.parametrize("verb", ["train", "generate"])
def test_a_pickle_with_code_in_it_is_refused(marker: Path, verb: str, form: str) -> None:
    """`pytorch_model.bin` is a pickle: it may hold tensors, and nothing that is called."""
    model = marker.parent / "model"
    (model / "model.safetensors").unlink()
    weights = {"model.embed_tokens.weight": torch.zeros(2, 2), "x": _Malicious(marker)}
    if form == "zip":
        torch.save(weights, model / "pytorch_model.bin")
    else:
        (model / "pytorch_model.bin").write_bytes(pickle.dumps({"x": _Malicious(marker)}))
    done = outlive(*COMMANDS[verb])
    assert not marker.exists()
    assert done.exit_code == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "pytorch_model.bin" in done.stderr
    assert "safetensors" in done.stderr
    with contextlib.suppress(RuntimeError):  # it is no checkpoint, which torch finds out afterwards
        torch.load(model / "pytorch_model.bin", weights_only=False)
    assert marker.exists()  # which is what such a pickle does where nothing holds it


@pytest.mark.parametrize("verb", ["train", "prepare", "inspect"])
def test_a_template_that_would_never_end_is_stopped_and_named(marker: Path, verb: str) -> None:
    """Of a file and of the model itself, before a row is refused for it."""
    endless = "{% for i in range(99999) %}\n{{ 'x' * 10**9 }}{% endfor %}"
    (marker.parent / "theirs.jinja").write_text(endless)
    named = ["--chat-template", "theirs.jinja"] if verb == "inspect" else ["data.chat_template=theirs.jinja"]
    (marker.parent / "model" / "chat_template.jinja").write_text(endless)
    for more, where in ((named, "theirs.jinja, line 2"), ([], "the tokenizer's template, model, line 2")):
        done = outlive(*COMMANDS[verb], *more)
        assert done.exit_code == 2, done.stderr
        assert where in done.stderr
        assert "characters of text" in done.stderr
        assert not (marker.parent / "runs" / "one").exists()
