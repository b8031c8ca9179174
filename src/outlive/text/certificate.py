"""A certificate: what a template does with conversations of every shape, found out once and kept by hash.

It decides nothing about a row (each row is proved on its own, by `written`); it says which form of data a template was
written for, and what its user is to expect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from outlive.run.files import hash_json, write_atomic
from outlive.run.home import outlive_home
from outlive.text.chat import Chat
from outlive.text.learned import learn
from outlive.text.refusal import Refusal
from outlive.text.shapes import SHAPES, Shape
from outlive.text.template import ChatTemplate
from outlive.text.written import Written, written

Kind = Literal["append_only", "rewrites_history", "no_end_of_turn", "refused"]
Arguments = Literal["object", "text", "either"]
VERSION = 1
_OBJECT, _TEXT = "tools", "tools, arguments as text"


@dataclass(frozen=True)
class Certificate:
    """kind: 'append_only': a conversation is one text with all its turns. 'rewrites_history': some shapes are exact one
    turn at a time only. 'no_end_of_turn': nothing closes an answer. 'refused': plain chats have no proved mask.
    arguments: the form in which the template wants the arguments of tool calls. shapes: how each shape of SHAPES is
    trained (`Written.how`), or the reason why it is refused. ends: what closes an answer; of these, learned_ends are no
    declared ends of the tokenizer: a server stops there only if it is told to. header: see `Learned`.
    """

    kind: Kind
    arguments: Arguments
    drops_tool_calls: bool
    takes_system: bool
    takes_tools: bool
    ends: tuple[str, ...] = ()
    learned_ends: tuple[str, ...] = ()
    header: str | None = None
    shapes: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, str] = field(default_factory=dict)


def certify(template: ChatTemplate) -> Certificate:
    """The certificate of a template with its tokens. Raises TemplateError where it is stopped at a limit."""
    known = template.certificate
    if known is None:
        file = _file(template)
        known = _read(file) or _made(template)
        _keep(file, known)
        template.certificate = known
    found: Certificate = known
    return found


def look(template: ChatTemplate) -> dict[str, list[Written] | Refusal]:
    """What is trained of each shape, or why it is refused."""
    return {name: _tried(template, shape) for name, shape in SHAPES.items()}


def _tried(template: ChatTemplate, shape: Shape) -> list[Written] | Refusal:
    try:
        return written(template, shape.messages, tools=shape.tools)
    except Refusal as refusal:
        return refusal


def _made(template: ChatTemplate) -> Certificate:
    found = look(template)
    shapes = {name: one.reason if isinstance(one, Refusal) else one[-1].how for name, one in found.items()}
    details = {name: one.detail for name, one in found.items() if isinstance(one, Refusal)}
    learned = learn(template)
    following = tuple(filter(None, (learned.next_end, learned.next_end_of_call)))
    return Certificate(
        kind=_kind(found),
        arguments=_arguments(found),
        drops_tool_calls=all(_drops(found[name]) for name in (_OBJECT, _TEXT)),
        takes_system=_prints(template, SHAPES["system"], "You are laconic."),
        takes_tools=_prints(template, SHAPES[_OBJECT], "Finds a bird"),
        ends=tuple(dict.fromkeys((*learned.ends, *following, *_used(found, template)))),
        learned_ends=tuple(end for end in (*learned.ends, *following) if end not in template.end_of_turn),
        header=learned.header,
        shapes=shapes,
        details=details,
    )


def _kind(found: Mapping[str, list[Written] | Refusal]) -> Kind:
    plain = found["plain"]
    if isinstance(plain, Refusal):
        return "no_end_of_turn" if plain.reason == "no_end_of_turn" else "refused"
    # two answers in a row are no history: the first has no end where the next role's token is one
    made = [texts for name, texts in found.items() if not isinstance(texts, Refusal) and name != "two answers in a row"]
    one_by_one = any(one.how in ("unrolled", "served") for texts in made for one in texts)
    return "rewrites_history" if one_by_one else "append_only"


def _arguments(found: Mapping[str, list[Written] | Refusal]) -> Arguments:
    as_object, as_text = (isinstance(found[name], Refusal) for name in (_OBJECT, _TEXT))
    if as_object == as_text:
        return "either" if not as_object else _by_reason(found)
    return "text" if as_object else "object"


def _by_reason(found: Mapping[str, list[Written] | Refusal]) -> Arguments:
    """Where both forms are refused: the one that is refused for something else than its form."""
    lost = ("template_error", "python_notation", "arguments_escaped", "content_not_rendered")
    reasons = [one.reason if isinstance(one := found[name], Refusal) else "" for name in (_OBJECT, _TEXT)]
    return "text" if reasons[0] in lost and reasons[1] not in lost else "object"


def _drops(found: list[Written] | Refusal) -> bool:
    return isinstance(found, Refusal) and found.reason == "content_not_rendered" and ".tool_calls[" in found.detail


def _prints(template: ChatTemplate, shape: Shape, text: str) -> bool:
    try:
        return text in Chat(template, shape.messages, shape.tools).full
    except Refusal:
        return False


def _used(found: Mapping[str, list[Written] | Refusal], template: ChatTemplate) -> list[str]:
    """The declared ends of turn with which answers end."""
    closed = [
        one.text[: span.end]
        for texts in found.values()
        if not isinstance(texts, Refusal)
        for one in texts
        for span in one.spans
    ]
    return [end for end in template.end_of_turn if any(text.endswith(end) for text in closed)]


def _file(template: ChatTemplate) -> Path:
    key = {
        "version": VERSION,
        "source": template.source,
        "tool_source": template.tool_source,
        "special_tokens": template.special_tokens,
        "end_of_turn": template.end_of_turn,
        "added_tokens": template.added_tokens,
        "known_tokens": sorted(template.known_tokens),
        "kwargs": template.kwargs,
    }
    return outlive_home() / "certificates" / f"{hash_json(key)}.json"


def _read(file: Path) -> Certificate | None:
    """The certificate that is kept in a file; None where there is none that can be read."""
    try:
        value: dict[str, Any] = json.loads(file.read_text("utf-8"))
        value |= {name: tuple(value[name]) for name in ("ends", "learned_ends")}
        found = Certificate(**value)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    sound = found.kind in get_args(Kind) and found.arguments in get_args(Arguments) and set(found.shapes) == set(SHAPES)
    return found if sound else None


def _keep(file: Path, certificate: Certificate) -> None:
    if file.exists():
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(asdict(certificate), ensure_ascii=False, indent=1))
    except OSError:  # a cache: without it the next process finds out again
        return
