"""The tokenizer of a Hugging Face folder as values of a GGUF header; `gguf_tokenizer` is the way back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from outlive.checkpoint.formats.gguf_rules import rule_of
from outlive.checkpoint.formats.gguf_tokenizer import CONTROL, NORMAL, ROLES, UNUSED, USER_DEFINED
from outlive.checkpoint.formats.huggingface import read_json
from outlive.checkpoint.formats.inside import regular_file
from outlive.run.errors import InputError

_MOST_TOKENS = 1 << 22
_G = "tokenizer.ggml."


def tokenizer_kv(folder: Path, num_tokens: int | None = None) -> dict[str, Any]:
    """The values of `tokenizer.*` for the tokenizer of a folder: tokenizer.json, its config, and the chat template.

    num_tokens: rows of the model's embedding; ids behind the tokenizer's become tokens that are not used. Raises
    InputError where llama.cpp would make other tokens of a text: for a rule that isn't known here, and for tokens that
    take white space or whole words with them.
    """
    folder = Path(folder)
    path = folder / "tokenizer.json"
    tokenizer = read_json(regular_file(path))
    config = _optional(folder / "tokenizer_config.json")
    try:
        pre = _rule(tokenizer, path)
        tokens, types = _tokens(tokenizer, num_tokens, path)
        merges = [_merge(merge) for merge in tokenizer["model"]["merges"]]
        roles = _roles(config, tokens)
        adds_bos, adds_eos = _added(tokenizer.get("post_processor"), roles, tokens, path)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"this is no tokenizer.json: {type(error).__name__} {str(error)[:100]}"
        raise InputError(what, where=str(path), fix="copy it again from where it is whole") from error
    kv: dict[str, Any] = {_G + "model": "gpt2", _G + "pre": pre, _G + "tokens": tokens}
    kv |= {_G + "token_type": np.array(types, np.int32), _G + "merges": merges}
    kv |= {_G + ROLES[role]: number for role, number in roles.items()}
    kv[_G + "add_bos_token"] = adds_bos
    if adds_eos:
        kv[_G + "add_eos_token"] = True
    template = _template(folder, config)
    return kv | ({} if template is None else {"tokenizer.chat_template": template})


def _optional(path: Path) -> dict[str, Any]:
    return read_json(regular_file(path)) if path.exists() else {}


def _rule(tokenizer: Mapping[str, Any], path: Path) -> str:
    model = tokenizer["model"]
    odd = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    rule = None if model["type"] != "BPE" or any(model.get(key) for key in odd) else rule_of(tokenizer)
    if rule is None:
        said = str([model["type"], tokenizer.get("normalizer"), tokenizer.get("pre_tokenizer")])[:300]
        what = f"this tokenizer follows rules that have no known name in GGUF files: {said}"
        raise InputError(what, where=str(path), fix="keep the Hugging Face folder for this model")
    return rule


def _tokens(tokenizer: Mapping[str, Any], num_tokens: int | None, path: Path) -> tuple[list[str], list[int]]:
    """The texts of all ids, and their types."""
    by_id = {number: (token, NORMAL) for token, number in tokenizer["model"]["vocab"].items()}
    for added in tokenizer["added_tokens"]:
        bound = [flag for flag in ("lstrip", "rstrip", "single_word") if added[flag]]
        if bound:
            what = f"the token {added['content']!r} has the flag {bound[0]}, which GGUF files can't express"
            raise InputError(what, where=str(path), fix="keep the Hugging Face folder for this model")
        by_id[added["id"]] = (added["content"], CONTROL if added["special"] else USER_DEFINED)
    if not all(type(number) is int and number >= 0 and isinstance(token, str) for number, (token, _) in by_id.items()):
        raise ValueError("a token that is no text, or an id that is no number")
    length = max(by_id, default=-1) + 1
    if num_tokens is not None and num_tokens < length:
        what = f"the tokenizer has ids up to {length - 1:,}, and the model's embedding {num_tokens:,} rows"
        raise InputError(what, where=str(path), fix="use the tokenizer that belongs to the model")
    length = num_tokens or length
    if length > _MOST_TOKENS:
        raise ValueError(f"{length:,} tokens")
    texts = [by_id.get(number, (f"[PAD{number}]", UNUSED)) for number in range(length)]
    if len({token for token, _ in texts}) != length:
        raise ValueError("a token has two ids")
    return [token for token, _ in texts], [kind for _, kind in texts]


def _merge(merge: Any) -> str:
    parts = merge.split(" ") if isinstance(merge, str) else merge
    if len(parts) != 2 or not all(isinstance(part, str) and part and " " not in part for part in parts):
        raise ValueError(f"the merge {str(merge)[:40]!r}")
    return f"{parts[0]} {parts[1]}"


def _roles(config: Mapping[str, Any], tokens: list[str]) -> dict[str, int]:
    """The ids of the tokens that the config gives a role."""
    found = {}
    numbers = {token: number for number, token in enumerate(tokens)}
    for role in ROLES:
        named = config.get(role)
        token = named.get("content") if isinstance(named, dict) else named
        if isinstance(token, str) and token in numbers:
            found[role] = numbers[token]
    return found


def _added(post: Any, roles: Mapping[str, int], tokens: list[str], path: Path) -> tuple[bool, bool]:
    """Whether a bos is put before a text, and an eos behind it."""
    parts = post["processors"] if post is not None and post["type"] == "Sequence" else [post]
    templates = [part for part in parts if part is not None and part["type"] != "ByteLevel"]
    if not templates:
        return False, False
    names = {role: tokens[number] for role, number in roles.items()}
    if len(templates) == 1 and templates[0]["type"] == "TemplateProcessing":
        around = [part.get("SpecialToken", {}).get("id") for part in templates[0]["single"]]
        bos, eos = names.get("bos_token"), names.get("eos_token")
        for adds_bos, adds_eos in ((True, False), (False, True), (True, True), (False, False)):
            if (adds_bos and bos is None) or (adds_eos and eos is None):
                continue
            if around == [bos] * adds_bos + [None] + [eos] * adds_eos:
                return adds_bos, adds_eos
    what = "this tokenizer adds other tokens to a text than one bos before and one eos behind it"
    raise InputError(what, where=str(path), fix="keep the Hugging Face folder for this model")


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The chat template: the file, else the config's, of several there the one that is called default."""
    path = folder / "chat_template.jinja"
    if path.exists():
        try:
            return regular_file(path).read_text("utf-8")
        except ValueError as error:
            raise InputError("the chat template is no UTF-8", where=str(path), fix="save it as UTF-8") from error
    template = config.get("chat_template")
    if isinstance(template, list):
        parts = [part for part in template if isinstance(part, dict) and part.get("name") == "default"]
        template = parts[0].get("template") if parts else None
    return template if isinstance(template, str) else None
