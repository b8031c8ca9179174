"""Promise: a model folder, written by transformers 4 or 5, gives the ids that transformers gives."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import processors

from outlive.run.errors import InputError
from outlive.text.tokenizer import Tokenizer
from tests.fixtures import CHATML, SPECIAL, tiny_tokenizer

TEXTS = [
    "",
    " ",
    "Hello there!",
    "<|im_start|>user\nHi<|im_end|>\n",
    "x  10\n\n  3.",
    "é ü 漢字 🙂",
    "a <tool> b<img>  <pad>",
    "<|endoftext|><|im_end|> <extra>x",
]


def edit(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def token(content: str, **flags: bool) -> dict[str, Any]:
    plain = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    return {"content": content} | plain | flags


def framed(folder: Path) -> Path:
    """Let the tokenizer put BOS before a plain text and EOS after it."""
    backend = Backend.from_file(str(folder / "tokenizer.json"))
    backend.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A <|im_end|>", special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2)]
    )
    backend.enable_truncation(4)
    backend.enable_padding(length=16, pad_id=2, pad_token="<|im_end|>")
    backend.save(str(folder / "tokenizer.json"))
    return folder


def version_4(folder: Path) -> Path:
    """As transformers 4 wrote it: more files, tokens as objects, the template in the configuration."""
    decoder = {str(index): token(text) for index, text in enumerate(SPECIAL)} | {"900": token("<tool>", special=False)}
    tiny_tokenizer(
        folder,
        template=None,
        added_tokens_decoder=decoder,
        chat_template=CHATML,
        bos_token=token("<|im_start|>") | {"__type": "AddedToken"},
        additional_special_tokens=["<img>", "<|im_end|>"],
        pad_token="<pad>",
    )
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": token("<|im_end|>", lstrip=True)}))
    return folder


def legacy(folder: Path) -> Path:
    """Older still: no list of added tokens in the configuration."""
    tiny_tokenizer(folder, template=None, eos_token=None)
    eos = {key: value for key, value in token("<|im_end|>").items() if key != "special"}
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": eos, "additional_special_tokens": ["<img>"], "pad_token": "<pad>"})
    )
    (folder / "added_tokens.json").write_text(json.dumps({"<tool>": 700}))
    return folder


FOLDERS: dict[str, Callable[[Path], Path]] = {
    "version 5": tiny_tokenizer,
    "version 4": version_4,
    "legacy": legacy,
    "framed, truncated, padded": lambda folder: framed(tiny_tokenizer(folder, pad_token=None)),
    "extra tokens as a list": lambda folder: tiny_tokenizer(folder, extra_special_tokens=["<img>", "<extra>"]),
    "extra tokens as names": lambda folder: tiny_tokenizer(folder, extra_special_tokens={"image_token": "<img>"}),
    "a token of the model's own": lambda folder: tiny_tokenizer(folder, tool_token="<tool>"),
    "special tokens split": lambda folder: tiny_tokenizer(folder, split_special_tokens=True),
    "other flags": lambda folder: tiny_tokenizer(folder, added_tokens_decoder={"2": token("<|im_end|>", lstrip=True)}),
    "no configuration": lambda folder: bare(tiny_tokenizer(folder)),
}


def bare(folder: Path) -> Path:
    (folder / "tokenizer_config.json").unlink()
    (folder / "generation_config.json").unlink()
    return folder


@pytest.fixture(scope="module")
def transformers() -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    return pytest.importorskip("transformers", reason="transformers is not installed: nothing to compare with")


@pytest.mark.parametrize("kind", FOLDERS)
def test_ids_and_special_tokens_are_those_of_transformers(transformers: Any, kind: str, tmp_path: Path) -> None:
    folder = FOLDERS[kind](tmp_path)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
    ours = Tokenizer.load(folder)
    assert ours.encode_batch(TEXTS) == [theirs(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    assert ours.special_tokens == theirs.special_tokens_map
    assert (ours.bos_id, ours.eos_id, ours.pad_id) == (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id)
    assert ours.vocab_size == len(theirs)
    assert ours.added_tokens == theirs.get_added_vocab()
    for text in TEXTS:
        ids = ours.encode(text)
        assert ours.decode(ids) == theirs.decode(ids, clean_up_tokenization_spaces=False)
    if "framed" not in kind:
        before, after = ours.text_frame()
        assert before + ours.encode("Hi there") + after == theirs("Hi there")["input_ids"]


def test_stored_truncation_and_padding_are_off_and_the_frame_is_known(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(framed(tiny_tokenizer(tmp_path)))
    assert tokenizer.text_frame() == ([1], [2])
    assert tokenizer.decode(tokenizer.encode("a long text of many words")) == "a long text of many words"
    assert Tokenizer.load(tiny_tokenizer(tmp_path / "plain")).text_frame() == ([], [])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer(tmp_path_factory.mktemp("tiny")))


@given(st.lists(st.text() | st.sampled_from(TEXTS), max_size=4))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_decode_gives_back_what_was_encoded(tiny: Tokenizer, texts: list[str]) -> None:
    ids = tiny.encode_batch(texts)
    assert [tiny.decode(row) for row in ids] == texts
    assert [tiny.encode(text) for text in texts] == ids


def test_tokens_show_their_own_text_and_bytes_that_are_no_character(tiny: Tokenizer) -> None:
    ids = tiny.encode("<|im_start|>user\nHello é")
    assert "".join(tiny.tokens(ids)).replace("\\xc3\\xa9", "é") == "<|im_start|>user\nHello é"
    assert tiny.tokens(tiny.encode("🙂")) == ["\\xf0", "\\x9f", "\\x99", "\\x82"]
    assert tiny.tokens([10**6]) == ["<no token 1000000>"]


def test_tokens_of_a_vocabulary_with_byte_fallback(tmp_path: Path) -> None:
    vocabulary = {"<unk>": 0, "<0x0A>": 1, "<0xC3>": 2, "▁Hi": 3, "!": 4}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": True, "unk_token": "<unk>"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    assert Tokenizer.load(tmp_path).tokens([3, 4, 1, 2]) == [" Hi", "!", "\n", "\\xc3"]


def test_ends_of_turn_are_the_added_tokens_among_the_models_eos(tmp_path: Path) -> None:
    folder = tiny_tokenizer(tmp_path)
    assert set(Tokenizer.load(folder).end_of_turn_ids) == {2, 0}
    generation = folder / "generation_config.json"
    for eos, expected in ((0, {0, 2}), ([2, 300, 0], {0, 2}), (None, {2})):
        edit(generation, lambda config, eos=eos: config.update(eos_token_id=eos))
        assert set(Tokenizer.load(folder).end_of_turn_ids) == expected
    generation.unlink()
    assert Tokenizer.load(folder).end_of_turn_ids == [2]


def test_templates_are_found_in_files_and_in_the_configuration(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path, template=None, chat_template=named))
    assert (tokenizer.chat_template, tokenizer.chat_templates) == ("a", {"default": "a", "tool_use": "b"})
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("c")
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.chat_template, tokenizer.chat_templates) == (None, {"rag": "c"})
    (tmp_path / "chat_template.jinja").write_text("d\n")
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.chat_template, tokenizer.chat_templates) == ("d\n", {"default": "d\n", "rag": "c"})
    assert Tokenizer.load(tiny_tokenizer(tmp_path / "none", template=None)).chat_template is None


def test_the_hash_changes_with_tokens_and_not_with_the_form_of_the_files(tmp_path: Path) -> None:
    first = Tokenizer.load(tiny_tokenizer(tmp_path / "first")).hash
    second = tiny_tokenizer(tmp_path / "second", template="another")
    edit(second / "tokenizer.json", lambda value: value.update(truncation=None))
    (second / "special_tokens_map.json").write_text("{}")
    assert Tokenizer.load(second).hash == first
    changed = [
        tiny_tokenizer(tmp_path / "a", extra_special_tokens=["<img>"]),
        tiny_tokenizer(tmp_path / "b", split_special_tokens=True),
        tiny_tokenizer(tmp_path / "c", eos_token="<|endoftext|>"),
        tiny_tokenizer(tmp_path / "d"),
    ]
    edit(changed[3] / "generation_config.json", lambda config: config.update(eos_token_id=2))
    hashes = [Tokenizer.load(folder).hash for folder in changed]
    assert len({first, *hashes}) == 5


def test_what_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Tokenizer.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    folder = tiny_tokenizer(tmp_path)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(InputError, match="not valid JSON") as error:
        Tokenizer.load(folder)
    assert error.value.where == str(folder / "tokenizer_config.json")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    with pytest.raises(InputError, match="can't be read"):
        Tokenizer.load(folder)


def test_text_that_is_no_unicode_is_refused(tiny: Tokenizer) -> None:
    with pytest.raises(InputError, match="text 1 holds half of a surrogate pair"):
        tiny.encode_batch(["good", "bad \ud83d"])


@pytest.mark.parametrize("dropout", [0.1, 1.0, 0.0, None])
def test_a_tokenizer_of_random_ids_is_refused(tmp_path: Path, dropout: float | None) -> None:
    """BPE dropout: the same text would be trained on in other tokens than a server sends."""
    file = tiny_tokenizer(tmp_path) / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["dropout"] = dropout
    file.write_text(json.dumps(content))
    if not dropout:
        assert Tokenizer.load(tmp_path).encode("hello")
        return
    with pytest.raises(InputError, match="drops merges at random") as caught:
        Tokenizer.load(tmp_path)
    assert str(file) in str(caught.value)
