"""What form of rows a file has, by what it looks like; what can hold no rows is refused as a whole."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path
from typing import Literal

from outlive.data.rows_table import check_table
from outlive.run.errors import InputError, nearest
from outlive.run.excerpt import Excerpt, Place

BOM = b"\xef\xbb\xbf"
_LOOK = 1 << 16  # bytes at a file's beginning that show what it is
_BLANK = b"\xef\xbb\xbf \r\n\t"

_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_MAGIC = {
    b"\x1f\x8b": "a gzip file",
    b"PK\x03\x04": "a zip file",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip file",
    b"\x04\x22\x4d\x18": "an lz4 file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"GGUF": "a GGUF model",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"\x89PNG": "a picture",
    b"%PDF": "a PDF file",
    b"SQLite format 3": "an SQLite data base",
    b"version https://git-lfs": "a pointer of Git LFS, not the file itself",
}
_TAR = "a tar archive"
_LINES = "one JSON object on each line"
# How a file of each kind becomes JSON Lines; other kinds have the general advice.
_REMEDIES = {
    "a gzip file": "unpack it: gzip -dk {path}",
    "a zstd file": "unpack it: zstd -d {path}",
    "a bzip2 file": "unpack it: bzip2 -dk {path}",
    "an xz file": "unpack it: xz -dk {path}",
    "a zip file": "unpack it: unzip {path}",
    "a 7-Zip file": "unpack it: 7z x {path}",
    "an lz4 file": "unpack it: lz4 -d {path}",
    _TAR: "unpack it, and name the folder: tar -xf {path}",
    "UTF-16 text": "convert it: iconv -f UTF-16 -t UTF-8 {path} > {new}",
    "a pointer of Git LFS, not the file itself": "fetch the file: git lfs pull",
}  # fmt: skip
Form = Literal["lines", "array", "csv", "parquet", "arrow_file", "arrow_stream"]
# Forms of rows with bytes of their own; JSON Lines, JSON arrays and CSV are told by their text.
_TABLES: dict[bytes, Form] = {b"PAR1": "parquet", b"ARROW1": "arrow_file", b"\xff\xff\xff\xff": "arrow_stream"}


def check_rows_file(path: Path) -> None:
    """Raise InputError where the file is missing, no plain file, empty, binary, or text of another form than rows."""
    rows_form(path)


def rows_form(path: Path, given: Path | None = None) -> Form:
    """What form of rows the file has. Raises InputError where it has none, or can't be read.

    `given`: the compressed file that `path` is a copy of, which messages name.
    """
    given = given or path
    try:
        # Rows are read more than once (to look, to hash, to use): a pipe would give each reader another part of them.
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(
                "this is no plain file (a folder, a pipe or a device), and rows are read more than once",
                where=str(path),
                fix="name its files one by one" if path.is_dir() else "save the rows in a file, and name that",
            )
        with path.open("rb") as file:
            begin = file.read(_LOOK)
    except OSError as error:
        raise unreadable(path, error) from None
    for magic, form in _TABLES.items():
        if begin.startswith(magic):
            check_table(path, form, given)
            return form
    if kind := _binary_kind(begin):
        raise _no_rows(kind, given, is_inside=given != path)
    if not begin.strip(_BLANK):
        if len(begin) == _LOOK:
            return "lines"  # rows may follow
        what = "the file holds no row: it " + ("has only white space" if begin else "is empty (0 bytes)")
        raise InputError(what, where=str(given), fix=f"name a file with {_LINES}")
    form = _text_form(path, begin.removeprefix(BOM).decode("utf-8", "replace"), len(begin) < _LOOK, given)
    if form == "lines" and not _may_be_lines(begin):
        raise InputError(
            "the file holds plain text, not rows: none of its first lines is JSON",
            where=str(given),
            expected=f"{_LINES}, in UTF-8, a JSON array, Parquet, Arrow or CSV",
            fix='write the texts as JSON, one on each line: {"text": "…"}; a CSV of one column ends in .csv',
        )
    return form


def _no_rows(kind: str, given: Path, is_inside: bool) -> InputError:
    """The error for a file of some other kind. `is_inside`: whether that is what a compressed file holds."""
    remedy = _REMEDIES.get(kind, f"convert it to JSON Lines in UTF-8: {_LINES}").format(path=given, new=_new(given))
    if is_inside:
        what = f"the compressed file holds no rows that are read: {kind} is in it"
        remedy = remedy if kind == _TAR else f"unpack it, and convert what is in it to JSON Lines in UTF-8: {_LINES}"
    else:
        what = f"the file holds no rows that are read: it is {kind}"
    expected = f"{_LINES}, in UTF-8, a JSON array, Parquet, Arrow or CSV"
    return InputError(what, where=str(given), expected=expected, fix=remedy)


def _may_be_lines(begin: bytes) -> bool:
    """Whether any of the first lines looks like JSON: then those that don't are rows that are bad."""
    lines = [line.strip() for line in begin.removeprefix(BOM).decode("utf-8", "replace").splitlines()]
    return any(line.startswith(("{", "[")) or _is_json(line) for line in lines if line)


