"""Promise: the tokenizer of a GGUF file gives the tokens that llama.cpp and transformers give, or it is refused."""

from __future__ import annotations

import itertools
import json
import random
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from outlive.checkpoint.formats.gguf_rules import RULES
from outlive.checkpoint.formats.gguf_tokenizer import tokenizer_files
from outlive.checkpoint.formats.gguf_tokenizer_write import tokenizer_kv
from outlive.run.errors import InputError

regex = pytest.importorskip("regex")

# The expressions of llama.cpp, src/llama-vocab.cpp: applied one after the other, what lies between matches is a piece.
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
SHORT = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
ENDS = r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_3 = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+" + ENDS
EXPRESSIONS = {
    "gpt-2": [GPT_2],
    "smollm": [r"\p{N}", GPT_2],
    "llama-bpe": [LLAMA_3],
    "llama3": [LLAMA_3],
    "llama-v3": [LLAMA_3],
    "qwen2": [SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+" + ENDS],
    "qwen35": [SHORT + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+" + ENDS],
}
SPECIAL = ["<|end|>", "<|start|>", "<|tool|>"]  # the last is one that a user may write
PARTS = [
    "a", "b", "ab", "Z", "é", "e\u0301", "ö", "字", "ह", "ि", "क्", "1", "2", "42", "2026", "²", "Ⅷ", "٣", " ", "  ",
    "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "'s", "'S", "'ll", "'RE", "’s", ".", "!!", "...", "$", "+", "_",
    "🙂", "👍🏽", "-", '"', "<|", "|>", "word", " word",
]  # fmt: skip


@cache
def texts() -> list[str]:
    rng = random.Random(0)
    return ["", *PARTS, *("".join(rng.choices(PARTS, k=rng.randrange(2, 14))) for _ in range(400))]


@cache
def trained() -> tuple[list[str], list[str]]:
    """Tokens and merges that know no bounds: of texts that are not split at all, so that each split shows."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts() * 2, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].__getitem__), [" ".join(pair) for pair in model["merges"]]


def kv_of(pre: str, **changes: Any) -> dict[str, Any]:
    tokens, merges = trained()
    kv: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.context_length": 77,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*SPECIAL[:2], *tokens, SPECIAL[2], "[PAD9]"],
        "tokenizer.ggml.token_type": np.array([3, 3, *[1] * len(tokens), 4, 5], np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ messages }}",
    }
    kv |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return {key: value for key, value in kv.items() if value is not None}


@cache
def opened(pre: str) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_files(kv_of(pre), "m.gguf")["tokenizer.json"])


def pieces(text: str, pre: str) -> list[str]:
    found = [text]
    for expression in EXPRESSIONS[pre]:
        parts: list[str] = []
        for piece in found:
            end = 0
            for match in regex.finditer(expression, piece):
                parts += [piece[end : match.start()], match.group()]
                end = match.end()
            parts.append(piece[end:])
        found = [part for part in parts if part]
    return found


def merged(text: str, pre: str) -> list[int]:
    """Tokens by the definition of BPE: the best pair of all, the leftmost first, until there is none."""
    tokens, merges = trained()
    ids = {token: number + 2 for number, token in enumerate(tokens)}
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    out = []
    for piece in pieces(text, pre):
        spelled = "".join(part for part, _ in spell.pre_tokenize_str(piece))
        if pre.startswith("llama") and spelled in ids:
            out.append(ids[spelled])
            continue
        parts = list(spelled)
        while pairs := [(ranks[pair], at) for at, pair in enumerate(itertools.pairwise(parts)) if pair in ranks]:
            at = min(pairs)[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        out += [ids[part] for part in parts]
    return out


@pytest.mark.parametrize("pre", RULES)
def test_the_tokens_are_those_of_llama_cpp_s_expressions(pre: str) -> None:
    tokenizer = opened(pre)
    normal = (lambda text: unicodedata.normalize("NFC", text)) if pre.startswith("qwen") else str
    for text in texts():
        found = tokenizer.encode(text, add_special_tokens=False).ids
        assert found == merged(normal(text), pre), text
        assert tokenizer.decode(found) == normal(text)


def of_transformers(pre: str) -> Any:
    transformers = pytest.importorskip("transformers")
    tokens, merges = trained()
    vocab = {token: number for number, token in enumerate([*SPECIAL[:2], *tokens])}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if pre == "gpt-2":
        return transformers.GPT2Tokenizer(vocab=vocab, merges=pairs)._tokenizer
    if pre == "qwen2":
        return transformers.Qwen2Tokenizer(vocab=vocab, merges=pairs)._tokenizer
    if pre == "qwen35":
        from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

        return Qwen3_5Tokenizer(vocab=vocab, merges=pairs)._tokenizer
    from tokenizers import Regex
    from transformers.convert_slow_tokenizer import TikTokenConverter

    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs, ignore_merges=True))  # as its `converted` makes it
    split = pre_tokenizers.Split(Regex(TikTokenConverter().pattern), behavior="isolated", invert=False)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    return tokenizer


@pytest.mark.parametrize("pre", ["gpt-2", "qwen2", "qwen35", "llama-bpe"])
def test_the_tokens_are_those_of_transformers(pre: str) -> None:
    theirs = of_transformers(pre)
    for text in texts():
        assert opened(pre).encode(text).ids == theirs.encode(text, add_special_tokens=False).ids, text


def test_rules_differ_on_these_texts() -> None:
    """Else the tests above would prove nothing."""
    rules = ["gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35"]
    found = {pre: [tuple(opened(pre).encode(text).ids) for text in texts()] for pre in rules}
    assert len({tuple(ids) for ids in found.values()}) == len(rules)


def test_special_tokens(tmp_path: Path) -> None:
    files = tokenizer_files(kv_of("smollm", eot_token_id=3), "m.gguf")
    tokenizer = Tokenizer.from_str(files["tokenizer.json"])
    last = len(trained()[0]) + 2
    assert tokenizer.encode("<|start|><|tool|><|end|>").ids == [1, last, 0]
    assert tokenizer.decode([1, last, 0]) == "<|tool|>"
    assert tokenizer.token_to_id("[PAD9]") is None
    config = json.loads(files["tokenizer_config.json"])
    assert (config["bos_token"], config["eos_token"], config["model_max_length"]) == ("<|start|>", "<|end|>", 77)
    assert json.loads(files["generation_config.json"]) == {"bos_token_id": 1, "eos_token_id": [0, 3]}
    assert files["chat_template.jinja"] == "{{ messages }}"


@pytest.mark.parametrize(
    ("pre", "changes", "around"),
    [
        ("smollm", {"add_bos_token": None}, ([], [])),
        ("smollm", {"add_bos_token": True}, ([1], [])),
        ("llama-bpe", {"add_bos_token": None}, ([1], [])),
        ("llama-bpe", {"add_bos_token": False}, ([], [])),
        ("qwen2", {"add_bos_token": True, "add_eos_token": True}, ([1], [0])),
    ],
)
def test_tokens_around_a_text_and_the_way_back(tmp_path: Path, pre: str, changes: Any, around: Any) -> None:
    files = tokenizer_files(kv_of(pre, **changes), "m.gguf")
    plain = opened(pre).encode("word 42").ids
    assert Tokenizer.from_str(files["tokenizer.json"]).encode("word 42").ids == [*around[0], *plain, *around[1]]
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    kv = kv_of(pre, **changes)
    back = tokenizer_kv(tmp_path, len(kv["tokenizer.ggml.tokens"]))
    assert back.pop("tokenizer.ggml.add_bos_token") == bool(around[0])
    assert back.pop("tokenizer.ggml.add_eos_token", False) == bool(around[1])
    last = len(kv["tokenizer.ggml.tokens"]) - 1
    assert back["tokenizer.ggml.tokens"].pop() == f"[PAD{last}]"
    for key, value in back.items():
        expected = kv[key][:-1] if key == "tokenizer.ggml.tokens" else kv[key]
        assert np.array_equal(value, expected) if isinstance(value, np.ndarray) else value == expected, key


def test_what_transformers_saves_is_written(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokens, merges = trained()
    pairs = [tuple(merge.split(" ")) for merge in merges]
    theirs = transformers.Qwen2Tokenizer(vocab={token: number for number, token in enumerate(tokens)}, merges=pairs)
    theirs.save_pretrained(tmp_path)
    kv = tokenizer_kv(tmp_path)
    assert kv["tokenizer.ggml.pre"] == "qwen2"
    back = Tokenizer.from_str(tokenizer_files(kv, "m.gguf")["tokenizer.json"])
    for text in texts():
        assert back.encode(text + "<|endoftext|>").ids == theirs.encode(text + "<|endoftext|>")


BAD_KV: dict[str, dict[str, Any]] = {
    "model": {"model": "llama"},
    "no model": {"model": None},
    "model of an array": {"model": np.arange(3)},
    "pre": {"pre": "tekken"},
    "default": {"pre": "default"},
    "no pre": {"pre": None},
    "pre of a list": {"pre": ["smollm"]},
    "tokens": {"tokens": np.arange(3)},
    "no tokens": {"tokens": None},
    "tokens twice": {"tokens": ["a", "a"], "token_type": np.array([1, 1])},
    "types": {"token_type": np.array([1, 1])},
    "types of bytes": {"token_type": np.full(len(trained()[0]) + 4, 6)},
    "merges": {"merges": ["a"]},
    "merges of others": {"merges": ["a zzzz"]},
    "a merge twice": {"merges": [trained()[1][0]] * 2},
    "merges of numbers": {"merges": np.arange(3)},
    "bos": {"bos_token_id": 1 << 40},
    "eos": {"eos_token_id": -1},
    "eot": {"eot_token_id": "x"},
    "adds": {"add_bos_token": 7},
    "adds nothing": {"add_bos_token": True, "bos_token_id": None},
}


@pytest.mark.parametrize("what", BAD_KV)
def test_values_that_are_refused(what: str) -> None:
    with pytest.raises(InputError) as caught:
        tokenizer_files(kv_of(**{"pre": "smollm"} | BAD_KV[what]), "m.gguf")
    assert caught.value.where == "m.gguf"
    if what == "pre":
        assert "'tekken'" in caught.value.what


def change(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return content


BAD_JSON: dict[str, tuple[tuple[Any, ...], Any]] = {
    "metaspace": (("pre_tokenizer",), {"type": "Metaspace"}),
    "no rule": (("pre_tokenizer",), None),
    "prefix space": (("pre_tokenizer", "pretokenizers", 1, "add_prefix_space"), True),
    "triples": (("pre_tokenizer", "pretokenizers", 0, "individual_digits"), False),
    "normalizer": (("normalizer",), {"type": "Lowercase"}),
    "ignore_merges": (("model", "ignore_merges"), True),
    "unigram": (("model", "type"), "Unigram"),
    "dropout": (("model", "dropout"), 0.1),
    "strips": (("added_tokens", 0, "lstrip"), True),
    "no tokens": (("added_tokens",), 7),
    "an id": (("added_tokens", 0, "id"), 1 << 60),
    "a text": (("added_tokens", 0, "id"), "0"),
    "two ids": (("added_tokens", 0, "content"), "a"),
    "merges": (("model", "merges"), [["a", "b", "c"]]),
    "merges of numbers": (("model", "merges"), [1]),
    "vocab": (("model", "vocab"), ["a"]),
    "no model": (("model",), None),
    "post": (("post_processor",), {"type": "BertProcessing"}),
    "post of nothing": (("post_processor",), {}),
}


@pytest.mark.parametrize("what", BAD_JSON)
def test_tokenizers_that_are_refused(tmp_path: Path, what: str) -> None:
    content = json.loads(tokenizer_files(kv_of("smollm"), "m.gguf")["tokenizer.json"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert tokenizer_kv(tmp_path)["tokenizer.ggml.pre"] == "smollm"
    (tmp_path / "tokenizer.json").write_text(json.dumps(change(content, *BAD_JSON[what])))
    with pytest.raises(InputError):
        tokenizer_kv(tmp_path)


def test_a_vocabulary_larger_than_the_embedding(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer_files(kv_of("smollm"), "m.gguf")["tokenizer.json"])
    with pytest.raises(InputError, match="100 rows"):
        tokenizer_kv(tmp_path, 100)
