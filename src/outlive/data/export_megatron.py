"""Exports as Megatron's indexed data sets, with what these have no place for beside them: docs/export.md.

The form of SIDE.idx, all little endian: the magic number, uint64 version 1, uint8 code of the dtype, uint64 number of
sequences S, uint64 number of document bounds D, int32 lengths [S], int64 places [S] in bytes, int64 bounds [D], from 0
to S. SIDE.bin holds the tokens end to end, without a header.
"""

from __future__ import annotations

import struct
from array import array
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

from outlive.data.export_manifest import files_of, sources_of, write_json
from outlive.data.export_rows import Counts, Outgoing, Piece
from outlive.run.errors import InputError
from outlive.text.tokenizer import Tokenizer

MAGIC = b"MMIDIDX\x00\x00"
SMALL_VOCABULARY = 65500  # below it Megatron takes two bytes a token
_CODES = {"uint16": 8, "int32": 4}
_BUFFER = 1 << 20


def write_megatron(outgoing: Outgoing, folder: Path, side: str, tokenizer: Tokenizer) -> Counts:
    """FOLDER/SIDE.bin and .idx, one document a sample; .mask, a byte a token: 1 where it is a target; .weight, a
    float32 a token, where there are real weights; .json, what they are.

    Raises InputError for groups and for columns of a method.
    """
    for name in outgoing.columns:
        raise _lacks(f"columns of a method: `{name}`", f"method.columns: {name}")
    size = max(tokenizer.vocab_size, *(store.max_token() + 1 for store in outgoing.mixture.stores))
    dtype = "uint16" if size < SMALL_VOCABULARY else "int32"
    endings = ["bin", "mask", *(["weight"] if outgoing.has_weights else [])]
    counts, lengths = Counts(), array("i")
    with ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / f"{side}.{name}", "wb", _BUFFER)) for name in endings}
        for _, piece in outgoing.pieces():
            _refuse_group(piece)
            files["bin"].write(piece.tokens.astype(np.dtype(dtype).newbyteorder("<")).tobytes())
            files["mask"].write((piece.weights > 0).astype(np.uint8).tobytes())
            if "weight" in files:
                files["weight"].write(piece.weights.astype("<f4").tobytes())
            lengths.append(len(piece.tokens))
            counts.add([piece])
    _write_index(folder / f"{side}.idx", np.array(lengths, np.int32), dtype)
    about = {
        "tokenizer": str(tokenizer.folder),
        "tokenizer_hash": tokenizer.hash,
        "vocab_size": size,
        "eos_id": tokenizer.eos_id,
        "dtype": dtype,
        "documents": counts.samples,
        "tokens": counts.tokens,
        "targets": counts.targets,
        "sources": sources_of(outgoing.mixture),
        "files": files_of(folder, [folder / f"{side}.{name}" for name in ("idx", *endings)]),
    }
    write_json(folder / f"{side}.json", about)
    return counts


def _write_index(path: Path, lengths: npt.NDArray[np.int32], dtype: str) -> None:
    places = (np.cumsum(lengths, dtype=np.int64) - lengths) * np.dtype(dtype).itemsize
    bounds = np.arange(len(lengths) + 1, dtype=np.int64)
    with open(path, "wb") as file:
        file.write(MAGIC + struct.pack("<QBQQ", 1, _CODES[dtype], len(lengths), len(bounds)))
        for values, form in ((lengths, "<i4"), (places, "<i8"), (bounds, "<i8")):
            file.write(values.astype(form).tobytes())


def _refuse_group(piece: Piece) -> None:
    if piece.grouped:
        raise _lacks("samples that belong together", f"{piece.sample_id}, role {piece.role or 'none'}")


def _lacks(what: str, where: str) -> InputError:
    return InputError(f"Megatron's format has no place for {what}", where=where, fix="--export hf, parquet or jsonl")
