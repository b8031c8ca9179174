"""The members of a zip archive as torch.save writes it: not compressed, so that each lies in the file as it is.

Format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT (sections 4.3 and 4.5.3).
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, NoReturn

from outlive.checkpoint.tensors.stored import File
from outlive.run.errors import InputError

_END = struct.Struct("<4s4H2LH")  # signature, disks, disk, entries here, entries, size, offset, length of the comment
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_TAIL = 4096  # bytes at the end that are read at once: in most archives the whole directory
_COMMENT = 0xFFFF
_MOST = 1 << 28  # bytes of a directory: more than two million members
_BLOCK = 1 << 20
COPY = "copy it again from where it is whole"


@dataclass(frozen=True)
class Member:
    """What the directory says of a member: where its header begins in the file, how long it is, and its CRC-32."""

    name: str
    header: int
    size: int
    crc: int


class ZipMembers:
    """The archive in the bytes begin … begin + length - 1 of a file. InputError where it is none, or not safe to read:
    compressed or encrypted members, members that overlap, headers that contradict the directory."""

    def __init__(self, file: File, begin: int = 0, length: int | None = None) -> None:
        self.file, self.begin = file, begin
        self.length = file.size - begin if length is None else length
        if begin < 0 or self.length < _END.size or begin + self.length > file.size:
            self._fail("the file ends before the archive does, or there is no archive in it")
        self.members = self._directory()
        self._starts = sorted(member.header for member in self.members.values())

    def place(self, name: str) -> tuple[int, int]:
        """The first byte in the file of a member's content, and its length."""
        member = self._member(name)
        limit = (
            self._starts[place] if (place := bisect_right(self._starts, member.header)) < len(self._starts) else None
        )
        end = self._directory_start if limit is None else limit
        if member.header + _LOCAL.size > end:
            self._fail(f"{name} has no header")
        header = self._read(member.header, _LOCAL.size)
        mark, _, flags, method, _, _, _, _, _, of_name, of_extra = _LOCAL.unpack(header)
        start = member.header + _LOCAL.size + of_name + of_extra
        if mark != b"PK\x03\x04" or method != 0 or flags & 0x2041 or start + member.size > end:
            self._fail(f"the header of {name} contradicts the directory, or it overlaps another member")
        if self._read(member.header + _LOCAL.size, of_name) != name.encode():
            self._fail(f"the header of {name} names another member")
        return start, member.size

    def content(self, name: str, most: int) -> bytes:
        """A member of at most `most` bytes, compared with its checksum where it has one."""
        start, size = self.place(name)
        if size > most:
            self._fail(f"{name} has {size:,} bytes, and at most {most:,} were expected")
        data = self._read(start, size)
        if not self.is_intact(name):
            self._fail(f"{name} is damaged: its CRC-32 is another")
        return data

    def is_intact(self, name: str) -> bool:
        """Whether a member has the bytes that were written: by its CRC-32. True where the writer left that out (0)."""
        start, size = self.place(name)
        expected, crc = self.members[name].crc, 0
        if not expected:
            return True
        for offset in range(0, size, _BLOCK):
            crc = zlib.crc32(self.file.read(start + offset, min(_BLOCK, size - offset)).data, crc)
        return crc == expected

    def _member(self, name: str) -> Member:
        if name not in self.members:
            self._fail(f"it has no member {name}")
        return self.members[name]

    def _directory(self) -> dict[str, Member]:
        number, size, offset = self._end()
        self._directory_start = self.begin + offset
        if size > _MOST or number * _ENTRY.size > size or offset + size > self.length:
            self._fail("its directory lies outside of it")
        data, at = self._read(self._directory_start, size), 0
        members: dict[str, Member] = {}
        for _ in range(number):
            if at + _ENTRY.size > size:
                self._fail("its directory is cut off")
            entry = _ENTRY.unpack_from(data, at)
            of_name, of_extra, of_comment = entry[10:13]
            extra_at = at + _ENTRY.size + of_name
            at = extra_at + of_extra + of_comment
            if at > size:
                self._fail("its directory is cut off")
            name = data[extra_at - of_name : extra_at].decode("utf-8", "replace")
            member = self._entry(name, entry, data[extra_at : extra_at + of_extra])
            if name in members:
                self._fail(f"two members are named {name}")
            members[name] = member
        if len({member.header for member in members.values()}) != len(members):
            self._fail("two members are the same bytes")
        return members

    def _entry(self, name: str, entry: tuple[Any, ...], extra: bytes) -> Member:
        mark, flags, method, crc, packed, size, offset = entry[0], *entry[3:5], *entry[7:10], entry[16]
        wide = iter(_wide(extra))
        if size == 0xFFFFFFFF:
            size = next(wide, -1)
        if packed == 0xFFFFFFFF:
            packed = next(wide, -1)
        if offset == 0xFFFFFFFF:
            offset = next(wide, -1)
        if mark != b"PK\x01\x02":
            self._fail("its directory is damaged")
        if method != 0 or packed != size or flags & 0x2041:
            self._fail(f"{name} is compressed or encrypted, which torch.save never does")
        if not 0 <= size <= self.length or not 0 <= offset < self.length:
            self._fail(f"{name} lies outside of the file")
        return Member(name, self.begin + offset, size, crc)

    def _end(self) -> tuple[int, int, int]:
        """How many entries the directory has, its size, and where it begins."""
        for tail in (min(_TAIL, self.length), min(_COMMENT + _END.size, self.length)):
            data = self._read(self.begin + self.length - tail, tail)
            at = data.rfind(b"PK\x05\x06")
            if 0 <= at <= tail - _END.size:
                break
        else:
            self._fail("it is no zip archive, or its end is missing")
        _, disk, _, _, number, size, offset, _ = _END.unpack_from(data, at)
        if disk not in (0, 0xFFFF):
            self._fail("it is one part of an archive in several files")
        end = self.length - tail + at
        if end >= _LOCATOR.size:
            locator = self._read(self.begin + end - _LOCATOR.size, _LOCATOR.size)
            if locator.startswith(b"PK\x06\x07"):
                return self._end64(_LOCATOR.unpack(locator)[2])
        return number, size, offset

    def _end64(self, offset: int) -> tuple[int, int, int]:
        if offset + _END64.size > self.length:
            self._fail("its directory lies outside of it")
        mark, *_, number, size, start = _END64.unpack(self._read(self.begin + offset, _END64.size))
        if mark != b"PK\x06\x06":
            self._fail("its end is damaged")
        return number, size, start

    def _read(self, offset: int, length: int) -> bytes:
        return self.file.read(offset, length).tobytes()

    def _fail(self, what: str) -> NoReturn:
        raise InputError(f"the archive can't be read: {what}", where=str(self.file.path), fix=COPY)


def _wide(extra: bytes) -> tuple[int, ...]:
    """The 64-bit numbers of the zip64 field (0x0001) of an entry."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            count = min(length, len(extra) - at - 4) // 8
            return struct.unpack_from(f"<{count}Q", extra, at + 4)
        at += 4 + length
    return ()
