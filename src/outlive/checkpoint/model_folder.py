"""A model folder written from tensors that may be computed on the way: config, weights, tokenizer, template."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outlive.checkpoint.building import Building, building_checkpoint
from outlive.checkpoint.resumed import resumed_checkpoint
from outlive.checkpoint.spellings import both_spellings
from outlive.checkpoint.tensors.dtypes import DTYPES, SHORT
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.write import MAX_SHARD_BYTES, TOKENIZER_FILES, Dtype, write_shards

_GENERATION = "generation_config.json"
_OTHERS = (
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json", "tekken.json",
    "spiece.model",
)  # fmt: skip


def write_model_folder(
    final: Path,
    tensors: Mapping[str, Tensor],
    config: Mapping[str, Any],
    *,
    sources: Sequence[Path],
    about: Mapping[str, Any],
    key: str | None = None,
    dtype: Dtype | None = None,
    texts: Mapping[str, str] | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write the folder `final`: it appears whole, with its manifest, or not at all. `texts` stand for files of
    `sources`. `key`: what it is made of (`key_of`): files that a process with the same key had finished are kept.

    Each tensor is written in its own dtype, or the floating ones in `dtype`. Tokenizer and template are copied from the
    first of `sources` that has a tokenizer.json, the generation config from the first that has one, code that the
    config names and settings of processors from the last. Raises InputError where `final` exists, WorkError where the
    disk refuses and where a weight is not finite.
    """
    with resumed_checkpoint(final, about, key) if key else building_checkpoint(final, about) as building:
        named = both_spellings(dict(config), SHORT[dtype] if dtype else _dtype(tensors))
        copy_beside(building, named, sources, texts or {})
        finite = [name for name, tensor in tensors.items() if DTYPES[tensor.dtype].is_float]
        write_shards(building, "model", tensors, dtype, max_shard_bytes, finite)


def copy_beside(
    building: Building, config: Mapping[str, Any], sources: Sequence[Path], texts: Mapping[str, str]
) -> None:
    """Write config.json and `texts`, and copy what else belongs beside weights: see `write_model_folder`."""
    building.text("config.json", json.dumps(config, indent=2, ensure_ascii=False))
    for name, text in texts.items():
        building.text(name, text)
    for name, source in _copied(sources, bool(config.get("auto_map"))).items():
        if name not in texts:
            building.copy(name, source)


def _dtype(tensors: Mapping[str, Tensor]) -> str | None:
    """The floating dtype that takes most of the elements."""
    sizes: Counter[str] = Counter()
    for tensor in tensors.values():
        if DTYPES[tensor.dtype].is_float:
            sizes[tensor.dtype] += tensor.size
    return sizes.most_common(1)[0][0] if sizes else None


def _copied(sources: Sequence[Path], with_code: bool) -> dict[str, Path]:
    tokenizer = next((source for source in sources if (source / "tokenizer.json").is_file()), sources[-1])
    generation = next((source for source in sources if (source / _GENERATION).is_file()), sources[-1])
    last = sources[-1]
    wanted = {name: tokenizer / name for name in TOKENIZER_FILES if name != _GENERATION}
    wanted[_GENERATION] = generation / _GENERATION
    wanted |= {name: last / name for name in _OTHERS}
    wanted |= {path.name: path for path in sorted(last.glob("*.py")) if with_code}
    return {name: path for name, path in wanted.items() if path.is_file()}
