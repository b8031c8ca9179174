"""Promise: `outlive merge` leaves a whole model folder that transformers opens, or nothing; and overwrites nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peft import LoraConfig
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from outlive.checkpoint.adapters.binding import content_hash
from outlive.checkpoint.manifest import verify_manifest
from outlive.checkpoint.model_folder import write_model_folder
from outlive.checkpoint.tensors.dtypes import cast, to_float32
from outlive.checkpoint.tensors.views import Given
from outlive.cli.main import app
from tests.checkpoint.adapters.peft_models import Made, difference, logits, make, tiny


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    config = LoraConfig(task_type="CAUSAL_LM", r=3, target_modules=["q_proj", "embed_tokens"])
    made = make(tmp_path_factory.mktemp("made"), tiny("llama", tie_word_embeddings=True), config, unload=False)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        (made.base / name).write_text(f'"of the base: {name}"')
    for name in ("tokenizer.json", "chat_template.jinja"):
        (made.adapter / name).write_text(f'"of the adapter: {name}"')
    return made


def _run(*words: Any) -> Any:
    return CliRunner().invoke(app, ["merge", *map(str, words)])


def test_an_adapter(made: Made, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "merged"
    result = _run(made.base, made.adapter, target, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["tensors"] == len(load_file(target / "model.safetensors"))
    verify_manifest(target)
    config = json.loads((target / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    assert config["dtype"] == config["torch_dtype"] == "float32"
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"]
    assert "adapter" in (target / "tokenizer.json").read_text()
    assert not (target / "tokenizer_config.json").exists()  # of another tokenizer than the adapter's
    assert "adapter" in (target / "chat_template.jinja").read_text()
    assert "base" in (target / "generation_config.json").read_text()
    (target / "generation_config.json").unlink()
    assert difference(logits(AutoModelForCausalLM.from_pretrained(target).eval()), made.wanted) < 1e-5


def test_nothing_is_overwritten(made: Made, tmp_path: Path) -> None:
    target = tmp_path / "there"
    target.mkdir()
    result = _run(made.base, made.adapter, target)
    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert list(target.iterdir()) == []


def test_a_failure_leaves_nothing(made: Made, tmp_path: Path) -> None:
    result = _run(made.base, made.base, tmp_path / "merged")
    assert result.exit_code == 2
    assert "adapter_config.json" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", ["average", "task", "ties", "dare"])
def test_methods(method: str, made: Made, tmp_path: Path) -> None:
    one = tmp_path / "one"
    assert _run(made.base, made.adapter, one).exit_code == 0
    two = tmp_path / "two"
    assert _run(made.base, made.adapter, two).exit_code == 0
    base = [] if method == "average" else ["--base", one]
    result = _run("--method", method, one, two, tmp_path / "out", *base)
    assert result.exit_code == 0, result.output
    for name, values in load_file(tmp_path / "out" / "model.safetensors").items():
        assert values == pytest.approx(load_file(one / "model.safetensors")[name], abs=1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "b"], "BASE ADAPTER DST"),
        (["a", "b", "c", "d"], "BASE ADAPTER DST"),
        (["--method", "average", "a", "c"], "at least two models"),
        (["a", "b", "c", "--density", "0.5"], "--method"),
        (["no", "where", "out"], "no such folder"),
        (["--method", "ties", "BASE", "BASE", "out"], "--base"),
        (["--method", "average", "BASE", "BASE", "out", "--weights", "a,b"], "list of numbers"),
        (["--method", "average", "BASE", "BASE", "out", "--density", "0.1"], "average"),
    ],
)
def test_command_lines_that_make_no_sense(words: list[str], said: str, made: Made, tmp_path: Path) -> None:
    result = _run(*[{"BASE": made.base, "out": tmp_path / "out"}.get(word, word) for word in words])
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_large_models_are_split(tmp_path: Path) -> None:
    tensors = {f"t{number}": Given(np.full((10, 10), number, np.float32)) for number in range(5)}
    source = tmp_path / "source"
    source.mkdir()
    write_model_folder(tmp_path / "out", tensors, {}, sources=[source], about={}, max_shard_bytes=900)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 2000
    assert sorted(set(index["weight_map"].values())) == [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    for name, file in index["weight_map"].items():
        assert (load_file(tmp_path / "out" / file)[name] == int(name[1:])).all()


def test_an_adapter_bound_to_another_base(made: Made, tmp_path: Path) -> None:
    """base.json, which Outlive saves beside its adapters: the base with that hash is taken, another is not."""
    adapter = tmp_path / "adapter"
    shutil.copytree(made.adapter, adapter)
    for digest, code in ((content_hash(made.base), 0), ("0" * 32, 2)):
        (adapter / "base.json").write_text(json.dumps({"model": "org/base", "content_hash": digest}))
        result = _run(made.base, adapter, tmp_path / str(code))
        assert result.exit_code == code, result.output
    assert "another base: org/base" in result.stderr


def test_float32_is_asked_for_before_the_sum(made: Made, tmp_path: Path) -> None:
    """--dtype fp32 on a bf16 base: sums are not rounded to bf16 on the way."""
    base, weights = tmp_path / "base", load_file(made.base / "model.safetensors")
    half = {name: Given(cast(values, "float32", "bfloat16"), "bfloat16") for name, values in weights.items()}
    write_model_folder(base, half, json.loads((made.base / "config.json").read_text()), sources=[made.base], about={})
    assert _run(base, made.adapter, tmp_path / "out", "--dtype", "fp32").exit_code == 0
    name = "model.layers.0.self_attn.q_proj.weight"
    found = load_file(tmp_path / "out" / "model.safetensors")[name]
    adapter = load_file(made.adapter / "adapter_model.safetensors")
    a, b = (adapter[f"base_model.model.{name.replace('weight', f'lora_{part}.weight')}"] for part in "AB")
    exact = to_float32(half[name].values, "bfloat16") + 8 / 3 * b @ a
    assert found == pytest.approx(exact, abs=1e-6)
