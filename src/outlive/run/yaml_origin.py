"""Where a YAML text is from, and what is wrong with it where it is no YAML: each with its line and column."""

from __future__ import annotations

import re

import yaml

from outlive.run.errors import InputError
from outlive.run.excerpt import COMMAND_LINE, Excerpt, Place

_INDENTED = "this line is indented more or less than those before it"
_CLOSING = {"[": "]", "{": "}", '"': '"', "'": "'"}
# What PyYAML says, in words for people who do not know its grammar.
_SAID = {
    "mapping values are not allowed here": "a second `:` on one line, or a key that is indented wrongly",
    "could not find expected ':'": "this line has no `:` after its key",
    "expected <block end>, but found '<block mapping start>'": _INDENTED,
    "expected <block end>, but found '?'": _INDENTED,
}


class Origin:
    """Where a text is from: makes places of what stands in it."""

    def __init__(self, name: str, text: str, line_numbers: bool, before: str) -> None:
        self.name, self.line_numbers, self.before = name, line_numbers, before
        self.lines = text.splitlines() or [""]  # both split at what YAML calls a line break

    def place(self, line: int, column: int, length: int = 1, value: yaml.Node | None = None) -> Place:
        """The place of `length` characters; line and column count from 0."""
        own = self._excerpt(line, column, length)
        spot = None
        if value is not None and value.start_mark.line == line:
            spot = self._excerpt(line, value.start_mark.column, self._length(value))
        return Place(f"{self.name}:{line + 1}" if self.line_numbers else self.name, [own], spot)

    def of(self, node: yaml.Node, value: yaml.Node | None = None) -> Place:
        """The place of a node; for that of a key, `value` is the key's value."""
        return self.place(node.start_mark.line, node.start_mark.column, self._length(node), value)

    def _length(self, node: yaml.Node) -> int:
        begin, end = node.start_mark, node.end_mark
        line = self.lines[begin.line] if begin.line < len(self.lines) else ""
        return max(1, (end.column if end.line == begin.line else len(line.rstrip())) - begin.column)

    def _excerpt(self, line: int, column: int, length: int) -> Excerpt:
        text = self.lines[min(line, len(self.lines) - 1)]
        column = min(column, len(text))
        if not self.line_numbers:
            before = self.before if line == 0 else ""
            return Excerpt(COMMAND_LINE, None, before + text, len(before) + column + 1, length)
        return Excerpt(self.name, line + 1, text, column + 1, length)


def checked(text: str, origin: Origin) -> str:
    """`text` again. InputError for a control character, which YAML does not allow."""
    # PyYAML's reader refuses such characters with a position in characters; a line is what a user can find.
    if found := re.search("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
        # Not by origin.place: the character may itself be what splitlines() takes for the end of a line.
        line, begin = text.count("\n", 0, found.start()), text.rfind("\n", 0, found.start()) + 1
        column, content = found.start() - begin + 1, text.split("\n")[line]
        excerpt = Excerpt(origin.name, line + 1, content, column)
        if not origin.line_numbers:
            excerpt = Excerpt(COMMAND_LINE, None, origin.before + content, len(origin.before) + column)
        where = Place(f"{origin.name}:{line + 1}" if origin.line_numbers else origin.name, [excerpt])
        raise InputError(f"a control character ({found.group()!r}) is in the file", where=where, fix="remove it")
    return text


def syntax_error(error: yaml.MarkedYAMLError, origin: Origin) -> InputError:
    """What PyYAML has against a text, at its place and in a user's words."""
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    place = origin.place(line, column)
    content = origin.lines[line] if line < len(origin.lines) else ""
    indent = content[: len(content) - len(content.lstrip())]
    if "\t" in indent or "'\\t'" in (error.problem or ""):
        place = origin.place(line, max(0, content.find("\t")))
        return InputError("a tab is used to indent", where=place, fix="indent with spaces: YAML allows no tabs there")
    if error.problem and "found another document" in error.problem:
        return InputError("a run file is one YAML document", where=place, fix="remove the line `---` and what follows")
    begin, context = error.context_mark, error.context or ""
    if begin is not None and ("quoted scalar" in context or "flow" in context):
        # The reader notices where it can't go on; the fault is where it began.
        opened = origin.lines[begin.line][begin.column : begin.column + 1] if begin.line < len(origin.lines) else ""
        if opened in _CLOSING:
            return InputError(
                f"this is not YAML: no closing {_CLOSING[opened]} comes where it should",
                where=origin.place(begin.line, begin.column),
                fix=f"add the closing {_CLOSING[opened]}",
            )
    said = _SAID.get(error.problem or "", error.problem)
    return InputError(f"this is not YAML: {said}", where=place, fix="a key's form is `key: value`, with a space")
