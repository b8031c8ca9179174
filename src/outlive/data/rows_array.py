"""Rows of a file that is one JSON array: its items, one at a time, in bounded memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from outlive.data.json_text import reason
from outlive.data.rows_file import BOM
from outlive.run.errors import InputError
from outlive.run.excerpt import Excerpt, Place

_BLOCK = 1 << 20
MAX_ITEM = 32 << 20  # characters
_BLANK = re.compile(r"[ \t\r\n]*")


def array_items(path: Path, file: BinaryIO, update: object) -> Iterator[tuple[str, int]]:
    """Each item of the array as its JSON text, and the line where it begins, from 1. `update` is given all bytes.

    Raises InputError where the array is broken: what follows the break can't be told from what is inside it.
    """
    text = _Text(path, file, update)
    text.skip_blank()
    if text.take() != "[":
        raise text.error("a JSON array begins with [")
    text.skip_blank()
    if text.peek() == "]":
        text.take()
        text.end()
        return
    decoder = json.JSONDecoder()
    while True:
        text.skip_blank()
        yield text.item(decoder)
        text.skip_blank()
        mark = text.take()
        if mark == "]":
            text.end()
            return
        if mark != ",":
            raise text.error("a comma or the closing ] is expected here")


class _Text:
    """A file's text from some place on, of which more is read when it is needed."""

    def __init__(self, path: Path, file: BinaryIO, update: object) -> None:
        self.path, self.file, self.update = path, file, update
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.text, self.place, self.line = "", 0, 1
        self.forgotten = 0  # characters of the current line that are no longer in `text`
        self.at_end = False
        self.more()
        self.text = self.text.removeprefix(BOM.decode())

    def more(self) -> bool:
        """Read a block more, and forget what is behind; whether there was one."""
        if self.at_end:
            return False
        self.line += self.text.count("\n", 0, self.place)
        line_start = self.text.rfind("\n", 0, self.place) + 1
        self.forgotten = self.place - line_start + (0 if line_start else self.forgotten)
        block = self.file.read(max(_BLOCK, len(self.text) - self.place))
        self.update(block)  # type: ignore[operator]
        self.at_end = not block
        try:
            found = self.decoder.decode(block, final=self.at_end)
        except UnicodeDecodeError as error:
            fix = "convert the file to UTF-8, for example: iconv -f LATIN1 -t UTF-8 FILE > new.json"
            raise InputError(f"the file is no UTF-8: {error.reason}", where=str(self.path), fix=fix) from None
        self.text, self.place = self.text[self.place :] + found, 0
        return True

    def skip_blank(self) -> None:
        while True:
            match = _BLANK.match(self.text, self.place)
            self.place = match.end() if match else self.place
            if self.place < len(self.text) or not self.more():
                return

    def peek(self) -> str:
        return self.text[self.place : self.place + 1]

    def take(self) -> str:
        mark = self.peek()
        self.place += 1
        return mark

    def item(self, decoder: json.JSONDecoder) -> tuple[str, int]:
        while True:
            try:
                _, end = decoder.raw_decode(self.text, self.place)
            except RecursionError:
                raise self.error("lists and objects are nested too deep") from None
            except ValueError as error:
                if len(self.text) - self.place < MAX_ITEM and self.more():
                    continue  # the item may only be cut by the end of what was read
                self.place = error.pos if isinstance(error, json.JSONDecodeError) else self.place
                raise self.error(reason(error)) from None
            if end == len(self.text) and self.more():
                continue  # a number may go on
            start, self.place = self.place, end
            return self.text[start:end], self.line + self.text.count("\n", 0, start)

    def end(self) -> None:
        self.skip_blank()
        if self.place < len(self.text):
            raise self.error("more follows after the end of the array")

    def error(self, what: str) -> InputError:
        self.place = min(self.place, len(self.text))
        line = self.line + self.text.count("\n", 0, self.place)
        start = self.text.rfind("\n", 0, self.place) + 1
        forgotten = 0 if start else self.forgotten
        shown = self.text[start:].split("\n", 1)[0]
        excerpt = Excerpt(str(self.path), line, shown, forgotten + self.place - start + 1, 1, forgotten).cut()
        fix = "mend the array, or write one row on each line (JSON Lines), where a bad row costs only itself"
        return InputError(f"the JSON array is broken: {what}", where=Place(f"{self.path}:{line}", [excerpt]), fix=fix)
