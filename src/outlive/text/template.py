"""Chat templates: conversation → text, byte for byte what transformers' apply_chat_template(tokenize=False) gives.

Only JSON data may be in messages, tools and documents. It is copied first, so a template can't change the caller's.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jinja2

from outlive.run.errors import InputError
from outlive.run.files import hash_json
from outlive.text.render import environment
from outlive.text.render.environment import MARK_END, MARK_START
from outlive.text.render.measure import LimitReached

if TYPE_CHECKING:
    from outlive.text.tokenizer import Tokenizer

Message = dict[str, Any]
_MAX_QUOTED = 1_000  # characters of what a template says of its failure
_ABSENT = {"tools": None, "documents": None, "add_generation_prompt": False}  # what a render without options is given
# Names under which a message's reasoning is given; templates read the first, some older ones the second.
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")


class TemplateError(InputError):
    """A chat template that can't be compiled, or that can't render a conversation.

    reason: 'syntax' | 'raised' (the template's own raise_exception) | 'failed' | 'empty' | 'not_json' | 'limit' (it was
    stopped: it does too much, see `limits`; a fault of the template, so no row is refused for it).
    """

    def __init__(self, reason: str, detail: str, where: str | None = None, fix: str | None = None) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"chat template: {detail}", where=where, fix=fix)

    def __reduce__(self) -> tuple[type[TemplateError], tuple[str, str, str | None, str | None]]:
        return type(self), (self.reason, self.detail, self.where, self.fix)


class ChatTemplate:
    """A compiled chat template with what it needs to render: special tokens, a date, further variables.

    special_tokens: name → text, visible to the template ('bos_token' …). end_of_turn: texts that end a turn, on which
    a server stops. date: 'YYYY-MM-DD', the day that strftime_now tells (None: now). kwargs: variables for every render.
    tool_source: another template, used when tools are given (models with a 'tool_use' template have one).
    added_tokens: further texts that are one token: what closes every answer of the template may be learned from them.
    known_tokens: all texts that are one token, of which a header may consist; no end of turn is learned from them.
    name: where the template is from, for errors: its file, or words such as "the tokenizer's template".
    Raises TemplateError('syntax') and, for a malformed date, InputError.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        end_of_turn: Sequence[str] = (),
        date: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        tool_source: str | None = None,
        name: str | None = None,
        added_tokens: Sequence[str] = (),
        known_tokens: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.source, self.tool_source, self.date = source, tool_source, date
        self.special_tokens = dict(special_tokens or {})
        self.end_of_turn = tuple(text for text in end_of_turn if text)
        self.added_tokens = tuple(dict.fromkeys(text for text in added_tokens if text))
        self.known_tokens = frozenset({*known_tokens, *self.added_tokens, *self.end_of_turn})
        self.kwargs = dict(kwargs or {})
        self.learned: Any = None  # what `learned.learn` found out
        self.certificate: Any = None  # what `certificate.certify` found out
        self.replays: Any = None  # what `replay` knows of structures
        self._day = None if date is None else _day(date)
        found = [_facts(text, name) for text in (source, tool_source) if text is not None]
        self.has_generation_marks = any(marked for marked, _ in found)
        self.uses_date = any("strftime_now" in names for _, names in found)
        self._instances: dict[tuple[environment.Mode, bool], jinja2.Template] = {}

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, source: str | None = None, date: str | None = None, name: str | None = None
    ) -> ChatTemplate:
        """The template of a tokenizer, or `source` (from the file `name`) with its special tokens. InputError if there
        is none."""
        tool_source = None
        if source is None:
            source, tool_source = tokenizer.chat_template, tokenizer.chat_templates.get("tool_use")
            name = f"the tokenizer's template, {tokenizer.folder}"
        if source is None:
            named = ", ".join(sorted(tokenizer.chat_templates))
            raise InputError(
                f"the tokenizer has no default chat template, only: {named}"
                if named
                else "the tokenizer has no chat template",
                where=str(tokenizer.folder),
                fix="name a template file: data.chat_template, or --chat-template",
            )
        return cls(
            source,
            tokenizer.special_tokens,
            tokenizer.end_of_turn,
            date,
            tool_source=tool_source,
            name=name,
            added_tokens=tokenizer.given_tokens,
            known_tokens=tuple(tokenizer.added_tokens),
        )

    @cached_property
    def hash(self) -> str:
        """A hash of all that changes a render or what ends a turn."""
        day = (self.date or datetime.date.today().isoformat()) if self.uses_date else None
        return hash_json(
            {
                "source": self.source,
                "tool_source": self.tool_source,
                "special_tokens": self.special_tokens,
                "end_of_turn": sorted(self.end_of_turn),
                "date": day,
                **({"added_tokens": sorted(self.added_tokens)} if self.added_tokens else {}),
                "kwargs": self.kwargs,
            }
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **kwargs: Any,
    ) -> str:
        """The conversation as text. Raises TemplateError; a conversation without messages is refused."""
        plain = plain_messages(messages)
        if not plain:
            raise TemplateError("empty", "the conversation has no messages")
        return self.render_plain(
            plain,
            tools=plain_objects(tools, "tools"),
            documents=plain_objects(documents, "documents"),
            add_generation_prompt=add_generation_prompt,
            **kwargs,
        )

    def render_marked(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        **kwargs: Any,
    ) -> tuple[str, list[tuple[int, int]]]:
        """The conversation as text, and the [start, end) characters of each {% generation %} block in it.

        The text is that of `render`. No spans are given where marking would change it, or where blocks are nested.
        """
        options: dict[str, Any] = {"tools": plain_objects(tools, "tools"), **kwargs}
        options["add_generation_prompt"] = add_generation_prompt
        text = self.render(messages, **options)
        return text, self.marks(text, plain_messages(messages), **options)

    def marks(self, text: str, messages: list[Message], **options: Any) -> list[tuple[int, int]]:
        """The spans of the {% generation %} blocks in `text`, the render of plain `messages` with `options`."""
        if not self.has_generation_marks or MARK_START in text or MARK_END in text:
            return []
        try:
            unmarked, marks = _read_marks(self._run(messages, "marked", options))
        except TemplateError:  # a template that looks into the block's text, and can't bear the marks
            return []
        return marks if unmarked == text else []

    def render_plain(self, messages: list[Message], **options: Any) -> str:
        """As `render`, for messages and tools that are plain already (`plain_messages`); an empty list is allowed."""
        text: str = self._run(messages, "plain", options)
        return text

    def render_traced(self, messages: list[Message], **options: Any) -> str:
        """As `render_plain`; texts among the messages that carry their origin (`provenance`) carry it on."""
        text: str = self._run(messages, "traced", options)
        return text

    def render_symbolic(self, messages: list[Message], **options: Any) -> Any:
        """As `render_plain`, for texts among the messages that are not known (`symbolic`): an Unknown, or a text.
        Raises `symbolic.Looked` where the template looks at one of them."""
        return self._run(messages, "symbolic", options)

    def _run(self, messages: list[Message], mode: environment.Mode, options: dict[str, Any]) -> Any:
        variables = {**_ABSENT, **self.special_tokens, **self.kwargs, **options, "messages": messages}
        template = self._template(mode, with_tools=variables["tools"] is not None)
        try:
            return environment.render(template, variables)
        except environment.RaisedByTemplate as error:
            raise TemplateError("raised", f"it refuses this conversation: {str(error)[:_MAX_QUOTED]}") from error
        except LimitReached as error:
            raise _stopped(error, self.name, environment.line_of(error)) from error
        except Exception as error:  # the template is a program: whatever it raises is this row's fault or its own
            raise TemplateError("failed", f"{type(error).__name__}: {str(error)[:_MAX_QUOTED]}") from error

    def _template(self, mode: environment.Mode, with_tools: bool) -> jinja2.Template:
        with_tools = with_tools and self.tool_source is not None
        template = self._instances.get((mode, with_tools))
        if template is None:
            source = self.tool_source if with_tools and self.tool_source is not None else self.source
            template = environment.instance(source, mode, self._strftime_now)
            self._instances[mode, with_tools] = template
        return template

    def _strftime_now(self, format: str) -> str:
        return (self._day or datetime.datetime.now()).strftime(format)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_instances": {}, "replays": None}  # made again where needed


