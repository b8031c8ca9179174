"""Promise: weights go from the files into the model one tensor at a time, and the model is the one that transformers
loads, bit for bit; where they can't, a note says so."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from outlive.checkpoint.tensors.stored import File
from outlive.modeling import streaming
from outlive.modeling.export import export
from outlive.modeling.loading import ModelPlace, load_model
from outlive.run.errors import InputError
from tests.checkpoint.families.folders import saved
from tests.checkpoint.families.test_families import CASES, config_of

WEIGHTS = "model.safetensors"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}


def theirs(folder: Path, dtype: torch.dtype) -> Any:
    config = AutoConfig.from_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=dtype, attn_implementation="eager")


def ours(folder: Path, dtype: torch.dtype) -> Any:
    found = streaming.stream_model(folder, AutoConfig.from_pretrained(folder), dtype, "eager")
    assert isinstance(found, streaming.Loaded), found
    assert not found.missing
    assert not found.misfits
    return found.model


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def assert_same(one: Any, other: Any) -> None:
    """The same class, tensors, ties, modes and settings."""
    assert type(one) is type(other)
    for kind in ("named_parameters", "named_buffers"):
        mine, wanted = (dict(getattr(model, kind)(remove_duplicate=False)) for model in (one, other))
        assert list(mine) == list(wanted)
        for name, tensor in wanted.items():
            assert mine[name].dtype == tensor.dtype, name
            assert mine[name].device == tensor.device, name
            assert mine[name].shape == tensor.shape, name
            assert mine[name].stride() == tensor.stride(), name
            assert mine[name].requires_grad == tensor.requires_grad, name
            assert torch.equal(bits(mine[name]), bits(tensor)), name
        assert groups(mine) == groups(wanted)
    assert [module.training for module in one.modules()] == [module.training for module in other.modules()]
    assert one.generation_config.to_dict() == other.generation_config.to_dict()
    assert one.config.to_dict() == other.config.to_dict()
    assert one.config.name_or_path == other.config.name_or_path
    assert one.all_tied_weights_keys == other.all_tied_weights_keys


def assert_same_logits(one: Any, other: Any) -> None:
    found = []
    for model in (one, other):
        model.set_experts_implementation("eager")  # the fused one takes no odd sizes
        with torch.no_grad():
            found.append(model(input_ids=torch.arange(1, 20)[None]).logits)
    assert found[0].std() > 0
    assert torch.equal(*found)


def groups(tensors: dict[str, torch.Tensor]) -> set[frozenset[str]]:
    """Names of one and the same tensor."""
    found: dict[int, set[str]] = {}
    for name, tensor in tensors.items():
        found.setdefault(id(tensor), set()).add(name)
    return {frozenset(names) for names in found.values()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("original", [True, False], ids=["original", "fused"])
def test_the_model_is_the_one_that_transformers_loads(tmp_path: Path, case: str, original: bool) -> None:
    saved(tmp_path, config_of(case), original)
    mine, wanted = ours(tmp_path, torch.float32), theirs(tmp_path, torch.float32)
    assert_same(mine, wanted)
    if "deepseek" in case:
        return  # transformers can't compute with these odd sizes: see below
    assert_same_logits(mine, wanted)
    if original and case != "qwen3.5":  # whose text model ours saves under a text model's own names
        assert sorted(export(mine).tensors) == sorted(export(wanted).tensors)


@pytest.mark.parametrize("case", ["deepseek-v2", "deepseek-v2 lite", "deepseek-v3", "deepseek-v3 tied"])
def test_latent_attention_computes_the_same(tmp_path: Path, case: str) -> None:
    config = config_of(case)
    for name, value in {"kv_lora_rank": 8, "qk_rope_head_dim": 6, "head_dim": 6}.items():
        setattr(config, name, value)
    saved(tmp_path, config)
    mine, wanted = ours(tmp_path, torch.float32), theirs(tmp_path, torch.float32)
    assert_same(mine, wanted)
    assert_same_logits(mine, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ["llama tied", "qwen3-moe", "deepseek-v3", "gemma3"])
def test_every_dtype_is_cast_as_torch_casts_it(tmp_path: Path, case: str, dtype: str) -> None:
    saved(tmp_path, config_of(case))
    assert_same(ours(tmp_path, DTYPES[dtype]), theirs(tmp_path, DTYPES[dtype]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    saved(tmp_path / "model", config_of("qwen3-moe"))
    return tmp_path / "model"


def change(folder: Path, what: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = load_file(folder / WEIGHTS)
    what(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def load(folder: Path, notes: list[str] | None = None) -> Any:
    return load_model(ModelPlace(folder), torch.float32, per_document=False, notes=notes)


def test_every_byte_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted over all reads of the weights, experts that are fused on the way too; blocks of 500 bytes."""
    read: Counter[int] = Counter()
    plain = File.read
    with (folder / WEIGHTS).open("rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")

    def counted(self: File, offset: int, length: int) -> Any:
        read.update(range(offset, offset + length))
        return plain(self, offset, length)

    monkeypatch.setattr(File, "read", counted)
    monkeypatch.setattr(streaming, "BLOCK", 500)
    mine = ours(folder, torch.float32)
    size = (folder / WEIGHTS).stat().st_size
    assert {place: count for place, count in read.items() if place >= start} == dict.fromkeys(range(start, size), 1)
    assert_same(mine, theirs(folder, torch.float32))


