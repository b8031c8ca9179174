"""Exports as files of rows: Hugging Face `datasets`, Parquet, JSON Lines. `data/export.py` lists them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from outlive.data.export_manifest import write_json
from outlive.data.export_rows import Counts, Outgoing, Piece, arrow_batches, arrow_schema, refuse_taken
from outlive.data.store_writer import FILE_TOKENS
from outlive.run.errors import InputError
from outlive.run.files import hash_file, hash_json, writable
from outlive.text.tokenizer import Tokenizer

_LINE = ("input_ids", "labels", "weights", "sample_id", "text", "group", "role", "prefix", "pack", "part")


def write_hf(outgoing: Outgoing, folder: Path, side: str, tokenizer: Tokenizer) -> Counts:
    """FOLDER/SIDE as `datasets.load_from_disk` opens it: Arrow streams, what they hold, and which they are."""
    schema, counts, place = arrow_schema(outgoing), Counts(), folder / side
    place.mkdir()
    batches = arrow_batches(outgoing, schema, counts)
    made = [_write_stream(place / "data-00000.arrow", schema, batches)]  # one file at least, with the schema
    for batch in batches:
        path = place / f"data-{len(made):05d}.arrow"
        made.append(_write_stream(path, schema, chain([batch], batches)))
    paths = [path.rename(path.with_name(f"{path.stem}-of-{len(made):05d}.arrow")) for path in made]
    features = {field.name: _feature(field.type) for field in schema}
    about = {"citation": "", "description": "", "homepage": "", "license": "", "features": features}
    write_json(place / "dataset_info.json", about)
    state: dict[str, Any] = {
        "_data_files": [{"filename": path.name} for path in paths],
        "_fingerprint": hash_json([hash_file(path) for path in paths]),
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": side,
    }
    write_json(place / "state.json", state)
    return counts


def finish_hf(folder: Path, sides: list[str]) -> None:
    """What makes the sides one DatasetDict."""
    write_json(folder / "dataset_dict.json", {"splits": sides})


def write_parquet(outgoing: Outgoing, folder: Path, side: str, tokenizer: Tokenizer) -> Counts:
    """FOLDER/SIDE.parquet, one row group a record batch."""
    schema, counts = arrow_schema(outgoing), Counts()
    with pq.ParquetWriter(folder / f"{side}.parquet", schema, compression="zstd") as writer:
        for batch in arrow_batches(outgoing, schema, counts):
            writer.write_batch(batch, row_group_size=batch.num_rows)
    return counts


def write_jsonl(outgoing: Outgoing, folder: Path, side: str, tokenizer: Tokenizer) -> Counts:
    """FOLDER/SIDE.jsonl: a sample a line; with a plan, a segment a line, which names its pack."""
    counts = Counts()
    refuse_taken(outgoing.columns, _LINE)
    with open(folder / f"{side}.jsonl", "wb") as file:
        for pack, piece in outgoing.pieces():
            line = _line(piece, tokenizer)
            if outgoing.plan is not None:
                line |= {"pack": pack, "part": piece.part}
            file.write(writable(json.dumps(line, ensure_ascii=False)).encode() + b"\n")
            counts.add([piece])
    return counts


def _write_stream(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Path:
    """One Arrow stream of at most about FILE_TOKENS tokens; the batches after them are left."""
    num_tokens = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            num_tokens += len(batch.column("input_ids").values)
            if num_tokens >= FILE_TOKENS:
                break
    return path


def _feature(kind: pa.DataType) -> dict[str, Any]:
    # datasets from 4 on writes "List" for "Sequence", and reads both; older ones know "Sequence" alone.
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "Sequence"}
    return {"dtype": "float32" if kind == pa.float32() else str(kind), "_type": "Value"}


def _line(piece: Piece, tokenizer: Tokenizer) -> dict[str, Any]:
    ids = piece.tokens.tolist()
    grouped = {"group": piece.group, "role": piece.role, "prefix": piece.prefix} if piece.grouped else {}
    return {
        "input_ids": ids,
        "labels": piece.labels.tolist(),
        "weights": _listed(piece.weights),
        "sample_id": piece.sample_id,
        "text": tokenizer.decode(ids),
        **grouped,
        **{name: _numbers(value, name, piece.sample_id) for name, value in piece.columns.items()},
    }


def _numbers(value: Any, name: str, sample_id: str) -> Any:
    if not np.isfinite(value).all():
        fix = "--export hf or parquet"
        raise InputError(f"JSON has no NaN and no infinities, and column `{name}` holds one", where=sample_id, fix=fix)
    return _listed(value) if isinstance(value, np.ndarray) else _number(value)


def _listed(values: npt.NDArray[Any]) -> list[int | float]:
    if np.isin(values, (0, 1)).all():  # most often, and quicker so
        return [int(value) for value in values.tolist()]
    return [_number(value) for value in values]


def _number(value: Any) -> int | float:
    """The shortest number that is the same in float32; whole ones without a point."""
    return int(value) if value == int(value) else float(str(np.float32(value)))