def _day(date: str) -> datetime.datetime:
    try:
        return datetime.datetime.strptime(date, "%Y-%m-%d")
    except ValueError as error:
        raise InputError(f"the date is {date!r}", fix="write it as YYYY-MM-DD, for example 2025-01-31") from error


def _stopped(error: LimitReached, name: str | None, line: int | None) -> TemplateError:
    at = "" if line is None else f", line {line}"
    return TemplateError("limit", f"stopped: {error.what}", f"{name or 'the chat template'}{at}", error.fix)


def _facts(source: str, name: str | None) -> tuple[bool, frozenset[str]]:
    try:
        environment.compiled(source, "plain")
        return environment.facts(source)
    except LimitReached as error:
        raise _stopped(error, name, None) from error
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError("syntax", f"line {error.lineno}: {error.message}", name) from error
    except Exception as error:  # for instance a nesting that Python can't compile
        raise TemplateError("syntax", f"{type(error).__name__}: {error}") from error


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """A copy of the messages as templates see them: keys with None left out, reasoning under each name it has."""
    rows = []
    for message in messages:
        is_plain = type(message) is dict and len(message) == 2
        if is_plain and type(message.get("role")) is str and type(message.get("content")) is str:
            rows.append(dict(message))  # as most are, at a fraction of the cost
            continue
        plain = _plain(message)
        if not isinstance(plain, dict):
            raise TemplateError("not_json", f"a message is a {type(message).__name__}, not an object")
        plain = {key: value for key, value in plain.items() if value is not None}
        reasoning = next((plain[key] for key in REASONING_KEYS if key in plain), None)
        if reasoning is not None:
            plain = {"thinking": reasoning, **plain, "reasoning_content": reasoning}
        rows.append(plain)
    return rows


def plain_objects(values: Sequence[Mapping[str, Any]] | None, what: str) -> list[dict[str, Any]] | None:
    """A copy of tools or documents; None stays None. Raises TemplateError when one of them is no object."""
    if values is None:
        return None
    plain = [_plain(value) for value in values]
    if not all(isinstance(value, dict) for value in plain):
        raise TemplateError("not_json", f"{what} are to be a list of objects")
    return plain


def _plain(value: Any) -> Any:
    # subclasses of str and int carry methods that the sandbox knows nothing of: back to the base types
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    raise TemplateError("not_json", f"a {type(value).__name__} is no JSON value")


def _read_marks(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Take the marks out of a marked render: the text, and the spans; no spans when marks are nested or unpaired."""
    pieces: list[str] = []
    marks: list[tuple[int, int]] = []
    length, sound = 0, True
    for place, part in enumerate(text.split(MARK_START)):
        inside, *after = part.split(MARK_END) if place else ("", part)
        sound = sound and len(after) == 1
        if place:
            marks.append((length, length + len(inside)))
        for piece in (inside, *after):
            pieces.append(piece)
            length += len(piece)
    return "".join(pieces), marks if sound else []