def test_beside_the_model_one_block_is_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every read: bytes of tensors that are alive, and of arrays that were read before and are still there."""
    plain, alive, most = File.read, Counter[int](), [0, 0]
    before = storages()

    def counted(self: File, offset: int, length: int) -> Any:
        found = plain(self, offset, length)
        alive[id(found)] = length
        weakref.finalize(found, alive.pop, id(found))
        tensors = storages()
        new = sum(size for place, size in tensors.items() if place not in before)
        most[:] = max(most[0], new), max(most[1], alive.total())
        return found

    monkeypatch.setattr(File, "read", counted)
    monkeypatch.setattr(streaming, "BLOCK", 500)
    model = ours(folder, torch.bfloat16)
    whole = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    header = int.from_bytes((folder / WEIGHTS).read_bytes()[:8], "little")
    assert whole > 50_000
    assert 0.9 * whole < most[0] <= whole + 2 * 500
    assert most[1] <= max(header, 4 * 500)


def storages() -> dict[int, int]:
    """Address and size of the memory of all tensors that are alive."""
    found = (one for one in gc.get_objects() if isinstance(one, torch.Tensor) and one.device.type == "cpu")
    return {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in found}


def test_several_files_a_pickle_and_a_model_without_its_head_are_read_too(folder: Path, tmp_path: Path) -> None:
    wanted, weights = theirs(folder, torch.float32), load_file(folder / WEIGHTS)
    shards = shutil.copytree(folder, tmp_path / "shards")
    (shards / WEIGHTS).unlink()
    places = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(sorted(weights))}
    for file in set(places.values()):
        inside = {name: tensor for name, tensor in weights.items() if places[name] == file}
        save_file(inside, shards / file, metadata={"format": "pt"})
    (shards / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    pickled = shutil.copytree(folder, tmp_path / "pickled")
    (pickled / WEIGHTS).unlink()
    torch.save(weights, pickled / "pytorch_model.bin")
    for one in (shards, pickled):
        wanted.config.name_or_path = str(one)
        assert_same(ours(one, torch.float32), wanted)
    saved(tmp_path / "tied", config_of("qwen3-moe tied"))
    wanted = theirs(tmp_path / "tied", torch.float32)
    change(tmp_path / "tied", lambda weights: [weights.update({name[6:]: weights.pop(name)}) for name in list(weights)])
    assert_same(ours(tmp_path / "tied", torch.float32), wanted)


@pytest.mark.parametrize("equal", [True, False])
def test_a_head_that_is_there_though_it_is_tied(tmp_path: Path, equal: bool) -> None:
    """Equal to the embedding it is tied, as transformers does it; a different one is kept, and not tied."""
    saved(tmp_path, config_of("llama tied"))
    change(tmp_path, lambda weights: weights.update(head(weights["model.embed_tokens.weight"], equal)))
    mine = ours(tmp_path, torch.float32)
    assert_same(mine, theirs(tmp_path, torch.float32))
    assert (mine.lm_head.weight is mine.model.embed_tokens.weight) == equal
    change(tmp_path, lambda weights: weights.pop("model.embed_tokens.weight"))  # the head alone
    assert_same(ours(tmp_path, torch.float32), theirs(tmp_path, torch.float32))


def head(embedding: torch.Tensor, equal: bool) -> dict[str, torch.Tensor]:
    return {"lm_head.weight": embedding.clone() if equal else embedding.flip(0).contiguous()}


def test_what_does_not_fit_is_said(folder: Path) -> None:
    name = "model.layers.1.mlp.experts.{}.up_proj.weight"
    change(folder, lambda weights: weights.update({"model.layers.0.extra": torch.ones(2)}))
    (folder / "generation_config.json").unlink()
    notes: list[str] = []
    load(folder, notes)
    assert any("1 tensors" in note and "model.layers.0.extra" in note for note in notes)
    assert_same(ours(folder, torch.float32), theirs(folder, torch.float32))
    change(folder, lambda weights: weights.pop("model.norm.weight"))
    with pytest.raises(InputError, match=r"1 tensors are missing.*model\.norm\.weight"):
        load(folder)
    change(folder, lambda weights: weights.update({"model.norm.weight": torch.ones(35)}))
    with pytest.raises(InputError, match=r"model\.norm\.weight has the shape \[35\] in the files and \[36\]"):
        load(folder)
    change(folder, lambda weights: weights.pop(name.format(1)))
    with pytest.raises(InputError, match=r"no model\.layers\.1\.mlp\.experts\.1\.up_proj\.weight to go with it"):
        load(folder)


def test_other_models_are_streamed_where_names_are_the_same_and_else_a_note_says_who_reads(tmp_path: Path) -> None:
    GPT2LMHeadModel(
        GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=50, n_positions=32, attn_pdrop=0.0)
    ).save_pretrained(tmp_path)
    notes: list[str] = []
    load(tmp_path, notes)
    assert notes == []
    assert_same(ours(tmp_path, torch.float32), theirs(tmp_path, torch.float32))
    change(tmp_path, lambda weights: weights.update({"transformer.h.0.old": torch.ones(1)}))
    model = load(tmp_path, notes)
    assert "transformers reads the weights itself" in notes[0]
    assert "gpt2" in notes[0]
    assert torch.equal(model.transformer.wte.weight, load_file(tmp_path / WEIGHTS)["transformer.wte.weight"])


def test_code_in_a_pickle_is_not_run(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    torch.save({"lm_head.weight": Evil(str(folder / "ran"))}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="pytorch_model"):
        load(folder)
    assert not (folder / "ran").exists()


class Evil:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)
