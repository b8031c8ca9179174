"""The tokenizer in a GGUF header as files of a Hugging Face folder: byte-level BPE with a rule of `gguf_rules`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from outlive.checkpoint.formats.gguf_rules import RULES, Rule
from outlive.run.errors import InputError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type
ROLES = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id",
         "pad_token": "padding_token_id"}  # fmt: skip
_FIX = "use the model's Hugging Face folder, whose tokenizer.json says the rule"
_G = "tokenizer.ggml."


def tokenizer_files(kv: Mapping[str, Any], where: str) -> dict[str, str]:
    """tokenizer.json, tokenizer_config.json, generation_config.json and, if there is a template, chat_template.jinja.

    kv: the values of the header (`gguf_header.Header.kv`); where: the file, for errors. Raises InputError for a kind of
    tokenizer or a rule that isn't known here, named in the error, and for values that contradict each other.
    """
    rule = _rule(kv, where)
    tokens, types = _tokens(kv, where)
    ids = {role: _token_id(kv, _G + key, len(tokens), where) for role, key in ROLES.items()}
    config: dict[str, Any] = {role: tokens[number] for role, number in ids.items() if number is not None}
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    length = kv.get(f"{kv.get('general.architecture')}.context_length")
    if isinstance(length, int) and length > 0:
        config["model_max_length"] = length
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(tokens, types, set(ids.values())),
        "normalizer": rule.normalizer,
        "pre_tokenizer": rule.pre_tokenizer,
        "post_processor": _post_processor(kv, rule, tokens, ids, where),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": _model(kv, rule, tokens, types, where),
    }
    files = {
        "tokenizer.json": _text(tokenizer),
        "tokenizer_config.json": _text(dict(sorted(config.items()))),
        "generation_config.json": _text(_generation(kv, ids, len(tokens), where)),
    }
    template = kv.get("tokenizer.chat_template")
    if template is not None:
        if not isinstance(template, str):
            raise _wrong("tokenizer.chat_template is no text", where)
        files["chat_template.jinja"] = template
    return files


def _rule(kv: Mapping[str, Any], where: str) -> Rule:
    kind, pre = kv.get(_G + "model"), kv.get(_G + "pre")
    if kind is None:
        raise InputError("this GGUF file has no tokenizer", where=where, fix=_FIX)
    if not (isinstance(kind, str) and kind == "gpt2" and isinstance(pre, str) and pre in RULES):
        known = ", ".join(repr(name) for name in RULES)
        what = f"the tokenizer of this GGUF file (model {str(kind)[:40]!r}, pre {str(pre)[:40]!r}) follows a rule that"
        what += f" isn't known here, and a guess could change tokens unseen (known: model 'gpt2' with pre {known})"
        raise InputError(what, where=where, fix=_FIX)
    return RULES[pre]


def _tokens(kv: Mapping[str, Any], where: str) -> tuple[list[str], list[int]]:
    tokens = kv.get(_G + "tokens")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise _wrong("tokenizer.ggml.tokens is no list of texts", where)
    types = kv.get(_G + "token_type")
    if types is None:
        types = np.full(len(tokens), NORMAL)
    if not isinstance(types, np.ndarray) or types.dtype.kind not in "iu" or len(types) != len(tokens):
        raise _wrong("tokenizer.ggml.token_type has not one number for each token", where)
    unknown = set(types.tolist()) - {NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED}
    if unknown:
        raise _wrong(f"tokenizer.ggml.token_type has the type {min(unknown)}, which byte-level BPE has not", where)
    used = [token for token, kind in zip(tokens, types.tolist(), strict=True) if kind != UNUSED]
    if len(set(used)) != len(used):
        raise _wrong("tokenizer.ggml.tokens has a token twice", where)
    return tokens, types.tolist()


def _token_id(kv: Mapping[str, Any], key: str, num_tokens: int, where: str) -> int | None:
    number = kv.get(key)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < num_tokens:
        raise _wrong(f"{key} is {str(number)[:40]}, and there are {num_tokens:,} tokens", where)
    return number


def _added_tokens(tokens: Sequence[str], types: Sequence[int], roles: set[int | None]) -> list[dict[str, Any]]:
    """Tokens that are found in a text as they stand; special ones are left out of what is decoded."""
    found = []
    for number, (token, kind) in enumerate(zip(tokens, types, strict=True)):
        special = kind in (CONTROL, UNKNOWN) or number in roles  # programs make those with a role special anyway
        if special or kind == USER_DEFINED:
            flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
            found.append({"id": number, "content": token} | flags)
    return found


def _model(
    kv: Mapping[str, Any], rule: Rule, tokens: Sequence[str], types: Sequence[int], where: str
) -> dict[str, Any]:
    vocab = {token: number for number, token in enumerate(tokens) if types[number] != UNUSED}
    texts = kv.get(_G + "merges", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _wrong("tokenizer.ggml.merges is no list of texts", where)
    merges = []
    for text in texts:
        at = text.find(" ", 1)
        left, right = text[:at], text[at + 1 :]
        if at < 0 or left not in vocab or right not in vocab or left + right not in vocab:
            raise _wrong(f"tokenizer.ggml.merges has {text[:40]!r}, which makes no token of two others", where)
        merges.append([left, right])
    if len(set(texts)) != len(texts):
        raise _wrong("tokenizer.ggml.merges has a pair twice", where)
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": rule.ignore_merges,
        "vocab": vocab,
        "merges": merges,
    }


def _post_processor(
    kv: Mapping[str, Any], rule: Rule, tokens: Sequence[str], ids: Mapping[str, int | None], where: str
) -> dict[str, Any] | None:
    """What puts bos and eos around a text, where the file says so."""
    added: dict[str, int] = {}
    for role, default in (("bos", rule.adds_bos), ("eos", False)):
        wanted, number = kv.get(f"{_G}add_{role}_token", default), ids[f"{role}_token"]
        if not isinstance(wanted, bool):
            raise _wrong(f"{_G}add_{role}_token is {str(wanted)[:40]}", where)
        if wanted and number is None:
            raise _wrong(f"a {role} token is to be added to every text, and the file doesn't say which it is", where)
        if wanted and number is not None:
            added[role] = number

    def around(sequence: str, type_id: int) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = [{"Sequence": {"id": sequence, "type_id": type_id}}]
        if "bos" in added:
            parts.insert(0, {"SpecialToken": {"id": tokens[added["bos"]], "type_id": type_id}})
        if "eos" in added:
            parts.append({"SpecialToken": {"id": tokens[added["eos"]], "type_id": type_id}})
        return parts

    special = {
        tokens[number]: {"id": tokens[number], "ids": [number], "tokens": [tokens[number]]} for number in added.values()
    }
    pair = [*around("A", 0), *around("B", 1)]
    template = {"type": "TemplateProcessing", "single": around("A", 0), "pair": pair, "special_tokens": special}
    return template if added else None


def _generation(
    kv: Mapping[str, Any], ids: Mapping[str, int | None], num_tokens: int, where: str
) -> dict[str, int | list[int]]:
    ends = [ids["eos_token"], *(_token_id(kv, f"{_G}{key}_token_id", num_tokens, where) for key in ("eot", "eom"))]
    distinct = list(dict.fromkeys(end for end in ends if end is not None))
    found: dict[str, int | list[int] | None] = {"bos_token_id": ids["bos_token"], "pad_token_id": ids["pad_token"]}
    if distinct:
        found["eos_token_id"] = distinct if len(distinct) > 1 else distinct[0]
    return {key: value for key, value in sorted(found.items()) if value is not None}


def _text(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _wrong(what: str, where: str) -> InputError:
    return InputError(what, where=where, fix="copy the file again from where it is whole, or use another one")
