"""Promise: `outlive merge` leaves a whole model folder that transformers opens, or nothing; and overwrites nothing."""

from __future__ import annotations

import copy
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as load_torch
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from outlive.checkpoint.adapters.binding import content_hash
from outlive.checkpoint.manifest import verify_manifest
from outlive.checkpoint.model_folder import write_model_folder
from outlive.checkpoint.tensors.dtypes import cast, to_float32
from outlive.checkpoint.tensors.views import Given
from outlive.cli.main import app
from tests.checkpoint.adapters.peft_models import Made, difference, logits, make, tiny
from tests.checkpoint.test_convert import SIZES, folder_of


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


def test_several_adapters_by_their_weights(tmp_path: Path) -> None:
    """0.7 and -0.4 times two LoRAs of other ranks: what PEFT makes of them, joined along the rank."""
    model = tiny("llama")
    model.save_pretrained(tmp_path / "base")
    trained = get_peft_model(
        copy.deepcopy(model), LoraConfig(task_type="CAUSAL_LM", r=3, target_modules=["q_proj", "embed_tokens"])
    )
    both = {"r": 5, "lora_alpha": 3, "target_modules": ["q_proj", "up_proj", "embed_tokens"], "use_rslora": True}
    trained.add_adapter("other", LoraConfig(task_type="CAUSAL_LM", **both))
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in trained.named_parameters():
            if "lora_" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    trained.save_pretrained(tmp_path / "adapters")
    trained.add_weighted_adapter(["default", "other"], [0.7, -0.4], "sum", combination_type="cat")
    trained.set_adapter("sum")
    wanted = logits(trained.eval())
    first, second = tmp_path / "adapters", tmp_path / "adapters" / "other"
    result = _run(tmp_path / "base", first, second, tmp_path / "out", "--weights", "0.7,-0.4")
    assert result.exit_code == 0, result.output
    ours = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval())
    assert difference(ours, wanted) < 1e-5
    assert difference(ours, logits(model)) > 1e-3
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["weights"] == "0.7,-0.4"


TIED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one of them on the embeddings": ({"target_modules": ["q_proj"]}, {"target_modules": ["embed_tokens", "o_proj"]}),
    "both on the embeddings": ({"target_modules": ["embed_tokens"]}, {"target_modules": ["embed_tokens", "q_proj"]}),
    "embeddings and head": ({"target_modules": ["lm_head"]}, {"target_modules": ["embed_tokens"]}),
}


@pytest.mark.parametrize("case", TIED)
def test_several_adapters_of_a_tied_model(case: str, tmp_path: Path) -> None:
    """Both at work on the base, as PEFT computes it, and both merged: the head is untied where it has to be."""
    model = tiny("llama", tie_word_embeddings=True)
    model.save_pretrained(tmp_path / "base")
    one, other = (LoraConfig(task_type="CAUSAL_LM", r=3, **options) for options in TIED[case])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = get_peft_model(copy.deepcopy(model), one)
        trained.add_adapter("other", other)
        torch.manual_seed(2)
        with torch.no_grad():
            for name, parameter in trained.named_parameters():
                if "lora_" in name:
                    parameter.add_(0.1 * torch.randn_like(parameter))
        trained.save_pretrained(tmp_path / "adapters")
        trained.base_model.set_adapter(["default", "other"])
        wanted = logits(trained.eval())
    result = _run(tmp_path / "base", tmp_path / "adapters", tmp_path / "adapters" / "other", tmp_path / "out")
    assert result.exit_code == 0, result.output
    ours = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval())
    assert difference(ours, wanted) < 1e-5
    assert difference(ours, logits(model)) > 1e-3


def test_adapters_with_other_templates(made: Made, tmp_path: Path) -> None:
    """The first one's is taken, and it is said."""
    shutil.copytree(made.adapter, tmp_path / "other")
    (tmp_path / "other" / "chat_template.jinja").write_text("another")
    result = _run(made.base, made.adapter, tmp_path / "other", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "chat_template.jinja of" in result.stderr
    assert "of the adapter" in (tmp_path / "out" / "chat_template.jinja").read_text()
    assert "chat_template" not in _run(made.base, made.adapter, made.adapter, tmp_path / "two").stderr


def test_a_pickled_adapter(made: Made, tmp_path: Path) -> None:
    """adapter_model.bin, as older versions of PEFT wrote it: the same weights, and no code of it is run."""
    adapter = tmp_path / "old"
    shutil.copytree(made.adapter, adapter)
    tensors = load_torch(adapter / "adapter_model.safetensors")
    (adapter / "adapter_model.safetensors").unlink()
    torch.save(tensors, adapter / "adapter_model.bin")
    assert _run(made.base, adapter, tmp_path / "old-merged").exit_code == 0
    assert _run(made.base, made.adapter, tmp_path / "merged").exit_code == 0
    old, new = (load_file(tmp_path / name / "model.safetensors") for name in ("old-merged", "merged"))
    assert old.keys() == new.keys()
    assert all((old[name] == new[name]).all() for name in new)
    torch.save({"base_model.model.x.lora_A.weight": Hostile(tmp_path / "run")}, adapter / "adapter_model.bin")
    result = _run(made.base, adapter, tmp_path / "never")
    assert result.exit_code == 2
    assert "adapter_model.bin" in result.stderr
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "never").exists()