def compression(path: Path) -> str | None:
    """How a file is compressed, by its first bytes: gzip, bzip2, xz or zstd. None where it is not, or can't be read."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            begin = file.read(8)
    except OSError:  # whoever reads the rows says why
        return None
    return next((kind for magic, kind in _COMPRESSED.items() if begin.startswith(magic)), None)


def unreadable(path: Path, error: OSError) -> InputError:
    """The error for a data file that can't be opened or read."""
    if error.errno == errno.ENAMETOOLONG:
        return InputError(
            "this is too long for a file's name", where=f"{str(path)[:100]}…", fix="name a file of rows (JSON Lines)"
        )
    if isinstance(error, FileNotFoundError):
        if path.is_symlink():
            what = f"this link points to nothing: {path.readlink()} does not exist"
            return InputError(what, where=str(path), fix="name the file itself, or mend the link")
        near = _nearest_file(path)
        fix = f"did you mean {near}?" if near else "check the path: it is relative to the current directory"
        return InputError("there is no such file", where=str(path), nearest=near, fix=fix)
    if isinstance(error, PermissionError):
        fix = f"let yourself read it: chmod u+r {path}"
        return InputError("the file may not be read by you: permission denied", where=str(path), fix=fix)
    return InputError(f"the file can't be read: {error.strerror}", where=str(path), fix="check the disk and the path")


def _new(path: Path) -> Path:
    """A name for what is converted: never the file's own, which a shell empties before it is read."""
    return path.with_name(f"{path.stem}-rows.jsonl")


def _nearest_file(path: Path) -> str | None:
    try:
        names = [item.name for item in path.parent.iterdir() if item.is_file()][:10_000]
    except OSError:
        return None
    close = nearest(path.name, names)
    return str(path.with_name(close)) if close else None


def _binary_kind(begin: bytes) -> str | None:
    for magic, name in _MAGIC.items():
        if begin.startswith(magic):
            return name
    if begin[257:262] == b"ustar":
        return _TAR
    if b"\x00" not in begin:
        return None
    half = begin[:512]
    if half[1::2].count(0) > len(half) // 4 or half[::2].count(0) > len(half) // 4 + 1:
        return "UTF-16 text" if half.strip(b"\x00") else "binary (NUL bytes)"
    # One NUL among rows is a fault of its row, which has a line and a column.
    return None if begin.lstrip(_BLANK).startswith(b"{") else "binary"


def _text_form(path: Path, text: str, whole: bool, given: Path) -> Form:
    """The form of a text file, told by its first lines. Raises InputError where it is none of them."""
    number, first, second = _first_lines(text)
    if first[0] in "[{":
        rest = text.split("\n", number)[number:]
        if _is_json(first) and (first[0] == "{" or (rest and rest[0].strip())):
            return "lines"  # the first line is a whole value: rows, good or bad
        if first[0] == "[" and (not _is_json(first) or whole):
            return "array"
        if first.strip() == "{" and "".join(rest).lstrip().startswith('"'):
            place = Place(f"{given}:{number}", [Excerpt(str(given), number, first, 1).cut()])
            raise InputError(
                "the file is JSON over several lines, not JSON Lines",
                where=place,
                expected=_LINES,
                fix=f"convert it: jq -c . {given} > {_new(given)}",
            )
        return "lines"
    separator = next((mark for mark in (",", "\t", ";") if first.count(mark) and _alike(first, second, mark)), None)
    named = path.suffix.lower() in (".csv", ".tsv")
    return "csv" if named or (separator and not _is_json(first)) else "lines"


def _first_lines(text: str) -> tuple[int, str, str]:
    """The first line that is not blank, its number and the one after it."""
    lines = text.split("\n")
    number = next(place for place, line in enumerate(lines) if line.strip())
    return number + 1, lines[number].strip(), lines[number + 1] if number + 1 < len(lines) else ""


def _alike(first: str, second: str, separator: str) -> bool:
    return not second.lstrip().startswith(("{", "[")) and 0 < first.count(separator) <= second.count(separator)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
