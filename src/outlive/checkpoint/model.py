"""A checkpoint that is opened: which tensors it has, and what it says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive.checkpoint.tensors.tensor import Tensor


@dataclass(frozen=True)
class Model:
    """`tensors`: by the names that they have in the format ("huggingface", "dcp", "gguf", "peft", "pt").

    `config`: the content of config.json, {} where the format has none. `metadata`: what else the format says. `nested`:
    the state dict of one file of torch.save as it is in there, with our tensors. `files`: those that hold the tensors,
    where not all of the folder is this checkpoint.
    """

    folder: Path
    format: str
    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    nested: Mapping[Any, Any] | None = None
    files: tuple[Path, ...] = ()
