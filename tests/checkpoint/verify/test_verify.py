"""Promise: what is wrong with a model folder is named, each planted fault by its kind; a whole folder has no error."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from outlive.checkpoint.families.table import family_of
from outlive.checkpoint.formats.huggingface import open_model
from outlive.checkpoint.manifest import write_manifest
from outlive.checkpoint.verify.against import differences
from outlive.checkpoint.verify.consequences import KINDS
from outlive.checkpoint.verify.folder import verify_folder
from outlive.cli.main import app
from outlive.run.errors import InputError
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import tiny_tokenizer

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FILES = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


SIZES = {
    "model_type": "llama", "hidden_size": 48, "intermediate_size": 101, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "attention_bias": True,
}  # fmt: skip


def weights(vocabulary: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = family_of(SIZES).expected({**SIZES, "vocab_size": vocabulary, "tie_word_embeddings": False})
    found = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    found["model.layers.0.self_attn.q_proj.bias"] *= 0
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A whole folder of one file, with a manifest."""
    folder = tiny_tokenizer(tmp_path / "model")
    tokenizer = Tokenizer.load(folder)
    config = {
        **SIZES, "architectures": ["LlamaForCausalLM"], "vocab_size": tokenizer.vocab_size,
        "tie_word_embeddings": False, "dtype": "float32", "torch_dtype": "float32", "rope_theta": 5e5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "eos_token_id": tokenizer.eos_id,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": tokenizer.eos_id}))
    save_file(weights(tokenizer.vocab_size), folder / SINGLE, {"format": "pt"})
    write_manifest(folder)
    return folder


@pytest.fixture
def sharded(model: Path) -> Path:
    """The same in two files with an index, without a manifest."""
    tensors = load_file(model / SINGLE)
    names = sorted(tensors)
    places = {name: FILES[number >= 3] for number, name in enumerate(names)}
    for file in FILES:
        save_file({name: tensors[name] for name in names if places[name] == file}, model / file, {"format": "pt"})
    total = sum(tensor.nbytes for tensor in tensors.values())
    (model / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": places}))
    (model / SINGLE).unlink()
    (model / "manifest.json").unlink()
    return model


def kinds(folder: Path, *levels: str) -> set[str]:
    return {finding.id for finding in verify_folder(folder) if not levels or finding.level in levels}


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def change(folder: Path, make: Callable[[dict[str, Any]], Any], file: str = SINGLE) -> None:
    tensors = {name: tensor.copy() for name, tensor in load_file(folder / file).items()}
    make(tensors)
    save_file(tensors, folder / file, {"format": "pt"})
    (folder / "manifest.json").unlink(missing_ok=True)


def test_a_whole_folder(model: Path) -> None:
    assert kinds(model) == set()


def test_a_whole_folder_of_two_files(sharded: Path) -> None:
    assert kinds(sharded) == {"no_manifest"}


def _flip(folder: Path) -> None:
    data = bytearray((folder / SINGLE).read_bytes())
    data[-1000] ^= 4
    (folder / SINGLE).write_bytes(data)


def _zero_half(folder: Path) -> None:
    data = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def _cut(folder: Path) -> None:
    data = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(data[:-100])


SINGLE_FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a flipped bit": (_flip, "other_hash"),
    "zeroed pages": (_zero_half, "other_hash"),
    "cut": (_cut, "damaged_file"),
    "cut, by its size": (_cut, "other_size"),
    "an old index": (
        lambda f: (f / INDEX).write_text(json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}})),
        "stale_index",
    ),
    "a file more": (lambda f: shutil.copy(f / SINGLE, f / "old.safetensors"), "held_twice"),
    "a file that was not written with it": (lambda f: (f / "pytorch_model.bin").write_bytes(b"x"), "extra_file"),
    "no weights": (lambda f: (f / SINGLE).unlink(), "no_weights"),
    "another name": (lambda f: (f / SINGLE).rename(f / "weights.safetensors"), "odd_name"),
    "a manifest that is cut": (lambda f: (f / "manifest.json").write_text("{"), "damaged_manifest"),
    "no config": (lambda f: (f / "config.json").unlink(), "no_config"),
    "a config that is cut": (lambda f: (f / "config.json").write_text('{"a":'), "no_config"),
    "no model type": (lambda f: edit(f / "config.json", model_type=None), "no_model_type"),
    "no class": (lambda f: edit(f / "config.json", architectures=None), "no_architectures"),
    "theta in one spelling": (lambda f: edit(f / "config.json", rope_theta=None), "rope_spelling"),
    "two thetas": (lambda f: edit(f / "config.json", rope_theta=1e4), "rope_differs"),
    "dtype in one spelling": (lambda f: edit(f / "config.json", torch_dtype=None), "dtype_spelling"),
    "another dtype": (lambda f: edit(f / "config.json", dtype="bfloat16", torch_dtype="bfloat16"), "other_dtype"),
    "no template": (
        lambda f: (edit(f / "tokenizer_config.json", chat_template=None), (f / "chat_template.jinja").unlink(True)),
        "no_template",
    ),
    "no generation config": (lambda f: (f / "generation_config.json").unlink(), "no_generation_config"),
    "another end": (lambda f: edit(f / "generation_config.json", eos_token_id=1), "eos_differs"),
    "an id past the end": (lambda f: edit(f / "config.json", pad_token_id=10**6), "special_id"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "no_tokenizer"),
    "another size of vocabulary": (lambda f: edit(f / "config.json", vocab_size=7), "vocabulary"),
    "fewer rows than tokens": (
        lambda f: change(f, lambda t: t.update({"model.embed_tokens.weight": t["model.embed_tokens.weight"][:9]})),
        "vocabulary",
    ),
    "tied, and different": (lambda f: edit(f / "config.json", tie_word_embeddings=True), "tied_differ"),
    "tied, and twice": (
        lambda f: (
            edit(f / "config.json", tie_word_embeddings=True),
            change(f, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"]})),
        ),
        "tied_twice",
    ),
    "no head": (lambda f: change(f, lambda t: t.pop("lm_head.weight")), "no_head"),
    "NaN": (lambda f: change(f, lambda t: t["model.norm.weight"].__setitem__(3, np.nan)), "not_finite"),
    "infinity": (lambda f: change(f, lambda t: t["lm_head.weight"].__setitem__((2, 2), -np.inf)), "not_finite"),
    "zeros in the middle": (
        lambda f: change(f, lambda t: t["model.embed_tokens.weight"].reshape(-1).__setitem__(slice(100, 1301), 0)),
        "zeroed",
    ),
    "a matrix of zeros": (
        lambda f: change(f, lambda t: t["model.layers.0.mlp.up_proj.weight"].__setitem__(slice(None), 0)),
        "all_zero",
    ),
    "a number far off": (
        lambda f: change(f, lambda t: t["lm_head.weight"].__setitem__((2, 2), 1e30)),
        "far_value",
    ),
    "a layer missing": (
        lambda f: change(f, lambda t: t.pop("model.layers.0.self_attn.o_proj.weight")),
        "expected_missing",
    ),
    "a norm more": (
        lambda f: change(f, lambda t: t.update({"model.layers.0.self_attn.k_norm.weight": np.ones(12, np.float32)})),
        "expected_extra",
    ),
    "another shape": (
        lambda f: change(f, lambda t: t.update({"model.norm.weight": t["model.norm.weight"][:40]})),
        "expected_shape",
    ),
    "a family without a table": (lambda f: edit(f / "config.json", model_type="unheard-of"), "no_table"),
    "a copy of another": (
        lambda f: change(f, lambda t: t.update(
            {"model.layers.0.mlp.down_proj.weight": t["model.layers.0.mlp.up_proj.weight"]}
        )),
        "same_bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", SINGLE_FAULTS)
def test_each_fault_is_named(model: Path, fault: str) -> None:
    plant, kind = SINGLE_FAULTS[fault]
    plant(model)
    found = verify_folder(model)
    assert kind in {finding.id for finding in found}
    assert all(finding.id in KINDS and finding.fix and finding.where for finding in found)


def _map(folder: Path, make: Callable[[dict[str, str]], Any]) -> None:
    content = json.loads((folder / INDEX).read_text())
    make(content["weight_map"])
    (folder / INDEX).write_text(json.dumps(content))


SHARDED_FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "the first file lost": (lambda f: (f / FILES[0]).unlink(), "missing_file"),
    "the last file lost": (lambda f: (f / FILES[1]).unlink(), "missing_file"),
    "a file lost, and no index": (lambda f: ((f / FILES[1]).unlink(), (f / INDEX).unlink()), "missing_file"),
    "no index": (lambda f: (f / INDEX).unlink(), "no_index"),
    "a tensor not in the index": (lambda f: _map(f, lambda m: m.pop("model.norm.weight")), "not_in_index"),
    "a tensor only in the index": (lambda f: _map(f, lambda m: m.update({"more": FILES[0]})), "missing_tensor"),
    "one file over the other": (lambda f: shutil.copy(f / FILES[0], f / FILES[1]), "missing_tensor"),
    "another total": (lambda f: edit(f / INDEX, metadata={"total_size": 7}), "total_size"),
    "an index that is cut": (lambda f: (f / INDEX).write_text("{"), "damaged_index"),
    "an index that leads out": (lambda f: _map(f, lambda m: m.update({"a": "../../x"})), "damaged_index"),
    "a file that no one names": (
        lambda f: save_file({"old": np.ones(3, np.float32)}, f / "old.safetensors"),
        "extra_file",
    ),
}


