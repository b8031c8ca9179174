"""An adapter's folder as PEFT writes it, with the tokenizer and template that were beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outlive.checkpoint.adapters.adapter import NAME as WEIGHTS
from outlive.checkpoint.adapters.binding import NAME as BASE
from outlive.checkpoint.adapters.names import PREFIX
from outlive.checkpoint.adapters.settings import NAME as CONFIG
from outlive.checkpoint.resumed import resumed_checkpoint
from outlive.checkpoint.write import TOKENIZER_FILES, Dtype

_GENERATION = "generation_config.json"


def write_adapter(
    final: Path,
    tensors: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    sources: Sequence[Path],
    about: Mapping[str, Any],
    key: str,
    base: Mapping[str, str] | None = None,
    dtype: Dtype | None = None,
) -> None:
    """Write adapter_config.json and adapter_model.safetensors into `final`, which appears whole or not at all.

    tensors: of ours or of numpy, by PEFT's names without "base_model.model."; each is written in its own dtype, or
    in `dtype`, and has to be finite. key: what they are made of (`key_of`). base: its name and content hash, to which
    the adapter is bound; else a base.json of `sources` goes along. Tokenizer and template are those of the first of
    `sources` that has them. Raises InputError where `final` exists, WorkError where the disk refuses and where a number
    is not finite.
    """
    named = {PREFIX + name: tensor for name, tensor in tensors.items()}
    with resumed_checkpoint(final, {"kind": "adapter", **about}, key) as building:
        building.text(CONFIG, json.dumps(dict(config), indent=2, sort_keys=True, ensure_ascii=False))
        building.tensors(WEIGHTS, named, dtype=dtype, finite=named.keys())
        copied = {}
        if (texts := next((one for one in sources if (one / "tokenizer.json").is_file()), None)) is not None:
            wanted = [name for name in TOKENIZER_FILES if name != _GENERATION]
            copied = {name: texts / name for name in wanted if (texts / name).is_file()}
        if base is not None:
            building.text(BASE, json.dumps(dict(base), indent=1))
        elif (bound := next((one / BASE for one in sources if (one / BASE).is_file()), None)) is not None:
            copied[BASE] = bound
        for name, source in copied.items():
            building.copy(name, source)
