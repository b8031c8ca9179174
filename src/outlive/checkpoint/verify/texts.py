"""What stands beside the weights: config.json in both spellings, the tokenizer, the template, where generation ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outlive.checkpoint.formats.huggingface import CONFIG, read_json
from outlive.checkpoint.tensors.dtypes import SHORT
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.verify.finding import Finding
from outlive.run.errors import OutliveError
from outlive.text.tokenizer import Tokenizer

EMBEDDINGS = ("model.embed_tokens.weight", "model.language_model.embed_tokens.weight")
HEAD = "lm_head.weight"
DEFAULT_THETA = 10000.0


def look_at_config(folder: Path) -> tuple[dict[str, Any], list[Finding]]:
    """config.json, {} where there is none that can be read, and what is wrong with it."""
    where = str(folder / CONFIG)
    if not (folder / CONFIG).is_file():
        return {}, [Finding("error", "no_config", "there is no config.json", where, "copy it from the base model")]
    try:
        config = read_json(folder / CONFIG)
    except OutliveError as error:
        return {}, [Finding("error", "no_config", error.what, where, error.fix or "")]
    return config, [*_names(config, where), *_spellings(config, where)]


def _names(config: Mapping[str, Any], where: str) -> Iterator[Finding]:
    if not isinstance(config.get("model_type"), str):
        yield Finding("error", "no_model_type", "it names no model_type", where, "copy it from the base model")
    if not config.get("architectures"):
        fix = 'add the class, such as "architectures": ["LlamaForCausalLM"]'
        yield Finding("warning", "no_architectures", "it names no architectures: servers choose by them", where, fix)


def _spellings(config: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """What transformers 4 and 5 write under different names, and readers of the other version miss."""
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else config
    rope = inner.get("rope_parameters")
    theta = rope.get("rope_theta") if isinstance(rope, dict) else None
    old = inner.get("rope_theta")
    both = "write both spellings, as `outlive train` does"
    if theta is not None and old is None and theta != DEFAULT_THETA:
        what = f"rope_theta {theta:g} stands only in rope_parameters, the spelling of transformers 5"
        yield Finding("warning", "rope_spelling", f"{what}: readers of version 4 take {DEFAULT_THETA:g}", where, both)
    if theta is not None and old is not None and theta != old:
        what = f"rope_theta is {old:g}, and {theta:g} in rope_parameters"
        yield Finding(
            "error", "rope_differs", what, where, "keep the one that the model was trained with, in both places"
        )
    kind = rope.get("rope_type", "default") if isinstance(rope, dict) else "default"
    if kind != "default" and not inner.get("rope_scaling"):
        what = f"the {kind} scaling of positions stands only in rope_parameters: readers of transformers 4 leave it out"
        yield Finding("warning", "rope_spelling", what, where, both)
    if (config.get("dtype") is None) != (config.get("torch_dtype") is None):
        name = "dtype" if config.get("dtype") is not None else "torch_dtype"
        what = f"only {name} is written: readers of the other version of transformers load another precision"
        yield Finding("note", "dtype_spelling", what, where, both)


def look_at_dtype(config: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path) -> Iterator[Finding]:
    """Whether the weights are in the number format that the config names."""
    said = str(config.get("dtype") or config.get("torch_dtype") or "")
    said = SHORT.get(said, said)
    sizes: dict[str, int] = {}
    for tensor in tensors.values():
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.num_bytes
    most = max(sizes, key=lambda name: sizes[name], default="")
    if said and most and said != most and "float" in most and not most.startswith("float8"):
        what = f"the weights are {most}, and the config says {said}: readers that go by it convert them"
        yield Finding("note", "other_dtype", what, str(folder / CONFIG), f"set dtype and torch_dtype to {most}")


def look_at_head(config: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path) -> Iterator[Finding]:
    """Whether the output layer is what the config says: its own, or the embeddings again."""
    embeddings = next((tensors[name] for name in EMBEDDINGS if name in tensors), None)
    head = tensors.get(HEAD)
    if embeddings is None:
        return
    tied = bool(config.get("tie_word_embeddings", False))
    where = str(folder)
    if head is None and not tied and "tie_word_embeddings" in config:
        what = "there is no lm_head.weight, and the config says tie_word_embeddings: false"
        yield Finding("error", "no_head", f"{what}: it would be drawn at random", where, "copy the weights again")
    if head is None or not tied:
        return
    if head.shape != embeddings.shape or not _equal(head, embeddings):
        what = "lm_head.weight differs from the embeddings, and the config says that they are one (tie_word_embeddings)"
        fix = "set tie_word_embeddings: false, if the head was trained; else remove lm_head.weight"
        yield Finding("error", "tied_differ", what, where, fix)
    else:
        yield Finding("note", "tied_twice", "lm_head.weight is a second copy of the embeddings", where, "harmless")


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and all((one.read(box) == other.read(box)).all() for box in one.blocks())


def look_at_tokenizer(config: Mapping[str, Any], tensors: Mapping[str, Tensor], folder: Path) -> Iterator[Finding]:
    """The tokenizer against the embeddings, and what a server needs to end a turn."""
    where = str(folder / "tokenizer.json")
    if not (folder / "tokenizer.json").is_file():
        others = [name for name in ("tokenizer.model", "vocab.json", "vocab.txt") if (folder / name).is_file()]
        level = "warning" if others else "error"
        what = f"there is no tokenizer.json{', only ' + others[0] if others else ''}"
        yield Finding(level, "no_tokenizer", what, where, "copy it from the base model")  # type: ignore[arg-type]
        return
    try:
        tokenizer = Tokenizer.load(folder)
    except OutliveError as error:
        yield Finding("error", "no_tokenizer", error.what, where, error.fix or "")
        return
    rows = next((tensors[name].shape[0] for name in EMBEDDINGS if name in tensors and tensors[name].shape), None)
    said = (config.get("text_config") or config).get("vocab_size")
    if rows is not None and tokenizer.vocab_size > rows:
        what = f"the tokenizer has {tokenizer.vocab_size:,} tokens, and the embeddings {rows:,} rows"
        yield Finding("error", "vocabulary", what, where, "resize the embeddings, or use the model's own tokenizer")
    if rows is not None and isinstance(said, int) and said != rows:
        what = f"the config says vocab_size {said:,}, and the embeddings have {rows:,} rows"
        yield Finding("error", "vocabulary", what, str(folder / CONFIG), f"set vocab_size to {rows}")
    yield from _special(config, rows, folder)
    yield from _generation(tokenizer, folder)


def _special(config: Mapping[str, Any], rows: int | None, folder: Path) -> Iterator[Finding]:
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = config.get(key)
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int) and rows is not None and not -1 <= number < rows:
                what = f"{key} is {number}, and there are {rows:,} tokens"
                yield Finding("error", "special_id", what, str(folder / CONFIG), "name an id that exists")


def _generation(tokenizer: Tokenizer, folder: Path) -> Iterator[Finding]:
    if tokenizer.chat_template is None:
        what = "there is no chat template: a server falls back to another one, or refuses chats"
        yield Finding("warning", "no_template", what, str(folder), "copy chat_template.jinja from where it was trained")
    where = folder / "generation_config.json"
    if not where.is_file():
        what = "there is no generation_config.json: servers stop at the config's eos_token_id only"
        yield Finding("warning", "no_generation_config", what, str(where), "copy it from the base model")
        return
    try:
        ends = read_json(where).get("eos_token_id")
    except OutliveError as error:
        yield Finding("error", "no_generation_config", error.what, str(where), error.fix or "")
        return
    known = {number for number in (ends if isinstance(ends, list) else [ends]) if isinstance(number, int)}
    if tokenizer.eos_id is not None and tokenizer.eos_id not in known:
        what = f"generation stops at {sorted(known) or 'nothing'}, and the tokenizer's end is {tokenizer.eos_id}"
        yield Finding("warning", "eos_differs", what, str(where), "name the token that ends a turn as eos_token_id")