@pytest.mark.parametrize("fault", SHARDED_FAULTS)
def test_each_fault_of_several_files_is_named(sharded: Path, fault: str) -> None:
    plant, kind = SHARDED_FAULTS[fault]
    plant(sharded)
    assert kind in kinds(sharded)


def test_rows_of_zeros_and_biases_of_zeros_are_fine(model: Path) -> None:
    change(model, lambda t: t["model.embed_tokens.weight"].__setitem__(slice(0, 30), 0))
    assert kinds(model, "error", "warning") == set()


def test_any_corruption_is_named_and_nothing_else_is_raised(model: Path) -> None:
    """Headers, metadata, texts and data, with the manifest there: 400 random changes of any file."""
    rng = random.Random(0)
    whole = {path.name: path.read_bytes() for path in model.iterdir()}
    for number in range(400):
        name = rng.choice([SINGLE, SINGLE, *sorted(whole)])
        bad = bytearray(whole[name])
        where = range(min(len(bad), 1200)) if rng.random() < 0.5 else range(len(bad))
        for _ in range(rng.choice([1, 1, 4, 64])):
            bad[rng.choice(where)] = rng.randrange(256)
        cut = bad[: rng.randrange(len(bad))] if rng.random() < 0.2 else bad
        if bytes(cut) == whole[name]:
            continue
        (model / name).write_bytes(cut)
        found = verify_folder(model)
        named = {finding.id for finding in found}
        if name != "manifest.json":
            assert named & {"other_hash", "other_size"}, (number, name)
        (model / name).write_bytes(whole[name])


