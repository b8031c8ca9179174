"""The few words of Go's text/template that our templates use, run as Go runs them, and Ollama's way of calling them.

Facts: https://pkg.go.dev/text/template; ollama, template/template.go (fb3076099): Execute and collate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_ACTION = re.compile(r"\{\{ (.*?) \}\}", re.DOTALL)
_WORD = re.compile(r'\s*(\(|\)|"[^"]*"|[^\s()]+)')
_OPENS = ("if ", "range ")


def ollama(text: str, messages: Sequence[Mapping[str, str]], default_system: str | None = None) -> str:
    """What Ollama gives the model for a chat. default_system: of SYSTEM."""
    chat = [dict(message) for message in messages]
    if default_system is not None and chat[0]["role"] != "system":
        chat.insert(0, {"role": "system", "content": default_system})
    merged: list[dict[str, str]] = []
    for message in chat:
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1]["content"] += "\n\n" + message["content"]
        else:
            merged.append(message)
    values = [{"Role": message["role"], "Content": message["content"]} for message in merged]
    system = "\n\n".join(message["content"] for message in chat if message["role"] == "system")
    return _run(_parsed(text), {"System": system, "Messages": values}, {})


def _parsed(text: str) -> list[Any]:
    """Texts, and actions as (words, then, otherwise)."""
    pieces: list[tuple[str, str]] = []
    last = 0
    for found in _ACTION.finditer(text):
        pieces += [("text", text[last : found.start()]), ("do", found[1])]
        last = found.end()
    nodes, stopped = _nodes(iter([*pieces, ("text", text[last:])]))
    assert stopped is None
    return nodes


def _nodes(pieces: Iterator[tuple[str, str]]) -> tuple[list[Any], str | None]:
    """Until {{ end }} or {{ else … }}, which is returned too."""
    nodes: list[Any] = []
    for kind, content in pieces:
        if kind == "text":
            assert "{{" not in content
            assert "}}" not in content
            nodes.append(content)
        elif content == "end" or content.startswith("else"):
            return nodes, content
        elif content.startswith(_OPENS):
            nodes.append(_branch(content, pieces))
        else:
            nodes.append((content, None, None))
    return nodes, None


def _branch(content: str, pieces: Iterator[tuple[str, str]]) -> Any:
    then, stopped = _nodes(pieces)
    otherwise: list[Any] = []
    if stopped is not None and stopped.startswith("else if "):
        otherwise = [_branch(stopped.removeprefix("else "), pieces)]
    elif stopped == "else":
        otherwise, stopped = _nodes(pieces)
        assert stopped == "end"
    else:
        assert stopped == "end"
    return content, then, otherwise


def _run(nodes: list[Any], dot: Any, names: dict[str, Any]) -> str:
    names.setdefault("$", dot)
    out = []
    for node in nodes:
        if isinstance(node, str):
            out.append(node)
            continue
        content, then, otherwise = node
        if content.startswith("if "):
            out.append(_run(then if _value(content[3:], dot, names) else otherwise, dot, names))
        elif content.startswith("range "):
            names_of, pipeline = content.removeprefix("range ").split(" := ")
            index, element = names_of.split(", ")
            for place, item in enumerate(_value(pipeline, dot, names)):
                out.append(_run(then, item, {**names, index: place, element: item}))
        else:
            out.append(str(_value(content, dot, names)))
    return "".join(out)


def _value(pipeline: str, dot: Any, names: Mapping[str, Any]) -> Any:
    words = _WORD.findall(pipeline)
    value, rest = _call(words, dot, names)
    assert not rest
    return value


def _call(words: list[str], dot: Any, names: Mapping[str, Any]) -> tuple[Any, list[str]]:
    head, rest, values = words[0], words[1:], []
    if head not in _FUNCTIONS:
        return _operand(words, dot, names)
    while rest and rest[0] != ")":
        value, rest = _operand(rest, dot, names)
        values.append(value)
    return _FUNCTIONS[head](*values), rest


def _operand(words: list[str], dot: Any, names: Mapping[str, Any]) -> tuple[Any, list[str]]:
    head, rest = words[0], words[1:]
    if head == "(":
        value, rest = _call(rest, dot, names)
        assert rest[0] == ")"
        return value, rest[1:]
    if head.startswith('"'):
        return head[1:-1], rest
    if head.isdigit():
        return int(head), rest
    if head.startswith("."):
        return dot[head[1:]], rest
    name, _, field = head.partition(".")
    return (names[name][field] if field else names[name]), rest


_FUNCTIONS = {
    "eq": lambda a, b: a == b,
    "gt": lambda a, b: a > b,
    "len": len,
    "slice": lambda values, start: values[start:],
}
