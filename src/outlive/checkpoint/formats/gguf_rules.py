"""How text is split before the merges: `tokenizer.ggml.pre` and the parts of tokenizer.json that do the same.

A wrong rule gives other tokens than those that the model was trained on, and shows in no error. So only rules are here
that are compared with llama.cpp's expressions (src/llama-vocab.cpp) and with the tokenizers of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?"
_SPACES = r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class Rule(NamedTuple):
    """normalizer and pre_tokenizer as in tokenizer.json; `ignore_merges`: whether a piece that is a token is that token
    at once; `adds_bos`: what llama.cpp does where the file doesn't say."""

    pre_tokenizer: Mapping[str, Any]
    normalizer: Mapping[str, Any] | None = None
    ignore_merges: bool = False
    adds_bos: bool = False


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _sequence(first: Mapping[str, Any], *, use_regex: bool) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": [first, _byte_level(use_regex)]}


def _split(expression: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    return _sequence(split, use_regex=False)


_LLAMA_3 = Rule(_split(_WORDS + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+" + _SPACES), ignore_merges=True, adds_bos=True)
RULES = {
    "gpt-2": Rule(_byte_level(True)),
    "smollm": Rule(_sequence({"type": "Digits", "individual_digits": True}, use_regex=True)),
    "llama-bpe": _LLAMA_3,
    "llama3": _LLAMA_3,
    "llama-v3": _LLAMA_3,
    "qwen2": Rule(_split(_WORDS + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+" + _SPACES), {"type": "NFC"}),
    "qwen35": Rule(_split(_WORDS + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+" + _SPACES), {"type": "NFC"}),
}


def rule_of(tokenizer: Mapping[str, Any]) -> str | None:
    """The name of the rule that a tokenizer.json follows; None where it is none of those known here."""
    followed = _essence(tokenizer.get("pre_tokenizer")), _essence(tokenizer.get("normalizer"))
    ignore_merges = bool(tokenizer["model"].get("ignore_merges", False))
    for name, rule in RULES.items():
        if (*followed, ignore_merges) == (_essence(rule.pre_tokenizer), _essence(rule.normalizer), rule.ignore_merges):
            return name
    return None


def _essence(part: Any, depth: int = 0) -> Any:
    """A part of tokenizer.json without what changes no token: offsets, sequences of one or none, missing defaults."""
    if not isinstance(part, dict) or depth > 4:
        return part
    if part.get("type") == "Sequence":
        parts = part.get("pretokenizers") or part.get("normalizers") or []
        found = [_essence(each, depth + 1) for each in parts]
        return found if len(found) > 1 else (found[0] if found else None)
    kept = {key: value for key, value in part.items() if key != "trim_offsets"}
    defaults = {"ByteLevel": {"add_prefix_space": True, "use_regex": True}, "Split": {"invert": False}}
    return defaults.get(str(part.get("type")), {}) | kept
