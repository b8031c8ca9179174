"""The safetensors format, written tensor by tensor: a length, a JSON header, then the bytes of each tensor."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from outlive.checkpoint.arrays import chunks, code, dtype_of, num_bytes, rank
from outlive.run.errors import WorkError
from outlive.run.files import HashedFile


@dataclass(frozen=True)
class Layout:
    """How a file will look: its header (with the length in front), the tensors' order, and its whole size in bytes."""

    header: bytes
    order: tuple[str, ...]
    size: int


def layout(tensors: Mapping[str, Any], cast: str | None, metadata: Mapping[str, str]) -> Layout:
    """The layout of a file of `tensors`: wide dtypes first, then by name, as the format's own library orders them.

    Format: https://huggingface.co/docs/safetensors. The header is padded to a multiple of 8: the data is aligned.
    """
    dtypes = {name: dtype_of(tensor, cast) for name, tensor in tensors.items()}
    order = tuple(sorted(tensors, key=lambda name: (rank(dtypes[name]), name)))
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in order:
        start, end = end, end + num_bytes(tensors[name], cast)
        entries[name] = {
            "dtype": code(dtypes[name]), "shape": list(tensors[name].shape), "data_offsets": [start, end],
        }  # fmt: skip
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return Layout(len(text).to_bytes(8, "little") + text, order, 8 + len(text) + end)


def write_tensors(
    file: HashedFile, plan: Layout, tensors: Mapping[str, Any], cast: str | None, finite: Collection[str]
) -> None:
    """Write the file of `plan`. Raises WorkError where a tensor named in `finite` is not finite, as it is written."""
    file.write(plan.header)
    for name in plan.order:
        for piece, is_finite in chunks(tensors[name], cast, check=name in finite):
            if not is_finite:
                what = f"{name} holds NaN or infinity as {dtype_of(tensors[name], cast)}: nothing is saved"
                fix = "set export.dtype to bf16 or fp32, which hold larger numbers than fp16; else lower optimizer.lr"
                raise WorkError(what, fix=fix)
            file.write(piece)
