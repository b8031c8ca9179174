"""Whether a model folder's weight files are all there and whole: seen from names, sizes and headers, before loading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from outlive.run.errors import InputError

_SINGLE = ("model.safetensors", "pytorch_model.bin")
_AGAIN = "get the folder again from where the model is from"
_MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors library


def check_weights(folder: Path, name: str) -> None:
    """Raise InputError where transformers would find no weights in `folder`, not all of them, or a file cut off."""
    for single in _SINGLE:
        if (folder / single).is_file():
            return _check_file(folder / single)
        index = folder / f"{single}.index.json"
        if index.is_file():
            return _check_shards(folder, index)
    others = sorted(path.name for path in folder.glob("*.safetensors"))
    if others:
        raise InputError(
            f"the folder holds weights, but no index that names them: {', '.join(others[:3])}",
            where=str(folder),
            expected="model.safetensors, or model.safetensors.index.json and the files that it names",
            fix=_AGAIN,
        )
    raise InputError(
        "the folder holds no weights: it has neither model.safetensors nor an index of several",
        where=name,
        fix=f"{_AGAIN}; for new, random weights set model: {{init: {{config: …, tokenizer: …}}}}",
    )


def _check_shards(folder: Path, index: Path) -> None:
    try:
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"the index of the weights can't be read: {type(error).__name__}: {error}"
        raise InputError(what, where=str(index), fix=_AGAIN) from None
    missing = [shard for shard in shards if not (folder / str(shard)).is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise InputError(
            f"{len(missing)} of {len(shards)} weight files are missing: {', '.join(map(str, missing[:3]))}{more}",
            where=str(index),
            fix=_AGAIN,
        )
    for shard in shards:
        _check_file(folder / str(shard))


def _check_file(path: Path) -> None:
    """Compare a safetensors file's size with what its header says; other formats are left to whoever loads them."""
    if path.suffix != ".safetensors":
        return
    size = path.stat().st_size
    with path.open("rb") as file:
        begin = file.read(8)
        if begin == b"version ":
            raise InputError(
                "this is a pointer of Git LFS, not the weights themselves", where=str(path), fix="git lfs pull"
            )
        length = int.from_bytes(begin, "little")
        text = file.read(length) if len(begin) == 8 and length <= min(_MAX_HEADER, size) else b""
    try:
        tensors: dict[str, Any] = json.loads(text)
        expected = 8 + length + max(
            (about["data_offsets"][1] for name, about in tensors.items() if name != "__metadata__"), default=0
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise InputError(
            f"a weight file is damaged: its {size:,} bytes do not begin with a safetensors header",
            where=str(path),
            fix=_AGAIN,
        ) from None
    if size != expected:
        how = "cut off" if size < expected else "damaged"
        what = f"a weight file is {how}: it has {size:,} bytes, and its header says {expected:,}"
        raise InputError(what, where=str(path), fix=_AGAIN)
