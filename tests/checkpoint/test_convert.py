"""Promise: a checkpoint in another format holds the same numbers, with all that belongs beside them; what can't be
converted rightly is refused, and nothing is left then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from outlive.checkpoint.convert import GGUF_FILE, convert, weights_of
from outlive.checkpoint.families.table import family_of
from outlive.checkpoint.formats.detect import open_checkpoint
from outlive.checkpoint.model import Model
from outlive.checkpoint.tensors.views import Given
from outlive.checkpoint.verify.against import differences
from outlive.checkpoint.verify.folder import verify_folder
from outlive.cli.main import app
from outlive.run.errors import InputError
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import cases, tiny_tokenizer

SIZES = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 48, "intermediate_size": 101,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False,
    "rope_theta": 5e5, "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
}  # fmt: skip
MOE = {
    **SIZES, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 4,
    "moe_intermediate_size": 33, "num_experts_per_tok": 2, "head_dim": 12, "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}  # fmt: skip


def folder_of(path: Path, sizes: dict[str, Any]) -> Path:
    tiny_tokenizer(path)
    config = {**sizes, "vocab_size": Tokenizer.load(path).vocab_size}
    (path / "config.json").write_text(json.dumps(config))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": Tokenizer.load(path).eos_id}))
    rng = np.random.default_rng(0)
    shapes = family_of(config).expected(config)
    tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "model", SIZES)


def same(one: Path, other: Path) -> bool:
    return differences(open_checkpoint(one).tensors, open_checkpoint(other).tensors) == []


def test_there_and_back(model: Path, tmp_path: Path) -> None:
    convert(open_checkpoint(model), tmp_path / "dcp", "dcp")
    found = convert(open_checkpoint(tmp_path / "dcp"), tmp_path / "back", "huggingface")
    assert same(model, tmp_path / "back")
    assert found.left == found.notes == []
    assert {finding.id for finding in verify_folder(tmp_path / "back") if finding.level == "error"} == set()
    for name in ("tokenizer.json", "generation_config.json"):
        assert (tmp_path / "back" / name).read_bytes() == (model / name).read_bytes()
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["dtype"] == config["torch_dtype"] == "float32"


def test_experts_as_modules_hold_them_and_as_they_are_published(tmp_path: Path) -> None:
    moe = folder_of(tmp_path / "moe", MOE)
    fused = convert(open_checkpoint(moe), tmp_path / "fused", "huggingface", layout="fused")
    assert "model.layers.0.mlp.experts.gate_up_proj" in fused.tensors
    assert not any(".experts.0." in name for name in open_checkpoint(tmp_path / "fused").tensors)
    convert(open_checkpoint(tmp_path / "fused"), tmp_path / "back", "huggingface")
    assert same(moe, tmp_path / "back")


def test_a_cast(model: Path, tmp_path: Path) -> None:
    convert(open_checkpoint(model), tmp_path / "half", "huggingface", dtype="fp16")
    for name, tensor in open_checkpoint(tmp_path / "half").tensors.items():
        assert np.array_equal(tensor.array(), open_checkpoint(model).tensors[name].array().astype(np.float16))
    assert json.loads((tmp_path / "half" / "config.json").read_text())["torch_dtype"] == "float16"


def test_a_state_dict_of_torch(model: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(tensor.array()) for name, tensor in open_checkpoint(model).tensors.items()}
    torch.save({"module": tensors, "step": 3}, tmp_path / "state.pt")
    with pytest.raises(InputError, match="has no config"):
        convert(open_checkpoint(tmp_path / "state.pt"), tmp_path / "made", "huggingface")
    assert not (tmp_path / "made").exists()
    convert(open_checkpoint(tmp_path / "state.pt"), tmp_path / "made", "huggingface", like=model)
    assert same(model, tmp_path / "made")


KINDS = {
    "llama": {},
    "llama, tied": {"tie_word_embeddings": True},
    "llama with biases": {"attention_bias": True, "mlp_bias": True},
    "llama with another head": {"head_dim": 16},
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 16},
    "llama 3.1": {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_gguf_there_and_back(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    model = folder_of(tmp_path / "model", {**SIZES, **KINDS[kind]})
    convert(open_checkpoint(model), tmp_path / "gguf", "gguf")
    found = convert(open_checkpoint(tmp_path / "gguf" / GGUF_FILE), tmp_path / "back", "huggingface")
    assert same(model, tmp_path / "back")
    mine, theirs = (json.loads((folder / "config.json").read_text()) for folder in (model, tmp_path / "back"))
    for key in mine.keys() - {"rope_parameters"}:
        assert theirs[key] == mine[key], key
    assert found.texts["tokenizer.json"]
    texts = ["Hello there, 12 tokens!", "<|im_start|>user\nHi<|im_end|>\n"]
    tokenizers = [Tokenizer.load(folder) for folder in (model, tmp_path / "back")]
    assert [tokenizers[0].encode(text) for text in texts] == [tokenizers[1].encode(text) for text in texts]
    if kind == "llama 3.1":
        assert theirs["rope_parameters"]["factor"] == 8.0
        assert theirs["rope_theta"] == 5e5


def test_eight_bits_are_of_gguf_alone(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    with pytest.raises(InputError, match="q8_0 is a format of GGUF files"):
        convert(open_checkpoint(model), tmp_path / "made", "huggingface", dtype="q8_0")
    convert(open_checkpoint(model), tmp_path / "made", "gguf", dtype="q8_0")
    back = open_checkpoint(tmp_path / "made").tensors
    norms = {name for name in back if name.endswith("norm.weight")}
    assert norms
    assert all(back[name].dtype == "float32" for name in norms)


def test_what_gguf_can_not_say_is_refused(tmp_path: Path) -> None:
    moe = folder_of(tmp_path / "moe", MOE)
    with pytest.raises(InputError, match="norm_topk_prob is False"):
        convert(open_checkpoint(moe), tmp_path / "made", "gguf")
    assert not (tmp_path / "made").exists()


SAMPLE = {
    "model_type": "llama", "vocab_size": 257, "hidden_size": 48, "intermediate_size": 101, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize("name", ["dcp_fsdp2", "dcp_hf_sharded", "dcp_hf_consolidated"])
def test_what_other_tools_wrote(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    folder = cases() / "checkpoints" / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here")
    reference = torch.load(folder.parent / "dcp_fsdp2_REFERENCE.pt", weights_only=True)
    like = tmp_path / "like"
    tiny_tokenizer(like)
    model = open_checkpoint(folder)
    shapes = {key: tuple(value.shape) for key, value in reference.items()}
    layers = sum(key.endswith("input_layernorm.weight") for key in shapes)
    kv = shapes["model.layers.0.self_attn.k_proj.weight"][0]
    hidden = shapes["model.norm.weight"][0]
    heads = SAMPLE["num_attention_heads"]
    assert isinstance(heads, int)
    config = {**SAMPLE, "num_hidden_layers": layers, "hidden_size": hidden, "num_key_value_heads": heads * kv // hidden}
    (like / "config.json").write_text(json.dumps(config))
    found = convert(model, tmp_path / "made", "huggingface", like=like)
    assert {key.split(".")[0] for key in found.left} <= {"optim", "train"}
    assert bool(found.left) == (name == "dcp_fsdp2")
    made = open_checkpoint(tmp_path / "made").tensors
    assert made.keys() == reference.keys()
    for key, value in reference.items():
        assert torch.equal(torch.from_numpy(made[key].array().copy()), value.float())


def test_an_optimizer_travels_between_checkpoints_that_hold_one(tmp_path: Path) -> None:
    folder = cases() / "checkpoints" / "dcp_fsdp2"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here")
    before = open_checkpoint(folder)
    convert(before, tmp_path / "made", "dcp")
    after = open_checkpoint(tmp_path / "made")
    assert differences(before.tensors, after.tensors) == []
    assert dict(before.metadata["items"]) == dict(after.metadata["items"])
    assert dict(before.metadata["paths"]) == dict(after.metadata["paths"])


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.", "module._orig_mod."])
def test_wrapped_names(model: Path, prefix: str) -> None:
    whole = open_checkpoint(model)
    wrapped = {prefix + name: tensor for name, tensor in whole.tensors.items()}
    found = weights_of(Model(model, "dcp", {**wrapped, "optim.state.x": Given(np.ones(3))}), model)
    assert found.tensors.keys() == whole.tensors.keys()
    assert found.left == ["optim.state.x"]
    assert "1 tensors that are no weights" in found.notes[0]


def test_what_does_not_fit_is_refused_and_leaves_nothing(model: Path, tmp_path: Path) -> None:
    whole = open_checkpoint(model)
    lacking = {name: tensor for name, tensor in whole.tensors.items() if "layers.1.mlp.up" not in name}
    with pytest.raises(InputError, match=r"1 tensors that the config asks for are not there, such as model\.layers\.1"):
        convert(Model(model, "huggingface", lacking, whole.config), tmp_path / "made", "huggingface")
    config = {**whole.config, "intermediate_size": 100}
    with pytest.raises(InputError, match="has the shape"):
        convert(Model(model, "huggingface", whole.tensors, config), tmp_path / "made", "dcp")
    with pytest.raises(InputError, match="exists already"):
        convert(whole, model, "huggingface")
    broken = {**whole.tensors, "model.norm.weight": Given(np.full(48, np.nan, np.float32))}
    with pytest.raises(Exception, match="NaN"):
        convert(Model(model, "huggingface", broken, whole.config), tmp_path / "made", "dcp")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("nothing", "no known checkpoint"), ("adapter", "outlive merge BASE ADAPTER DST"), ("absent", "no checkpoint")],
)
def test_what_is_no_checkpoint_is_named(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "nothing").mkdir()
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError) as caught:
        open_checkpoint(tmp_path / name)
    assert words in str(caught.value)


def test_the_verb(model: Path, tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["convert", str(model), str(tmp_path / "dcp"), "--to", "dcp", "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["from"] == "huggingface"
    back = CliRunner().invoke(app, ["convert", str(tmp_path / "dcp"), str(tmp_path / "back")])
    assert back.exit_code == 0, back.output
    assert "from dcp to huggingface" in back.stdout
    again = CliRunner().invoke(app, ["convert", str(model), str(tmp_path / "back")])
    assert again.exit_code == 2
    assert same(model, tmp_path / "back")


def test_what_the_config_does_not_ask_for_is_told(model: Path, tmp_path: Path) -> None:
    whole = open_checkpoint(model)
    later = {"model.layers.7.mlp.up_proj.weight": Given(np.ones((101, 48), np.float32))}
    more = Model(model, "huggingface", {**whole.tensors, **later}, whole.config)
    found = convert(more, tmp_path / "made", "huggingface")
    assert found.notes == ["1 tensors that the config does not ask for are there too, such as " + min(later)]
    assert min(later) in open_checkpoint(tmp_path / "made").tensors
