"""A GGUF file becomes a folder with the same numbers and the same tokens, or it is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from outlive.run.errors import InputError
from tests.fixtures import CHATML, tiny_tokenizer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")

from outlive.modeling.gguf import cached_folder, gguf_to_folder  # noqa: E402

HIDDEN, HEADS, KV_HEADS, INTERMEDIATE, LAYERS, CONTEXT = 32, 4, 2, 64, 2, 256


def tiny_llama(vocab_size: int):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():  # numbers that bf16 holds exactly; not the buffers of the rotary angles
            weight.copy_(weight.bfloat16())
    return model


def llama_cpp_rows(weight: np.ndarray, heads: int) -> np.ndarray:
    """The order in which GGUF files keep the rows of query and key: the two rotary halves of a head interleaved."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path: Path, model, tokenizer: dict, *, pre: str = "smollm", architecture: str = "llama") -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(100_000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(model.config.vocab_size)
    _write_tokenizer(writer, tokenizer, pre)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        array = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:
            array = llama_cpp_rows(array, HEADS if "q_proj" in name else KV_HEADS)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_tokenizer(writer, tokenizer: dict, pre: str) -> None:
    vocab = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    special = {token["content"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(vocab)
    writer.add_token_types([3 if token in special else 1 for token in vocab])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHATML)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    """(the original model, the original tokenizer's folder, the GGUF file, the folder made from it)"""
    root = tmp_path_factory.mktemp("gguf")
    original = tiny_tokenizer(root / "original")
    tokenizer = json.loads((original / "tokenizer.json").read_text())
    # Two spaces become one token, so that it shows where digits are split off.
    tokenizer["model"]["vocab"]["ĠĠ"] = len(tokenizer["model"]["vocab"])
    tokenizer["model"]["merges"].append(["Ġ", "Ġ"])
    (original / "tokenizer.json").write_text(json.dumps(tokenizer))
    model = tiny_llama(len(tokenizer["model"]["vocab"]))
    file = write_gguf(root / "tiny.gguf", model, tokenizer)
    gguf_to_folder(file, root / "made")
    return model, original, file, root / "made"


def test_the_logits_are_those_of_the_original_model(made) -> None:
    from transformers import AutoModelForCausalLM

    model, _, _, folder = made
    again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.arange(40)[None] % model.config.vocab_size
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)


def test_weights_are_bf16_and_readable_by_others(made) -> None:
    from safetensors import safe_open

    folder = made[3]
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert {str(file.get_tensor(name).dtype) for name in file.keys()} == {"torch.bfloat16"}  # noqa: SIM118
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118
    assert (folder / "model.safetensors").stat().st_mode == (folder / "config.json").stat().st_mode


@pytest.mark.parametrize("text", ["x  10", "\n\n  3.", "2024-01-31", "A7-48213 for 12.50", "Hello there! é 漢\t7", ""])
def test_text_becomes_the_tokens_of_the_original_tokenizer(made, text: str) -> None:
    from outlive.text.tokenizer import Tokenizer

    _, original, _, folder = made
    assert Tokenizer.load(folder).encode(text) == Tokenizer.load(original).encode(text)


def test_special_tokens_template_and_length_are_kept(made) -> None:
    from transformers import AutoTokenizer

    from outlive.text.tokenizer import Tokenizer

    folder = made[3]
    ours, theirs = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    assert ours.chat_template == theirs.chat_template == CHATML
    assert (ours.bos_id, ours.eos_id, ours.pad_id) == (1, 2, 2)
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id, theirs.unk_token_id) == (1, 2, 2, 0)
    assert theirs.model_max_length == CONTEXT
    assert ours.text_frame() == ([], [])
    assert ours.end_of_turn_ids == [2]


def test_the_config_reads_the_same_in_transformers_4_and_5(made) -> None:
    folder = made[3]
    config = json.loads((folder / "config.json").read_text())
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 100_000.0
    assert config["torch_dtype"] == config["dtype"] == "bfloat16"
    assert config["rms_norm_eps"] == 1e-5
    assert config["tie_word_embeddings"] is True
    assert not {"_model_name_or_path", "unk_token_id"} & set(config)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert not {"backend", "is_local", "local_files_only"} & set(tokenizer)


def test_a_tokenizer_rule_that_is_not_known_is_refused(made, tmp_path: Path) -> None:
    model, original, _, _ = made
    tokenizer = json.loads((original / "tokenizer.json").read_text())
    file = write_gguf(tmp_path / "other.gguf", model, tokenizer, pre="dbrx")
    with pytest.raises(InputError, match="'dbrx'"):
        gguf_to_folder(file, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["other.gguf"]


def test_an_architecture_that_is_not_known_is_refused(made, tmp_path: Path) -> None:
    model, original, _, _ = made
    tokenizer = json.loads((original / "tokenizer.json").read_text())
    file = write_gguf(tmp_path / "other.gguf", model, tokenizer, architecture="falcon")
    with pytest.raises(InputError, match="'falcon'"):
        gguf_to_folder(file, tmp_path / "folder")


def test_what_is_no_gguf_or_missing_or_there_already_is_refused(made, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("not a model at all")
    with pytest.raises(InputError, match="not a whole GGUF"):
        gguf_to_folder(tmp_path / "text.gguf", tmp_path / "folder")
    with pytest.raises(InputError, match="no such file"):
        gguf_to_folder(tmp_path / "missing.gguf", tmp_path / "folder")
    with pytest.raises(InputError, match="exists"):
        gguf_to_folder(made[2], made[3])


def test_a_file_is_converted_once_and_its_content_names_the_folder(made, tmp_path: Path) -> None:
    file, models = made[2], tmp_path / "models"
    folder = cached_folder(file, models)
    weights = (folder / "model.safetensors").stat()
    assert cached_folder(file, models) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == weights.st_mtime_ns
    assert [path.name for path in models.iterdir()] == [folder.name]