def test_two_folders_tensor_by_tensor(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(model, other)
    assert differences(open_model(model).tensors, open_model(other).tensors) == []

    def make(tensors: dict[str, Any]) -> None:
        tensors["model.norm.weight"][5] += 0.5
        tensors["more"] = tensors.pop("lm_head.weight")
        tensors["model.layers.0.mlp.up_proj.weight"] = tensors["model.layers.0.mlp.up_proj.weight"][:, :40]

    change(other, make)
    found = {
        one.name: (one.what, one.largest) for one in differences(open_model(model).tensors, open_model(other).tensors)
    }
    assert found["lm_head.weight"] == ("only in the first", None)
    assert found["more"] == ("only in the second", None)
    assert found["model.layers.0.mlp.up_proj.weight"] == ("shape [101, 48] and [101, 40]", None)
    assert found["model.norm.weight"][0] == "numbers"
    assert found["model.norm.weight"][1] == pytest.approx(0.5)
    assert len(found) == 4


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["verify", *arguments])


def test_the_verb(model: Path, tmp_path: Path) -> None:
    good = run(str(model))
    assert good.exit_code == 0
    assert "whole (0 errors, 0 warnings, 0 notes)" in good.stdout
    same = run(str(model), "--against", str(model))
    assert (same.exit_code, "all tensors are the same" in same.stdout) == (0, True)
    shutil.copytree(model, tmp_path / "other")
    change(tmp_path / "other", lambda t: t["model.norm.weight"].__setitem__(0, 9))
    differ = run(str(model), "--against", str(tmp_path / "other"), "--json")
    assert differ.exit_code == 1
    assert [one["name"] for one in json.loads(differ.stdout)["differences"]] == ["model.norm.weight"]
    _zero_half(model)
    bad = run(str(model))
    assert bad.exit_code == 1
    assert "error[other_hash]" in bad.stdout
    assert "transformers: loads it, and answers with what is there (other_hash)" in bad.stdout
    assert run(str(tmp_path / "nowhere")).exit_code == 2


def test_a_checkpoint_and_a_run_stand_for_their_model(model: Path, tmp_path: Path) -> None:
    part = tmp_path / "checkpoint" / "model"
    shutil.copytree(model, part)
    (part / "manifest.json").unlink()
    write_manifest(tmp_path / "checkpoint")
    assert kinds(part) == set()
    assert run(str(tmp_path / "checkpoint")).exit_code == 0
    _flip(part)
    assert "other_hash" in run(str(tmp_path / "checkpoint")).stdout
    with pytest.raises(InputError):
        verify_folder(tmp_path / "nowhere")


def test_the_page_names_every_kind() -> None:
    page = (Path(__file__).parents[3] / "docs" / "verify.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []
