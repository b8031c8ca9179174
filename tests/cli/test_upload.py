"""Promise: `outlive upload` sends what is whole, or what the user wants sent all the same, and says what came of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from outlive.checkpoint import hub as checkpoint_hub
from outlive.checkpoint.convert import convert
from outlive.checkpoint.formats.detect import open_checkpoint
from outlive.cli import upload
from outlive.cli.hand_over import check_hub, hand_over, raise_not_uploaded
from outlive.cli.main import app
from outlive.run.config import load_run
from outlive.run.engine import Result
from outlive.run.errors import InputError, WorkError
from outlive.run.folder import RunFolder
from tests.checkpoint.fake_hub import FakeHub, http_error
from tests.checkpoint.faults import save_step, tokenizer_folder
from tests.checkpoint.test_convert import SIZES, folder_of

NAME = "acme/support"


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    """A hub that may be asked."""
    hub = FakeHub()
    monkeypatch.setattr(upload, "hub", lambda: hub)
    monkeypatch.setattr(checkpoint_hub, "check_access", lambda: None)
    return hub


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A whole model folder with a manifest."""
    convert(open_checkpoint(folder_of(tmp_path / "made", SIZES)), tmp_path / "model", "huggingface")
    return tmp_path / "model"


def _run(*words: Any) -> Any:
    return CliRunner().invoke(app, ["upload", *map(str, words)])


def test_a_model(there: FakeHub, model: Path) -> None:
    result = _run(model, NAME, "--private", "--json")
    assert result.exit_code == 0, result.output
    about = json.loads(result.stdout)
    assert (about["repository"], about["commit"], about["there"]) == (NAME, "main@1", 0)
    assert about["sent"] == len(list(model.iterdir()))
    assert there.repositories[NAME].private
    assert there.files(NAME)["model.safetensors"] == (model / "model.safetensors").read_bytes()
    again = _run(model, NAME)
    assert "0 files sent" in again.stdout
    assert "commit: main@1" in again.stdout


def test_what_is_not_whole_is_sent_only_when_asked_for(there: FakeHub, model: Path) -> None:
    with open(model / "model.safetensors", "r+b") as file:
        file.seek(-3, 2)
        file.write(b"\x01")
    result = _run(model, NAME)
    assert result.exit_code == 2
    assert "not whole" in result.stderr
    assert "--unverified" in result.stderr
    assert there.repositories == {}
    result = _run(model, NAME, "--unverified")
    assert result.exit_code == 0, result.output
    assert "uploaded as it is" in result.stderr
    assert "model.safetensors" in there.files(NAME)


def _adapter(folder: Path, number: float = 1.0) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 1}))
    path = "base_model.model.m"
    a, b = np.full((1, 3), number, np.float32), np.ones((4, 1), np.float32)
    save_file({f"{path}.lora_A.weight": a, f"{path}.lora_B.weight": b}, folder / "adapter_model.safetensors")
    return folder


def test_an_adapter(there: FakeHub, tmp_path: Path) -> None:
    assert _run(_adapter(tmp_path / "good"), NAME).exit_code == 0
    result = _run(_adapter(tmp_path / "bad", float("nan")), "acme/bad")
    assert result.exit_code == 2
    assert "NaN" in result.stderr
    shutil.copytree(tmp_path / "good", tmp_path / "cut")
    (tmp_path / "cut" / "adapter_model.safetensors").write_bytes(b"x")
    assert _run(tmp_path / "cut", "acme/bad").exit_code == 2
    assert list(there.repositories) == [NAME]


