"""GGUF files, whole or split: header, tensors, and what a server needs to end a turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outlive.checkpoint.families.table import family_of
from outlive.checkpoint.formats.gguf import open_gguf
from outlive.checkpoint.formats.gguf_config import config_of
from outlive.checkpoint.model import Model
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.verify.checkpoints import same_files
from outlive.checkpoint.verify.expected import look_at_names
from outlive.checkpoint.verify.files import AGAIN, compare_with_manifest
from outlive.checkpoint.verify.finding import Finding, some
from outlive.checkpoint.verify.values import look_at_values
from outlive.run.errors import OutliveError

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_EMBEDDINGS = "token_embd.weight"


def verify_gguf(path: Path) -> Iterator[Finding]:
    """A GGUF file, all parts of a split one, or the one in a folder. Reads every byte once."""
    folder = path if path.is_dir() else path.parent
    named = sorted(folder.glob("*.gguf")) if path.is_dir() else [path]
    files = sorted({part for one in named for part in _parts(one)})
    for finding in compare_with_manifest(folder):
        mine = finding.where in map(str, files) or finding.id in ("no_manifest", "damaged_manifest")
        if path.is_dir() or mine:
            yield finding
    absent = [one.name for one in files if not one.is_file()]
    if absent:
        yield Finding("error", "missing_file", f"parts that are not there: {some(absent)}", str(folder), AGAIN)
        return
    yield from same_files(files)
    try:
        model = open_gguf(path)
    except OutliveError as error:
        yield Finding("error", "damaged_file", error.what, error.where or str(path), error.fix or AGAIN)
        return
    yield from _tensors(model, path)
    yield from _tokenizer(model.metadata, model.tensors, str(path))
    yield from look_at_values(model.tensors, dict.fromkeys(model.tensors, str(path)))


def _parts(path: Path) -> list[Path]:
    part = _PART.fullmatch(path.name)
    if part is None or not 0 < int(part[3]) < 10_000:
        return [path]
    return [path.with_name(f"{part[1]}-{one:05d}-of-{part[3]}.gguf") for one in range(1, int(part[3]) + 1)]


def _tensors(model: Model, path: Path) -> Iterator[Finding]:
    try:
        config = config_of(model.metadata, model.tensors, str(path))
        named = family_of(config).from_gguf(model.tensors, config)
    except OutliveError as error:
        fix = error.fix or "the tensors are not compared with the header"
        broken = "general.architecture" not in model.metadata
        level, kind = ("error", "no_config") if broken else ("warning", "no_table")
        yield Finding(level, kind, f"the header does not say which model it is: {error.what}", str(path), fix)  # type: ignore[arg-type]
        return
    yield from look_at_names(config, named, path)


def _tokenizer(kv: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str) -> Iterator[Finding]:
    tokens = kv.get("tokenizer.ggml.tokens")
    rows = tensors[_EMBEDDINGS].shape[0] if _EMBEDDINGS in tensors and tensors[_EMBEDDINGS].shape else None
    again = "convert it again from the model's own folder"
    if not isinstance(tokens, list) or not tokens:
        yield Finding("error", "no_tokenizer", "the header has no tokenizer.ggml.tokens", where, again)
        return
    if rows is not None and len(tokens) != rows:
        what = f"the tokenizer has {len(tokens):,} tokens, and the embeddings {rows:,} rows"
        yield Finding("error", "vocabulary", what, where, again)
    if kv.get("tokenizer.ggml.model") == "gpt2" and not kv.get("tokenizer.ggml.pre"):
        what = "tokenizer.ggml.pre is not there: texts are cut by other rules than the model's, in silence"
        yield Finding("warning", "no_pre", what, where, again)
    for key in ("bos", "eos", "padding", "unknown"):
        number = kv.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(number, int) and not 0 <= number < len(tokens):
            what = f"tokenizer.ggml.{key}_token_id is {number}, and there are {len(tokens):,} tokens"
            yield Finding("error", "special_id", what, where, again)
    if kv.get("tokenizer.ggml.eos_token_id") is None:
        what = "tokenizer.ggml.eos_token_id is not there: no turn has an end"
        yield Finding("warning", "eos_differs", what, where, again)
    if not kv.get("tokenizer.chat_template"):
        what = "there is no chat template: a server falls back to another one, or refuses chats"
        yield Finding("warning", "no_template", what, where, again)
