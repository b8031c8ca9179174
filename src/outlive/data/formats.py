"""The formats of rows that are read, as one table: how a row is recognised, and how it becomes a conversation.

A new format is one more entry of a file in `dialects`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlive.data.conversation import Conversation
from outlive.data.dialects import alpaca, chat, judged, plain, preference, sharegpt, tokens
from outlive.data.format import Format
from outlive.data.naming import MESSAGE, Naming
from outlive.data.parts import IMAGE_COLUMNS
from outlive.run.errors import nearest
from outlive.text.refusal import Refusal

_MODULES = (chat, plain, sharegpt, alpaca, preference, judged, tokens)
FORMATS: dict[str, Format] = {name: shape for module in _MODULES for name, shape in module.FORMATS.items()}
# Our names on the left of data.train[].fields.
FIELDS = frozenset(key for shape in FORMATS.values() for key in shape.keys) | {
    f"{MESSAGE}{key}" for key in ("role", "content", "weight", "train", "train_detail", "reasoning_content", "thinking",
                                  "reasoning", "tool_calls", "tool_call_id", "name")
}  # fmt: skip
_IMAGES = frozenset(IMAGE_COLUMNS)
_BASIC = ("messages", "prompt_completion", "text")
_TYPES = {"messages": list, "text": str}


def detect(row: Mapping[str, Any]) -> tuple[str, str]:
    """The format of a row and the reason, such as ("messages", "the first readable row has 'messages'").

    A format whose columns another one has all, and more, gives way to it. Raises Refusal(unknown_format) where no
    format of the table fits, Refusal(ambiguous_format) where several do.
    """
    found = {name: seen for name, shape in FORMATS.items() if shape.detected and (seen := shape.fits(row))}
    best = [name for name, seen in found.items() if not any(seen < other for other in found.values())]
    if not best:
        raise Refusal("unknown_format", f"the row has the keys {sorted(row)}; {_what_fits(row)}")
    if len(best) > 1:
        both = " and ".join(f"'{name}' ({_named(found[name])})" for name in best)
        raise Refusal("ambiguous_format", f"the row fits {both}; name one of them: data.train[].format")
    return best[0], f"the first readable row has {_named(found[best[0]])}"


def _named(columns: frozenset[str]) -> str:
    return " and ".join(f"'{key}'" for key in sorted(columns))


def _what_fits(row: Mapping[str, Any]) -> str:
    for key, kind in (("messages", "a list of messages"), ("text", "text"), ("prompt", "text or a list of messages"),
                      ("completion", "text or a list of messages")):  # fmt: skip
        if key in row and not isinstance(row[key], str | list if kind.startswith("text or") else _TYPES[key]):
            return f"'{key}' is to be {kind}"
    known = "a row has messages, or completion and prompt, or text, or another shape of docs/formats.md"
    names = sorted({name for shape in FORMATS.values() for name in shape.keys - {"tools"}})
    for key in row:
        if (close := nearest(key, names)) and close not in row and key not in names:
            return f"{known}; did you mean {close} by {key!r}?"
    return known


def read_conversation(row: Mapping[str, Any], name: str, naming: Naming | None = None) -> Conversation:
    """The conversation of a row in format `name`. Raises Refusal with the reason where the row does not fit.

    `naming`: other names of messages' keys and roles; columns have our names already (`Naming.row`).
    """
    shape = FORMATS[name]
    if not shape.fits(row):
        raise Refusal("wrong_format", f"read as '{name}', the row has the keys {sorted(row)}; {_missing(row, name)}")
    if row.get("chat_template_kwargs"):
        raise Refusal("template_arguments", "chat_template_kwargs of single rows are not supported")
    if not _IMAGES.isdisjoint(row):
        _refuse_images(row)
    return shape.read(row, naming)


def _missing(row: Mapping[str, Any], name: str) -> str:
    return _what_fits(row) if name in _BASIC else f"a row has {FORMATS[name].shape}"


def _refuse_images(row: Mapping[str, Any]) -> None:
    for column in IMAGE_COLUMNS:
        if row.get(column):
            raise Refusal("images", f"the column '{column}' is not empty", (column,))
