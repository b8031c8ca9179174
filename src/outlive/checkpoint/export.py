"""What is to be written as model/ or adapter/: plain data, made by whoever knows the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Export:
    """A model or an adapter, ready to be written.

    `texts`: file name → content: config.json, generation_config.json, adapter_config.json, and the code of a model that
    brings its own. `tensors`: by the name that each gets in the file; torch tensors on any device, or numpy arrays;
    they are not changed. `buffers`: the names of those that are no weights, and may hold infinities.
    """

    kind: Literal["model", "adapter"]
    texts: Mapping[str, str]
    tensors: Mapping[str, Any]
    buffers: frozenset[str] = frozenset()
