"""Rows on other machines, through fsspec: copied once, and again when the other side says that they changed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
        if any(mark in path for mark in "*?["):
            there = {name: is_rows(posixpath.basename(name)) for name in files.glob(path)}
        elif files.isdir(path):
            there = {name: is_rows(posixpath.relpath(name, path)) for name in files.find(path)}
        else:
            there = {path: True} if files.exists(path) else {}
    except (ImportError, ValueError) as error:
        fix = "pip install 'outlive[remote]', or the package that is named"
        raise InputError(f"this kind of URL can't be read here: {error}", where=url, fix=fix) from None
    except Exception as error:  # each file system has errors of its own
        raise _unreachable(url, error) from error
    found = [name for name, has_rows in there.items() if has_rows]
    if others := sorted(there.keys() - set(found)):
        say(f"{url}: {len(others)} files are not read as rows: {', '.join(others[:_NAMED])}")
    if not found:
        raise InputError(
            "there is no file of rows there", where=url, fix="check the URL; end a pattern in .jsonl or so"
        )
    return files, in_order(found)


def _copy(files: Any, path: str, url: str, say: Callable[[str], None]) -> Path:
    with _reaching(url):
        about = dict(files.info(path))
    mark = next((str(about[name]) for name in _MARKS if about.get(name)), None)
    key = hash_json([url.split("://")[0], path, about.get("size"), mark])
    kept = Kept(key, posixpath.basename(path))
    if kept.is_there and mark is not None:
        return kept.path
    if (about.get("size") or 0) >= _LARGE:
        say(f"fetching {url.split('://')[0]}://{path.lstrip('/')} ({size(about['size'])}) to {kept.path}")
    with kept.writing() as write:
        with _reaching(url):
            stream = files.open(path, "rb")
        with stream:
            while True:
                with _reaching(url):
                    block = stream.read(_BLOCK)
                if not block:
                    break
                write(block)
    return kept.path


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
