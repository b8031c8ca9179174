"""Two models by what they answer: the logits of both on the same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
import torch

from outlive.checkpoint.formats.huggingface import open_model
from outlive.modeling.loading import ModelPlace, load_config, load_model
from outlive.run.errors import InputError
from outlive.run.machine import available_memory

SEQUENCES, LENGTH = 2, 64  # tokens that are drawn: enough that every layer is seen, few enough for a laptop
_WIDTH = 1.25  # times the weights: what else a forward takes


class Apart(NamedTuple):
    """How far two models are apart on `tokens` positions. `largest`: difference of two logits. `kl`: the mean of
    KL(one ‖ other) of the next token, in nats. `same_greedy`: the share of positions at which both choose the same."""

    largest: float
    kl: float
    same_greedy: float
    tokens: int


def logits_apart(one: Path, other: Path, dtype: torch.dtype = torch.float32) -> Apart:
    """Load two Hugging Face folders one after the other, the same way, and compare them.

    Raises InputError where their vocabularies differ, memory would not do, or one of them can't be loaded.
    """
    vocabulary = _common_vocabulary(one, other)
    for folder in (one, other):
        _check_memory(folder, dtype)
    ids = np.random.default_rng(0).integers(0, vocabulary, (SEQUENCES, LENGTH))
    first, second = (_logits(folder, ids, dtype) for folder in (one, other))
    if not (torch.isfinite(first).all() and torch.isfinite(second).all()):
        fix = "look at both with `outlive verify`: NaN in the weights, or numbers too large for the dtype"
        raise InputError("the logits are not finite", where=f"{one}, {other}", fix=fix)
    largest = kl = same = 0.0
    for a, b in zip(first, second, strict=True):  # [tokens, vocabulary], one sequence at a time
        p, q = (one_of.double().log_softmax(-1) for one_of in (a, b))
        largest = max(largest, float((a - b).abs().max()))
        kl += float((p.exp() * (p - q)).sum())
        same += int((a.argmax(-1) == b.argmax(-1)).sum())
    number = SEQUENCES * LENGTH
    return Apart(largest, max(kl / number, 0.0), same / number, number)


def _logits(folder: Path, ids: Any, dtype: torch.dtype) -> torch.Tensor:
    """[sequences, tokens, vocabulary], float32."""
    model = load_model(ModelPlace(folder), dtype, per_document=False).eval()
    with torch.no_grad():
        logits: torch.Tensor = model(torch.from_numpy(ids)).logits.float()
    return logits


def _common_vocabulary(one: Path, other: Path) -> int:
    sizes = [load_config(ModelPlace(folder)).get_text_config().vocab_size for folder in (one, other)]
    fix = "compare models of one tokenizer, such as a model and what it was converted to"
    if sizes[0] != sizes[1]:
        what = f"the vocabularies differ: {sizes[0]:,} and {sizes[1]:,} tokens"
        raise InputError(what, where=f"{one}, {other}", fix=fix)
    words = [_tokens(folder) for folder in (one, other)]
    if wrong := [number for number in words[0].keys() & words[1].keys() if words[0][number] != words[1][number]]:
        number = min(wrong)
        what = f"the vocabularies differ: token {number} is {words[0][number]!r} and {words[1][number]!r}"
        raise InputError(what, where=f"{one}, {other}", fix=fix)
    return int(sizes[0])


def _tokens(folder: Path) -> dict[int, str]:
    """Token ids with their texts; {} where there is no tokenizer.json to read them from."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return {}
    try:
        found = tokenizers.Tokenizer.from_file(str(path)).get_vocab()
    except Exception as error:  # the library raises Exception itself
        fix = "copy it again from the base model"
        raise InputError(f"the tokenizer can't be read: {str(error)[:200]}", where=str(path), fix=fix) from None
    return {number: text for text, number in found.items()}


def _check_memory(folder: Path, dtype: torch.dtype) -> None:
    """Raise InputError where a model would not fit into the memory that is free."""
    if not any(folder.glob("*.safetensors")):
        return
    numbers = sum(tensor.size for tensor in open_model(folder).tensors.values())
    needed, free = int(numbers * dtype.itemsize * _WIDTH), available_memory()
    if 0 < free < needed:  # 0: the system does not say
        what = f"{needed / 2**30:.1f} GiB are needed to load it as {dtype}, and {free / 2**30:.1f} GiB are free"
        raise InputError(
            what, where=str(folder), fix="compare on a larger machine, by --dtype bf16, or by tensors only"
        )
