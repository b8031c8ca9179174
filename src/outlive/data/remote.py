"""Rows on other machines, through fsspec: copied once, and again when the other side says that they changed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from outlive.data.kept import Kept
from outlive.data.natural import in_order
from outlive.run.credentials import without_credentials
from outlive.run.errors import InputError
from outlive.run.files import hash_json
from outlive.run.sizes import size

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+://")
_BLOCK = 4 << 20
_NAMED = 5  # files that a note names
_LARGE = 64 << 20  # bytes: fetching less is not worth a note
# What file systems call the mark of a file's content; the first that a file has is taken with its size.
_MARKS = (
    "ETag",
    "etag",
    "checksum",
    "md5Hash",
    "crc32c",
    "blob_id",
    "LastModified",
    "last_modified",
    "updated",
    "mtime",
)


def is_remote(path: str) -> bool:
    """Whether a path is a URL."""
    return _URL.match(path) is not None


def remote_files(url: str, is_rows: Callable[[str], bool], say: Callable[[str], None]) -> list[Path]:
    """Copies of the files that a URL names: one, a folder's, or those that fit a pattern; in their order.

    Raises InputError where there are none, where fsspec lacks a package for them, or where they can't be read.
    """
    files, paths = _listing(url, is_rows, say)
    return [_copy(files, path, url, say) for path in paths]


def _listing(url: str, is_rows: Callable[[str], bool], say: Callable[[str], None]) -> tuple[Any, list[str]]:
    try:
        import fsspec
        from fsspec.core import url_to_fs

        del fsspec
        files, path = url_to_fs(url)
        files.invalidate_cache()  # what an earlier preparation of this process saw may be another by now
        if _is_pattern(path):
            there = {name: is_rows(posixpath.basename(name)) for name in files.glob(path)}
        elif not (_is_web(path) and is_rows(_name(path))) and files.isdir(path):  # a web page is read for its links
            there = {name: is_rows(posixpath.relpath(name, path)) for name in files.find(path)}
        else:
            there = {path: True} if files.exists(path) else {}
    except (ImportError, ValueError) as error:
        fix = "pip install 'outlive[remote]', or the package that is named"
        raise InputError(f"this kind of URL can't be read here: {error}", where=url, fix=fix) from None
    except Exception as error:  # each file system has errors of its own
        raise _unreachable(url, error) from error
    found = [name for name, has_rows in there.items() if has_rows]
    if others := sorted(name for name in there.keys() - set(found) if not name.endswith("/")):  # marks of folders
        say(f"{url}: {len(others)} files are not read as rows: {', '.join(others[:_NAMED])}")
    if not found:
        raise InputError(
            "there is no file of rows there", where=url, fix="check the URL; end a pattern in .jsonl or so"
        )
    return files, in_order(found)


def _is_web(path: str) -> bool:
    return path.startswith(("http://", "https://"))


def _is_pattern(path: str) -> bool:
    """Whether a path stands for several. In a web address, what comes after a question mark is a query."""
    return any(mark in path.partition("?")[0] for mark in "*[") if _is_web(path) else any(c in path for c in "*?[")


def _name(path: str) -> str:
    return posixpath.basename(urlsplit(path).path if _is_web(path) else path)


def _mark(about: Mapping[str, Any]) -> str | None:
    """What the other side says of a file's content; None where it says nothing."""
    return next((str(about[name]) for name in _MARKS if about.get(name)), None)


def _copy(files: Any, path: str, url: str, say: Callable[[str], None]) -> Path:
    with _reaching(url):
        about = dict(files.info(path))
    mark = _mark(about)
    key = hash_json([url.split("://")[0], path, about.get("size"), mark])
    kept = Kept(key, _name(path))
    if kept.is_there and mark is not None:
        return kept.path
    if (about.get("size") or 0) >= _LARGE:
        say(f"fetching {url.split('://')[0]}://{path.lstrip('/')} ({size(about['size'])}) to {kept.path}")
    with kept.writing() as write:
        num_bytes = sum(write(block) for block in _blocks(files, path, url))
        with _reaching(url):
            files.invalidate_cache()
            now = dict(files.info(path))
        _refuse_other(url, about, now, num_bytes)
    return kept.path


def _blocks(files: Any, path: str, url: str) -> Iterator[bytes]:
    """A file's content. It is asked for block by block: some file systems read 50 MiB ahead where they may."""
    with _reaching(url):
        stream = files.open(path, "rb", block_size=_BLOCK)
    with stream:
        while True:
            with _reaching(url):
                block = stream.read(_BLOCK)
            if not block:
                return
            yield block


def _refuse_other(url: str, before: Mapping[str, Any], after: Mapping[str, Any], num_bytes: int) -> None:
    """Raise InputError where a file was replaced while it was copied, or where the copy is not all of it."""
    if (before.get("size"), _mark(before)) != (after.get("size"), _mark(after)):
        raise InputError("the file was replaced while it was fetched", where=url, fix="run again")
    expected = before.get("size")
    is_unpacked = any(before.get(name) for name in ("contentEncoding", "ContentEncoding"))  # the size is of the packed
    if expected is not None and expected != num_bytes and not is_unpacked:
        raise InputError(
            f"the download broke off: {num_bytes:,} of {expected:,} bytes came", where=url, fix="run again"
        )


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """What goes wrong on the other side or on the way: each file system has errors of its own."""
    try:
        yield
    except Exception as error:
        raise _unreachable(url, error) from error


def _unreachable(url: str, error: Exception) -> InputError:
    said = without_credentials(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
    return InputError(
        f"it can't be read: {said}",
        where=url,
        fix="check the URL, the network, and the credentials in the environment (as AWS_ACCESS_KEY_ID, "
        "GOOGLE_APPLICATION_CREDENTIALS)",
    )
