"""Tensors in files: of one piece or many, each with its place in the whole."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from outlive.checkpoint.remedies import OWN_CONFIG
from outlive.checkpoint.tensors.dtypes import DTYPES, Array
from outlive.checkpoint.tensors.tensor import Box, Tensor, common, extent, read_row_major, slices, within
from outlive.run.errors import InputError
from outlive.run.files import disk_error

_close = os.close  # files are also closed when they are forgotten, at which time `os` may be gone
_MOST_OPEN = 128  # a model in more files than a process may hold open (1,024 as a rule) is read all the same
_opened: deque[weakref.ref[File]] = deque()  # in the order of their opening; may name files that are closed by now


class File:
    """A file that is read at given places. It is opened at the first of them; OutliveError where it can't be read.

    At most `_MOST_OPEN` are open at once: the one opened first is closed for another, and opened again when it is read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._identity: tuple[int, ...] | None = None
        self._lock = threading.Lock()  # held while the descriptor is used: another thread may want to close it

    @property
    def size(self) -> int:
        """Bytes of the file."""
        with self._lock:
            return os.fstat(self._open()).st_size

    def read(self, offset: int, length: int) -> Array:
        """Bytes, uint8 [length]. InputError where the file ends before."""
        data = np.empty(length, np.uint8)
        view, done = data.data, 0
        while done < length:
            try:
                with self._lock:
                    number = os.preadv(self._open(), [view[done:]], offset + done)
            except OSError as error:
                raise disk_error(error, self.path, "read") from error
            if not number:
                raise InputError(
                    f"the file ends at byte {offset + done:,}, and tensors in it reach to {offset + length:,}",
                    where=str(self.path),
                    fix="copy it again from where it is whole",
                )
            done += number
        return data

    def _open(self) -> int:
        if self._descriptor < 0:
            try:
                # Without waiting: a pipe that nobody writes to would never open.
                self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
            except OSError as error:
                raise disk_error(error, self.path, "read") from error
            self._look_at(os.fstat(self._descriptor))
            _opened.append(weakref.ref(self))
            _close_some()
        return self._descriptor

    def _look_at(self, found: os.stat_result) -> None:
        """Refuse what is no file, and one that is not the file that was open before."""
        if not stat.S_ISREG(found.st_mode):
            self._shut()
            raise InputError("this is no file of bytes", where=str(self.path), fix="take it out of the folder")
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if self._identity not in (None, identity):
            self._shut()
            raise InputError(
                "the file was changed or replaced while it was read",
                where=str(self.path),
                fix="begin again when nothing writes to the folder",
            )
        self._identity = identity

    def _shut(self) -> None:
        if self._descriptor >= 0:
            _close(self._descriptor)
            self._descriptor = -1

    def close(self, wait: bool = True) -> bool:
        """Close it; the next read opens it again. Without `wait`: not while it is read, and whether it is closed."""
        if closed := self._lock.acquire(blocking=wait):
            try:
                self._shut()
            finally:
                self._lock.release()
        return closed

    def __del__(self) -> None:
        self._shut()


def _close_some() -> None:
    """Close those that were opened first, but none that a thread is just reading."""
    for _ in range(len(_opened) - _MOST_OPEN):
        known = _opened.popleft()
        if (file := known()) is not None and not file.close(wait=False):
            _opened.append(known)


@dataclass(frozen=True)
class Piece:
    """The elements of `box`, in row-major order, from byte `offset` of a file on."""

    box: Box
    file: File
    offset: int


@dataclass(frozen=True)
class Run:
    """The elements begin … end - 1 of the flattened tensor, from byte `offset` of a file on."""

    begin: int
    end: int
    file: File
    offset: int


class Stored(Tensor):
    """A tensor whose pieces lie in files. `holes` says whether they are all there."""

    def __init__(self, dtype: str, shape: Sequence[int], pieces: Sequence[Piece]) -> None:
        self.dtype, self.shape, self.pieces = dtype, tuple(shape), list(pieces)

    @classmethod
    def in_file(cls, dtype: str, shape: Sequence[int], file: File, offset: int) -> Stored:
        """A tensor that lies in one file as a whole."""
        return cls(dtype, shape, [Piece(tuple((0, length) for length in shape), file, offset)])

    def read(self, box: Box) -> Array:
        if len(self.pieces) == 1 and self.pieces[0].box == self.whole:
            return self._of(self.pieces[0], box)
        out = np.empty(extent(box), DTYPES[self.dtype].raw)
        filled = 0
        for piece in self.pieces:
            if (shared := common(box, piece.box)) is not None:
                part = self._of(piece, within(shared, piece.box))
                out[slices(within(shared, box))] = part
                filled += part.size
        if filled != out.size:
            raise InputError(
                f"{out.size - filled} of {out.size} elements are in none of the files, or in two", fix=OWN_CONFIG
            )
        return out

    def _of(self, piece: Piece, local: Box) -> Array:
        dtype = DTYPES[self.dtype]

        def flat(begin: int, end: int) -> Array:
            data = piece.file.read(piece.offset + begin * dtype.width, (end - begin) * dtype.width)
            return data.view(dtype.raw)

        return read_row_major(extent(piece.box), local, self.dtype, flat)

    def fault(self) -> str | None:
        """What is wrong with the pieces: one that reaches out of the tensor, two that overlap, or too few."""
        for piece in self.pieces:
            if len(piece.box) != len(self.shape) or common(piece.box, self.whole) != piece.box:
                if 0 in extent(piece.box):
                    continue
                return f"a piece lies at {piece.box}, outside of shape {self.shape}"
        ordered = sorted((piece.box for piece in self.pieces if 0 not in extent(piece.box)), key=lambda box: box)
        for place, box in enumerate(ordered):
            for other in ordered[place + 1 :]:
                if box and other[0][0] >= box[0][1]:
                    break
                if common(box, other) is not None:
                    return f"two pieces overlap: {box} and {other}"
        there = sum(int(np.prod(extent(box), dtype=np.int64)) for box in ordered)
        return None if there == self.size else f"{self.size - there:,} of {self.size:,} elements are in no file"


class Ragged(Tensor):
    """A tensor that was flattened and cut at places that know nothing of its shape."""

    def __init__(self, dtype: str, shape: Sequence[int], runs: Sequence[Run]) -> None:
        self.dtype, self.shape = dtype, tuple(shape)
        self.runs = sorted(runs, key=lambda run: run.begin)

    def read(self, box: Box) -> Array:
        return read_row_major(self.shape, box, self.dtype, self._flat)

    def _flat(self, begin: int, end: int) -> Array:
        dtype = DTYPES[self.dtype]
        found = list(self._parts(begin, end))
        if len(found) == 1:
            return found[0]
        whole = np.concatenate(found) if found else np.empty(0, dtype.raw)
        if len(whole) != end - begin:
            raise InputError(
                f"{end - begin - len(whole)} elements from {begin} on are in none of the files", fix=OWN_CONFIG
            )
        return whole

    def _parts(self, begin: int, end: int) -> Iterator[Array]:
        dtype = DTYPES[self.dtype]
        for run in self.runs:
            first, last = max(begin, run.begin), min(end, run.end)
            if first < last:
                offset = run.offset + (first - run.begin) * dtype.width
                yield run.file.read(offset, (last - first) * dtype.width).view(dtype.raw)