def test_a_gguf_file(there: FakeHub, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    convert(open_checkpoint(folder_of(tmp_path / "made", SIZES)), tmp_path / "gguf", "gguf")
    result = _run(tmp_path / "gguf", NAME)
    assert result.exit_code == 0, result.output
    assert "model.gguf" in there.files(NAME)


def test_a_run_and_a_checkpoint_stand_for_what_they_serve(there: FakeHub, tmp_path: Path) -> None:
    tokenizer = tokenizer_folder(tmp_path / "tokenizer")
    for step in (1, 2):
        save_step(tmp_path / "run" / "checkpoints", step, tokenizer)
    last = tmp_path / "run" / "checkpoints" / "step-00000002"
    assert upload.served_folder(tmp_path / "run") == upload.served_folder(last) == last / "model"
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    result = _run(tmp_path / "empty", NAME)
    assert result.exit_code == 2
    assert "can be served" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", NAME], "no folder"),
        (["MODEL", "support"], "ORG/NAME"),
        (["MODEL", NAME, "--others", "x"], "others"),
    ],
)
def test_command_lines_that_make_no_sense(words: list[str], said: str, there: FakeHub, model: Path) -> None:
    result = _run(*[model if word == "MODEL" else word for word in words])
    assert result.exit_code == 2
    assert said in result.stderr
    assert there.repositories == {}


def test_a_line_that_is_cut_is_75(there: FakeHub, model: Path) -> None:
    there.fail_after = 1
    result = _run(model, NAME)
    assert result.exit_code == 75
    assert "same command again" in result.stderr
    there.fail_after = None
    assert "1 of" in _run(model, NAME).stderr


def test_the_hub_is_not_asked_without_a_token(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE" in _run(model, NAME).stderr
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    result = _run(model, NAME)
    assert result.exit_code == 2
    assert "HF_TOKEN" in result.stderr


def _finished(tmp_path: Path, name: str) -> tuple[Any, RunFolder, Result]:
    folder = RunFolder(tmp_path / "run")
    convert(open_checkpoint(folder_of(tmp_path / "made", SIZES)), tmp_path / "whole", "huggingface")
    save_step(folder.checkpoints, 3, tokenizer_folder(tmp_path / "tokenizer"))
    run = load_run(None, [f"export.hub={name}"], model="m", data="d.jsonl").run
    return run, folder, Result("done", steps=3, tokens=1, target_tokens=1, seconds=1.0)


@pytest.fixture
def unlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlive.checkpoint.verify.path.verify_path", lambda folder: [])


def test_a_finished_run_goes_to_the_hub(there: FakeHub, unlooked: None, tmp_path: Path) -> None:
    """A repository that is made for it is private; one that is there stays what it is."""
    run, folder, result = _finished(tmp_path, NAME)
    check_hub(run)
    done = hand_over(run, folder, result, lambda note: None)
    assert done.facts["hub"]["commit"] == "main@1"
    assert there.repositories[NAME].private
    raise_not_uploaded(done)
    there.repositories[NAME].private = False
    assert hand_over(run, folder, result, lambda note: None).facts["hub"]["sent"] == 0
    there.refuse = http_error(413, "too large")
    (folder.checkpoints / "step-00000003" / "model" / "more.json").write_text("{}")
    failed = hand_over(run, folder, result, lambda note: None)
    with pytest.raises(WorkError, match="too large") as caught:
        raise_not_uploaded(failed)
    assert str(caught.value.fix).endswith(f"outlive upload {folder.root} {NAME}")


def test_a_failed_upload_takes_nothing_from_the_run(there: FakeHub, unlooked: None, tmp_path: Path) -> None:
    run, folder, result = _finished(tmp_path, NAME)
    there.fail_after, notes = 0, list[str]()
    done = hand_over(run, folder, result, notes.append)
    assert (done.status, done.steps) == ("done", 3)
    assert "not uploaded" in notes[0]
    with pytest.raises(WorkError, match="finished and saved, but not uploaded") as caught:
        raise_not_uploaded(done)
    assert f"outlive upload {folder.root} {NAME} --private" in str(caught.value.fix)
    assert json.loads(done.to_json())["facts"]["hub"]["repository"] == NAME


def test_a_run_file_that_names_no_repository_is_refused_before_it_begins(tmp_path: Path, there: FakeHub) -> None:
    with pytest.raises(InputError, match="no repository"):
        check_hub(load_run(None, ["export.hub=support"], model="m", data="d.jsonl").run)
    with pytest.raises(InputError, match="token"):
        load_run(None, ["export.hub=hf_" + "a" * 30], model="m", data="d.jsonl")
    check_hub(load_run(None, [], model="m", data="d.jsonl").run)
