"""Write a model or an adapter as a folder that other tools open: weights, config, tokenizer, template."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from outlive.checkpoint.arrays import num_bytes
from outlive.checkpoint.building import Building, building_checkpoint
from outlive.checkpoint.export import Export
from outlive.checkpoint.spellings import both_spellings
from outlive.checkpoint.tensors.dtypes import SHORT
from outlive.run.errors import InputError, WorkError

Dtype = Literal["bf16", "fp32", "fp16"]
MAX_SHARD_BYTES = 5 * 10**9
# Files that turn text into tokens; copied byte for byte, since a save through transformers changes them.
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "tokenizer.model", "chat_template.jinja", "generation_config.json",
)  # fmt: skip


def save(
    model: Any,
    folder: Path | str,
    *,
    tokenizer: Path | str,
    chat_template: str | None = None,
    dtype: Dtype = "bf16",
    base: Mapping[str, str] | None = None,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Save `model`, a CausalModel, as the checkpoint `folder`: model/ or adapter/, and manifest.json last.

    A model's weights are written in `dtype`, an adapter's in their own. `tokenizer` is the folder whose tokenizer goes
    along; `chat_template` replaces its template; `base` names the base model of an adapter and its content hash, to
    which the adapter is bound. The folder appears whole or not at all. Returns the folder to serve. Raises InputError
    where it exists, WorkError where the disk says no and where a weight is not finite, or not in `dtype`.
    """
    if not callable(getattr(model, "export", None)):
        raise InputError(
            f"a {type(model).__name__} can't be saved as it is",
            where="checkpoint.save",
            fix="give the CausalModel that outlive.modeling.load returns, not what is inside it",
        )
    folder, export = Path(folder), model.export()
    with building_checkpoint(folder, {"kind": export.kind, **(about or {})}) as building:
        part = write_export(
            building, export, tokenizer=Path(tokenizer), chat_template=chat_template, dtype=dtype, base=base
        )
    return folder / part


def write_export(
    building: Building,
    export: Export,
    *,
    tokenizer: Path,
    chat_template: str | None,
    dtype: Dtype,
    base: Mapping[str, str] | None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> str:
    """Write `export` as model/ or adapter/ of the checkpoint; return that name. Arguments and errors as of `save`.

    Weights that take more than `max_shard_bytes` are split into files of at most that size (a larger tensor has a file
    of its own), with the index that names the file of each tensor.
    """
    if not (tokenizer / "tokenizer.json").is_file():
        raise WorkError(
            "the tokenizer is not there any more, and a model without one is of no use",
            where=str(tokenizer),
            fix="put the folder back where it was",
        )
    part = export.kind
    copied = [name for name in TOKENIZER_FILES if (tokenizer / name).is_file()]
    texts = dict(export.texts)
    if part == "model":
        texts["config.json"] = _changed(texts["config.json"], lambda config: both_spellings(config, SHORT[dtype]))
        write_shards(building, "model/model", export.tensors, dtype, max_shard_bytes, _weights(export))
    else:
        named = {"base_model_name_or_path": (base or {}).get("model")}
        texts["adapter_config.json"] = _changed(texts["adapter_config.json"], lambda config: {**config, **named})
        texts["base.json"] = json.dumps(dict(base or {}), indent=1)
        # In the precision that it was trained in: bf16 would round the training away (and it is small anyway).
        building.tensors("adapter/adapter_model.safetensors", export.tensors, finite=_weights(export))
    if chat_template is not None:
        texts["chat_template.jinja"] = chat_template
        copied = [name for name in copied if name != "chat_template.jinja"]
    for name in copied:
        building.copy(f"{part}/{name}", tokenizer / name)
    for name, text in texts.items():
        if name not in copied:
            building.text(f"{part}/{name}", text)
    return part


def write_shards(
    building: Building, stem: str, tensors: Mapping[str, Any], dtype: str | None, most: int, finite: Collection[str]
) -> None:
    """Write `stem`.safetensors, or files of at most `most` bytes with the index that names the file of each tensor."""
    shards = _shards(tensors, dtype, most)
    if len(shards) == 1:
        building.tensors(f"{stem}.safetensors", tensors, dtype=dtype, finite=finite)
        return
    places: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        file = f"{stem}-{number:05d}-of-{len(shards):05d}.safetensors"
        building.tensors(file, {name: tensors[name] for name in names}, dtype=dtype, finite=finite)
        places |= dict.fromkeys(names, file.rpartition("/")[2])
    total = sum(num_bytes(tensor, dtype) for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    building.text(f"{stem}.safetensors.index.json", json.dumps(index, indent=2))


def _shards(tensors: Mapping[str, Any], dtype: str | None, most: int) -> list[list[str]]:
    """Names of the tensors of each file, in the order given; at least one file."""
    shards: list[list[str]] = [[]]
    used = 0
    for name, tensor in tensors.items():
        size = num_bytes(tensor, dtype)
        if shards[-1] and used + size > most:
            shards.append([])
            used = 0
        shards[-1].append(name)
        used += size
    return shards


def _weights(export: Export) -> set[str]:
    return set(export.tensors) - export.buffers


def _changed(text: str, change: Any) -> str:
    return json.dumps(change(json.loads(text)), indent=2, ensure_ascii=False)
