"""Promise: two checkpoints of any format are compared by what they answer, and what can't be compared is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

pytest.importorskip("torch")

from outlive.checkpoint.convert import convert
from outlive.checkpoint.formats.huggingface import open_model
from outlive.cli.main import app
from outlive.modeling import compare
from tests.checkpoint.verify.small import SINGLE, adapter, huggingface


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["verify", *map(str, arguments)])


def logits(one: Path, other: Path, *more: Any) -> tuple[int, dict[str, Any]]:
    done = run(one, "--against", other, "--logits", "--json", *more)
    assert done.exit_code in (0, 1), done.output
    return done.exit_code, json.loads(done.stdout)["logits"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = huggingface(tmp_path_factory.mktemp("model") / "model")
    tensors = load_file(folder / SINGLE)
    save_file({name: one * np.float32(0.2) for name, one in tensors.items()}, folder / SINGLE, {"format": "pt"})
    (folder / "manifest.json").unlink()
    return folder


def test_a_model_and_what_it_was_converted_to(model: Path, tmp_path: Path) -> None:
    code, apart = logits(model, model)
    assert (code, apart["largest"], apart["kl"], apart["same_greedy"]) == (0, 0.0, 0.0, 1.0)
    for to in ("gguf", "dcp"):
        convert(open_model(model), tmp_path / to, to)  # type: ignore[arg-type]
        code, apart = logits(model, tmp_path / to)
        assert (code, apart["same_greedy"]) == (0, 1.0)
        assert apart["largest"] < 1e-5
        assert "all tensors are the same" in run(model, "--against", tmp_path / to).stdout


def test_another_model(model: Path, tmp_path: Path) -> None:
    other = huggingface(tmp_path / "other")
    code, apart = logits(model, other)
    assert code == 1
    assert apart["largest"] > 0.1
    assert apart["kl"] > 0
    assert apart["same_greedy"] < 1
    assert logits(model, other, "--tolerance", "1e9")[0] == 0


def test_an_adapter_and_the_merged_model(model: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter")
    code, apart = logits(folder, model, "--base", model)
    assert (code, apart["largest"] > 0.1) == (1, True)
    merged = CliRunner().invoke(app, ["merge", str(model), str(folder), str(tmp_path / "merged")])
    assert merged.exit_code == 0, merged.output
    code, apart = logits(folder, tmp_path / "merged", "--base", model)
    assert (code, apart["same_greedy"]) == (0, 1.0)
    assert apart["largest"] < 1e-5
    assert run(folder, "--against", model, "--logits").exit_code == 2


def test_what_cant_be_compared(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(model, "--logits").exit_code == 2
    other = huggingface(tmp_path / "other")
    tensors = load_file(other / SINGLE)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = np.concatenate([tensors[name], tensors[name][:1]])
    save_file(tensors, other / SINGLE, {"format": "pt"})
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"vocab_size": config["vocab_size"] + 1}))
    done = run(model, "--against", other, "--logits")
    assert (done.exit_code, "the vocabularies differ" in str(done.output)) == (2, True)
    monkeypatch.setattr(compare, "available_memory", lambda: 1000)
    done = run(model, "--against", model, "--logits")
    assert (done.exit_code, "GiB are free" in str(done.output)) == (2, True)
