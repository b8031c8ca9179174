"""Arrow and Parquet files as a whole: what was cut, or put end to end, has fewer rows than it seems to its reader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outlive.run.errors import InputError

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of a stream
_MAGIC, _BEGIN = b"ARROW1", 8  # of an Arrow file, and where the stream in it begins
_PADDING = 64  # bytes that may lie between the stream and the footer of an Arrow file


def arrow_batches(path: Path, kind: str) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The streams of a file, each as its schema and its record batches; of an Arrow file the one that is in it.

    Raises InputError, EOFError or ArrowInvalid for a stream that was cut, and for Arrow files put end to end.
    """
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        if kind == "arrow_file":
            _check_file(source, path)
            reader = pa.ipc.open_file(source)
            yield reader.schema, map(reader.get_batch, range(reader.num_record_batches))
            return
        for begin in _streams(source, path):
            source.seek(begin)
            reader = pa.ipc.open_stream(source)
            yield reader.schema, iter(reader)


def _streams(source: Any, path: Path) -> list[int]:
    """Where each of the streams begins that a file holds end to end."""
    begins, size = [0], source.size()
    while (end := _stream_end(source, begins[-1], size)) is not None:
        if end == size:
            return begins
        begins.append(end)
    raise InputError(
        "the Arrow stream has no end: it was cut, or its writer was stopped, and rows may be missing",
        where=str(path),
        fix="get the file again from where it comes from, or have it written to the end",
    )


def _stream_end(source: Any, begin: int, size: int) -> int | None:
    """The place after a stream's mark of its end; None where the file ends without one. Bodies are passed over."""
    import pyarrow as pa

    place = begin
    while place < size:
        source.seek(place)
        if source.read(len(_END)) == _END:
            return int(source.tell())
        source.seek(place)
        pa.ipc.read_message(source)
        place = source.tell()
    return None


def _check_file(source: Any, path: Path) -> None:
    """Raise InputError where an Arrow file holds more before its footer than the footer knows of."""
    size = source.size()
    source.seek(max(size - 10, 0))
    footer_size, magic = int.from_bytes(source.read(4), "little"), source.read(6)
    footer = size - 10 - footer_size
    if magic != _MAGIC or footer < _BEGIN:
        return  # its reader says what is wrong
    end = _stream_end(source, _BEGIN, footer)
    if end is not None and footer - end > _PADDING:
        raise _end_to_end("Arrow", path)


def check_parquet(path: Path) -> None:
    """Raise InputError where a Parquet file is several, end to end: its footer knows of the last one's rows alone."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as opened, path.open("rb") as file:
        meta = opened.metadata
        ends = [_chunk_end(meta.row_group(group).column(column))
                for group in range(meta.num_row_groups) for column in range(meta.num_columns)]  # fmt: skip
        file.seek(max(ends, default=4))
        before = b""
        while block := file.read(1 << 20):  # indices and the footer
            if re.search(rb"PAR1PAR1", before + block):
                raise _end_to_end("Parquet", path)
            before = block[-7:]


def _chunk_end(column: Any) -> int:
    begins = [column.data_page_offset, column.dictionary_page_offset]
    return min(int(place) for place in begins if place) + int(column.total_compressed_size)


def _end_to_end(kind: str, path: Path) -> InputError:
    return InputError(
        f"several {kind} files are put end to end in this one, and only some of their rows can be read",
        where=str(path),
        fix="name the files one by one, or their folder",
    )
