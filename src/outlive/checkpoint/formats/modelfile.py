"""A Modelfile for Ollama beside a GGUF file: what the file itself doesn't say, or what Ollama would guess.

Facts: Ollama's docs/modelfile.mdx, parser/parser.go, template/template.go and server/model.go (fb3076099).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outlive.checkpoint.formats.huggingface import read_json
from outlive.run.errors import InputError
from outlive.text.go_template import GoTemplate, go_template, printable
from outlive.text.template import ChatTemplate, TemplateError
from outlive.text.tokenizer import Tokenizer

NAME = "Modelfile"
_GENERATION = "generation_config.json"
# Keys of generation_config.json, and of Ollama for the same (model/sampler settings of api/types.go).
_SAMPLING = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
_PENALTY = "repetition_penalty"
_WIDE = 16384  # tokens of context from which on its memory is worth a word


def modelfile(folders: Sequence[Path], tokenizer: Path, kv: Mapping[str, Any], gguf_file: str) -> tuple[str, list[str]]:
    """The content of a Modelfile, and notes for the user: of what could not be said.

    folders: where generation_config.json is looked for; tokenizer: the folder with tokenizer and template; kv: the
    header of the GGUF file; gguf_file: its name, beside the Modelfile. Raises InputError for a generation_config.json
    with other values than numbers.
    """
    loaded = Tokenizer.load(tokenizer)
    notes: list[str] = []
    lines = ["# ollama create NAME -f Modelfile", f"FROM ./{gguf_file}"]
    lines += _template_lines(loaded, kv, notes)
    architecture = kv["general.architecture"]
    context = int(kv[f"{architecture}.context_length"])
    lines.append(f"PARAMETER num_ctx {context}")
    if context >= _WIDE:
        most = _cache_bytes(kv, architecture) * context / 1e9
        notes.append(
            f"{NAME}: num_ctx is the model's whole context, {context:,} tokens, whose keys and values take up to"
            f" {most:.1f} GB: lower it where memory is short"
        )
    lines += _stop_lines(loaded, notes)
    lines += _sampling_lines(folders)
    return "\n".join(lines) + "\n", notes


def _template_lines(tokenizer: Tokenizer, kv: Mapping[str, Any], notes: list[str]) -> list[str]:
    found = _translated(tokenizer, kv)
    if isinstance(found, str):
        notes.append(
            f"{NAME}: no TEMPLATE is written: {found}. Ollama takes the GGUF file's own chat template, or one of its"
            " own that looks like it"
        )
        return []
    if found.trims:
        notes.append(f"{NAME}: the chat template takes white space off the ends of messages, and TEMPLATE does not")
    if tokenizer.chat_template and "tools" in tokenizer.chat_template:
        notes.append(
            f"{NAME}: TEMPLATE is for chats without tools; newer versions of Ollama take the file's own for them"
        )
    lines = [f'TEMPLATE """{found.text}"""']
    return lines if found.system is None else [*lines, f'SYSTEM """{found.system}"""']


def _translated(tokenizer: Tokenizer, kv: Mapping[str, Any]) -> GoTemplate | str:
    bos = None
    if kv.get("tokenizer.ggml.add_bos_token"):
        bos = str(kv["tokenizer.ggml.tokens"][int(kv["tokenizer.ggml.bos_token_id"])])
    if tokenizer.chat_template is None:
        return "the model has no chat template"
    try:
        return go_template(ChatTemplate.of(tokenizer), drop_bos=bos)
    except TemplateError as error:  # it can't be compiled
        return error.detail


def _cache_bytes(kv: Mapping[str, Any], architecture: str) -> int:
    """Of keys and values of one token, in 16 bits, with full attention in every layer."""
    value = {key.removeprefix(f"{architecture}."): number for key, number in kv.items() if isinstance(number, int)}
    width = value.get("attention.key_length", 0) + value.get("attention.value_length", 0)
    return value["block_count"] * value["attention.head_count_kv"] * width * 2


def _stop_lines(tokenizer: Tokenizer, notes: list[str]) -> list[str]:
    lines = []
    for text in dict.fromkeys(tokenizer.end_of_turn):
        if '"' in text or "\n" in text or not printable(text):
            notes.append(f"{NAME}: no stop is written for {text!r}, which a Modelfile can't hold")
        else:
            lines.append(f'PARAMETER stop "{text}"')
    if not lines:
        notes.append(f"{NAME}: nothing says where a turn ends, so no stop is written")
    return lines


def _sampling_lines(folders: Sequence[Path]) -> list[str]:
    """What generation_config.json says of sampling; without do_sample transformers takes the likeliest token."""
    path = next((folder / _GENERATION for folder in folders if (folder / _GENERATION).is_file()), None)
    if path is None:
        return []
    config = read_json(path)
    if config.get("do_sample") is False:
        return ["PARAMETER temperature 0"]
    lines = [f"PARAMETER {name} {_number(config, key, path)}" for key, name in _SAMPLING.items() if _said(config, key)]
    if _said(config, _PENALTY):  # Ollama looks back 64 tokens, transformers at all
        lines += [f"PARAMETER repeat_penalty {_number(config, _PENALTY, path)}", "PARAMETER repeat_last_n -1"]
    return lines


def _said(config: Mapping[str, Any], key: str) -> bool:
    return config.get(key) is not None


def _number(config: Mapping[str, Any], key: str, path: Path) -> str:
    value = config[key]
    whole = key == "top_k"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not math.isfinite(value):
        what = f"{key} is {str(value)[:40]!r}, and should be a {'whole ' if whole else ''}number"
        raise InputError(what, where=str(path), fix=f"set {key} to a number, or take it out")
    return f"{value:.10g}"