class Hostile:
    """An object whose reading makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_an_adapter_that_diverged(number: float, made: Made, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    shutil.copytree(made.adapter, adapter)
    tensors = load_file(adapter / "adapter_model.safetensors")
    name = sorted(tensors)[-1]
    tensors[name].flat[-1] = number
    save_file(tensors, adapter / "adapter_model.safetensors")
    result = _run(made.base, adapter, tmp_path / "out")
    assert result.exit_code == 2
    assert "NaN or infinite" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["dcp", "gguf"])
def test_a_base_in_another_format(kind: str, tmp_path: Path) -> None:
    """The same weights as from its folder; a GGUF file brings config, tokenizer and template itself."""
    base, adapter = folder_of(tmp_path / "folder", SIZES), tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 3, "lora_alpha": 2}))
    rng, tensors = np.random.default_rng(1), {}
    for name, shape in {"self_attn.q_proj": (48, 48), "self_attn.k_proj": (24, 48), "mlp.down_proj": (48, 101)}.items():
        path = f"base_model.model.model.layers.1.{name}"
        tensors[f"{path}.lora_A.weight"] = rng.normal(size=(3, shape[1])).astype(np.float32)
        tensors[f"{path}.lora_B.weight"] = rng.normal(size=(shape[0], 3)).astype(np.float32)
    save_file(tensors, adapter / "adapter_model.safetensors")
    made = tmp_path / "made"
    converted = CliRunner().invoke(app, ["convert", str(base), str(made), "--to", kind])
    assert converted.exit_code == 0, converted.output
    for name, source in {"one": base, "other": made / "model.gguf" if kind == "gguf" else made}.items():
        result = _run(source, adapter, tmp_path / name)
        assert result.exit_code == 0, result.output
        assert (tmp_path / name / "tokenizer.json").is_file()
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "other"))
    assert one.keys() == other.keys()
    assert all((one[name] == other[name]).all() for name in one)
    name = "model.layers.1.mlp.down_proj.weight"
    assert (one[name] != load_file(base / "model.safetensors")[name]).all()


def test_nothing_is_overwritten(made: Made, tmp_path: Path) -> None:
    target = tmp_path / "there"
    target.mkdir()
    result = _run(made.base, made.adapter, target)
    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert list(target.iterdir()) == []


def test_what_a_killed_merge_left_is_removed(made: Made, tmp_path: Path) -> None:
    for name in (".out.0123456789abcdef.tmp", ".other.0123456789abcdef.tmp", ".out.tmp"):
        (tmp_path / name).mkdir()
    result = _run(made.base, made.adapter, tmp_path / "out")
    assert result.exit_code == 0
    assert sorted(path.name for path in tmp_path.glob(".*")) == [".other.0123456789abcdef.tmp", ".out.tmp"]


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
        (["a", "b", "c", "d"], "no such folder"),
        (["BASE", "ADAPTER", "ADAPTER", "out", "--weights", "1"], "2 adapters and the weights are 1.0"),
        (["BASE", "ADAPTER", "out", "--weights", "nan"], "finite"),
        (["BASE", "ADAPTER", "ADAPTER", "out", "--initial", "ADAPTER"], "one adapter only"),
        (["--method", "average", "a", "c"], "at least two models"),
        (["a", "b", "c", "--density", "0.5"], "--method"),
        (["no", "where", "out"], "no such folder"),
        (["--method", "ties", "BASE", "BASE", "out"], "--base"),
        (["--method", "average", "BASE", "BASE", "out", "--weights", "a,b"], "list of numbers"),
        (["--method", "average", "BASE", "BASE", "out", "--density", "0.1"], "average"),
    ],
)
def test_command_lines_that_make_no_sense(words: list[str], said: str, made: Made, tmp_path: Path) -> None:
    result = _run(
        *[{"BASE": made.base, "ADAPTER": made.adapter, "out": tmp_path / "out"}.get(word, word) for word in words]
    )
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
