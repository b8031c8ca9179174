"""A checkpoint that was opened: its tensors, of whatever format, and what stands beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive.checkpoint.tensors.tensor import Tensor


@dataclass
class Model:
    """format: huggingface, dcp, gguf, peft or pt. tensors: under the names of the format. config: the content of a
    Hugging Face config.json, {} where the format has none. metadata: what else the format keeps."""

    folder: Path
    format: str
    tensors: dict[str, Tensor]
    config: dict[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
