"""Promise: a Modelfile says what the model's own files say, in a form that Ollama reads, and guesses nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outlive.checkpoint.convert import GGUF_FILE, convert
from outlive.checkpoint.formats.detect import open_checkpoint
from outlive.checkpoint.formats.modelfile import NAME, modelfile
from outlive.checkpoint.manifest import NAME as MANIFEST
from outlive.cli.main import app
from outlive.run.errors import InputError
from outlive.text.go_template import talk
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer
from tests.checkpoint.test_convert import SIZES, folder_of
from tests.fixtures import CHATML, tiny_tokenizer
from tests.text.go_subset import ollama

KV = {
    "general.architecture": "llama", "llama.context_length": 512, "llama.block_count": 2,
    "llama.attention.head_count_kv": 2, "llama.attention.key_length": 12, "llama.attention.value_length": 12,
    "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.tokens": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
}  # fmt: skip
_INSTRUCTION = re.compile(r'([A-Z]+) (?:"""(.*?)"""|(.*?))\n', re.DOTALL)


def read(text: str) -> list[tuple[str, str]]:
    """The instructions of a Modelfile, as Ollama's parser has them: quotes, if any, are no part of a value."""
    found, place = [], 0
    while place < len(text):
        if text[place] == "#":
            place = text.index("\n", place) + 1
            continue
        one = _INSTRUCTION.match(text, place)
        assert one is not None, text[place : place + 80]
        found.append((one[1], one[2] if one[2] is not None else one[3]))
        place = one.end()
    return found


def made(
    folder: Path, generation: Any = None, kv: Any = KV, **tokenizer: Any
) -> tuple[list[tuple[str, str]], list[str]]:
    tiny_tokenizer(folder, **tokenizer)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    text, notes = modelfile([folder], folder, kv, "model.gguf")
    return read(text), notes


def test_what_it_says(tmp_path: Path) -> None:
    found, notes = made(tmp_path)
    said = dict(found)
    assert [name for name, _ in found] == ["FROM", "TEMPLATE", "SYSTEM", "PARAMETER", "PARAMETER", "PARAMETER"]
    assert said["FROM"] == "./model.gguf"
    assert said["SYSTEM"] == "You are a small assistant."
    assert {value for name, value in found if name == "PARAMETER"} == {
        "num_ctx 512", 'stop "<|im_end|>"', 'stop "<|endoftext|>"'
    }  # fmt: skip
    assert notes == []
    template = ChatTemplate.of(Tokenizer.load(tmp_path))
    for rule in (None, "Be brief"):
        chat = talk(("Hi", "Hello", "And?"), rule)
        theirs = template.render_plain(chat, add_generation_prompt=True)
        assert ollama(said["TEMPLATE"], chat, said["SYSTEM"]) == theirs


def test_a_template_that_is_not_translated_surely_is_left_to_ollama(tmp_path: Path) -> None:
    odd = CHATML.replace("message['content']", "message['content'].split('</think>')[-1]")
    for name, template in (("odd", odd), ("none", None), ("broken", "{% if %}")):
        found, notes = made(tmp_path / name, template=template)
        assert not {"TEMPLATE", "SYSTEM"} & {instruction for instruction, _ in found}
        assert any("no TEMPLATE is written" in note for note in notes)
        assert ("PARAMETER", 'stop "<|im_end|>"') in found


def test_a_bos_that_the_tokenizer_adds_is_not_written_twice(tmp_path: Path) -> None:
    begins = "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|im_end|>{% endfor %}<|assistant|>"
    for adds in (False, True):
        found, _ = made(tmp_path / str(adds), template=begins, kv={**KV, "tokenizer.ggml.add_bos_token": adds})
        text = ollama(dict(found)["TEMPLATE"], talk(("Hi",)))
        assert text == "<|im_start|>" * (not adds) + "<|user|>Hi<|im_end|><|assistant|>"


GENERATION: dict[str, tuple[dict[str, Any], list[str]]] = {
    "stated": (
        {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "repetition_penalty": 1.05, "do_sample": True},
        ["temperature 0.6", "top_k 20", "top_p 0.95", "min_p 0", "repeat_penalty 1.05", "repeat_last_n -1"],
    ),
    "greedy": ({"do_sample": False, "temperature": 0.6}, ["temperature 0"]),
    "a part": ({"top_p": 1, "temperature": None}, ["top_p 1"]),
    "nothing": ({}, []),
}


@pytest.mark.parametrize("name", GENERATION)
def test_how_is_sampled(tmp_path: Path, name: str) -> None:
    generation, expected = GENERATION[name]
    found, _ = made(tmp_path, {"eos_token_id": 2, **generation})
    values = [value for instruction, value in found if instruction == "PARAMETER"]
    assert [value for value in values if value.split()[0] not in ("num_ctx", "stop")] == expected


@pytest.mark.parametrize("wrong", [{"temperature": "hot"}, {"top_k": 2.5}, {"top_p": True}, {"min_p": float("inf")}])
def test_values_that_are_no_numbers(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"should be a (whole )?number") as caught:
        made(tmp_path, {"eos_token_id": 2, **wrong})
    assert str(caught.value.where).endswith("generation_config.json")


def test_a_long_context_s_memory_is_told(tmp_path: Path) -> None:
    _, notes = made(tmp_path, kv={**KV, "llama.context_length": 1_000_000})
    assert any("1,000,000 tokens" in note and "0.2 GB" in note for note in notes)  # 2 · 2 · (12 + 12) · 2 bytes each


def test_stops_that_no_modelfile_can_hold(tmp_path: Path) -> None:
    folder = tiny_tokenizer(tmp_path, eos_token='<"end">')
    data = json.loads((folder / "tokenizer.json").read_text())
    data["added_tokens"].append({**data["added_tokens"][2], "id": 500, "content": '<"end">'})
    (folder / "tokenizer.json").write_text(json.dumps(data))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 500}))
    text, notes = modelfile([folder], folder, KV, "model.gguf")
    assert "stop" not in text
    assert any("""no stop is written for '<"end">'""" in note for note in notes)


def test_the_verb(tmp_path: Path) -> None:
    model, target = folder_of(tmp_path / "model", SIZES), tmp_path / "gguf"
    arguments = ["convert", str(model), str(target), "--to", "gguf"]
    done = CliRunner().invoke(app, [*arguments, "--modelfile", "--json"])
    assert done.exit_code == 0, done.output
    assert read((target / NAME).read_text())[0] == ("FROM", f"./{GGUF_FILE}")
    assert NAME in json.loads((target / MANIFEST).read_text())["files"]
    assert CliRunner().invoke(app, ["verify", str(target)]).exit_code == 0
    plain = CliRunner().invoke(app, ["convert", str(model), str(tmp_path / "plain"), "--to", "gguf"])
    assert plain.exit_code == 0, plain.output
    assert not (tmp_path / "plain" / NAME).exists()
    for other in (["--to", "huggingface"], ["--to", "peft", "--alpha", "1"]):
        refused = CliRunner().invoke(app, ["convert", str(model), str(tmp_path / "x"), *other, "--modelfile"])
        assert refused.exit_code == 2, refused.output
        assert "Modelfile is for GGUF" in refused.output
        assert not (tmp_path / "x").exists()
    before = (target / NAME).read_text()
    assert CliRunner().invoke(app, [*arguments, "--modelfile"]).exit_code == 2
    assert (target / NAME).read_text() == before


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    model = folder_of(tmp_path / "model", SIZES)
    (model / "generation_config.json").write_text('{"temperature": "hot"}')
    with pytest.raises(InputError, match="temperature"):
        convert(open_checkpoint(model), tmp_path / "gguf", "gguf", with_modelfile=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
