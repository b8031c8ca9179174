"""What a template shows of itself on chats that we made up: the header of an answer, and what closes one.

Looked at once per template. Only tokens are learned: texts that the caller named as added tokens of the tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from outlive.text.chat import Chat, common_length
from outlive.text.presence import Data, find_data
from outlive.text.refusal import Refusal
from outlive.text.tags import Tag, tags
from outlive.text.template import ChatTemplate, Message, TemplateError

# Answers and questions that share no word and no beginning, so that what is equal around them is the template's.
_TALKS = (
    ("Where do swifts nest?", "Under old roofs."),
    ("Name a noble gas", "Argon"),
    ("7 * 6", "forty-two, as ever"),
)
TOOL = {
    "type": "function",
    "function": {
        "name": "find_bird",
        "description": "Finds a bird",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "where"}},
            "required": ["place"],
        },
    },
}
_ROLE_NAMES = ("assistant", "model", "chatbot", "bot", "gpt", "ai")


class Learned(NamedTuple):
    """header: the text between the messages before an answer and the answer, the same in all chats and made of tokens
    and role names; None where there is no such text. ends: tokens that close an answer. next_end, next_end_of_call: the
    token with which a question, or a tool's result, begins after it, where nothing else closes an answer.
    answers_at_once: a plain answer has no header at all, so what stands before data is the answer's. next_prompt: what
    the template writes after an answer that stands last, though it is the beginning of the next one."""

    header: str | None
    ends: tuple[str, ...]
    next_end: str | None
    next_end_of_call: str | None
    answers_at_once: bool
    next_prompt: str = ""


class _Seen(NamedTuple):
    """One answer: the text before it since the messages before; what closes it; what follows, where a message does."""

    header: str | None
    rest: str
    after: str | None


def learn(template: ChatTemplate) -> Learned:
    """What the template shows; kept with the template."""
    if template.learned is None:
        template.learned = _learn(template)
    found: Learned = template.learned
    return found


def _learn(template: ChatTemplate) -> Learned:
    plain = _looks(_plain_chats(template, None)) or _looks(_plain_chats(template, [TOOL]))
    if not plain:
        return Learned(None, (), None, None, False)
    header = _only(one.header for one in plain)
    always = _always_prompted(template, plain)
    declared = any(end in one.rest for one in plain for end in template.end_of_turn)
    closing = always.end if always is not None else _closing(plain, template.added_tokens)
    ends = [] if declared or closing is None else [closing]
    calls = _looks(_calling_chats(template))
    question = result = None
    if not declared and not ends:
        question, result = (_only(_begins(one.after, template) for one in seen if one.after) for seen in (plain, calls))
    call_end = _call_end(calls, (*template.end_of_turn, *ends), template.added_tokens, always)
    if call_end is not None and (declared or ends or (result is None and _closes(call_end))):
        ends.append(call_end)
    at_once = header is not None and not any(name in header.lower() for name in _ROLE_NAMES) and _opens_only(header)
    header = header if header is not None and _is_header(header, template) and not at_once else None
    prompt = always.prompt if always is not None else ""
    return Learned(header, tuple(ends), question, result, at_once or always is not None, prompt)


class _Always(NamedTuple):
    """A template that writes the next prompt after every answer: the prompt, and the token that closes an answer."""

    prompt: str
    end: str | None


def _always_prompted(template: ChatTemplate, plain: Sequence[_Seen]) -> _Always | None:
    """Whether the text of a chat that ends with an answer goes on with what stands at the end of every prompt."""
    if any(one.after for one in plain):
        return None
    chats = [chat for chat, _ in _plain_chats(template, None)][:2]
    try:
        last, further = (chat.full[_data_end(chat) :] for chat in chats)
        before = chats[0].before(1)
    except (Refusal, TemplateError):
        return None
    same = common_length(last, further)
    found = [tag for tag in tags(last) if tag.end <= same and last[tag.start : tag.end] in template.known_tokens]
    while found and found[-1].kind == "opens":
        found.pop()
    place = found[-1].end if found else same
    prompt = last[place:].lstrip()
    if not prompt or not before.endswith(prompt):
        return None
    end = last[found[-1].start : place] if found and found[-1].kind == "closes" else None
    return _Always(prompt, end if end in template.added_tokens else None)


def _data_end(chat: Chat) -> int:
    data = find_data(chat.trace, 1, 0, len(chat.full))
    return data.end if isinstance(data, Data) else len(chat.full)


def _call_end(
    calls: Sequence[_Seen], known: Sequence[str], tokens: Sequence[str], always: _Always | None
) -> str | None:
    """The token that closes an answer with a call, where none of the known ones does."""
    rests = [one.rest.removesuffix(always.prompt) if always is not None else one.rest for one in calls]
    return _only(_last_token(rest, tokens) for rest in rests if not any(end in rest for end in known))


def _closes(token: str) -> bool:
    return any(tag.kind == "closes" for tag in tags(token))


def _only(values: Iterable[str | None]) -> str | None:
    """The value that all are equal to, if they are."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _closing(seen: Sequence[_Seen], tokens: Sequence[str]) -> str | None:
    """The token that stands last after each answer. Where no message ever follows the text of a chat that ends with an
    answer as it is, what stands last may be no end at all, but the next prompt: then it has to be the only token."""
    closing = _only(_last_token(one.rest, tokens) for one in seen)
    if closing is None or any(one.after for one in seen):
        return closing
    return closing if all(_last_token(one.rest.replace(closing, "", 1), tokens) is None for one in seen) else None


def _looks(chats: Iterable[tuple[Chat, int]]) -> list[_Seen]:
    return [found for chat in chats if (found := _look(*chat)) is not None]


def _plain_chats(template: ChatTemplate, tools: list[Message] | None) -> Iterator[tuple[Chat, int]]:
    """Chats with the place of the answer to look at: at the end, and with a question after it."""
    for (asked, said), (further, _) in zip(_TALKS, (*_TALKS[1:], _TALKS[0]), strict=True):
        messages: list[Message] = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
        yield Chat(template, messages, tools), 1
        yield Chat(template, [*messages, {"role": "user", "content": further}], tools), 1


def _calling_chats(template: ChatTemplate) -> Iterator[tuple[Chat, int]]:
    """The same for an answer that calls a tool, with its arguments in both forms."""
    for arguments in ({"place": "Oslo"}, '{"place": "Oslo"}'):
        call = {"id": "call12345", "type": "function", "function": {"name": "find_bird", "arguments": arguments}}
        messages: list[Message] = [
            {"role": "user", "content": "Which bird is it?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        result = {"role": "tool", "name": "find_bird", "tool_call_id": "call12345", "content": "a wren"}
        yield Chat(template, messages, [TOOL]), 1
        yield Chat(template, [*messages, result], [TOOL]), 1


def _look(chat: Chat, turn: int) -> _Seen | None:
    try:
        before, through, full = chat.before(turn), chat.through(turn), chat.full
        low = len(before) if full.startswith(before) else 0
        data = find_data(chat.trace, turn, low, min(len(full), len(through)))
    except (Refusal, TemplateError):
        return None
    if not isinstance(data, Data) or not data.runs or not full.startswith(through):
        return None
    header = full[low : data.start] if low else None
    return _Seen(header, through[data.end :], full[len(through) :] if turn < len(chat.messages) - 1 else None)


def _last_token(text: str, tokens: Sequence[str]) -> str | None:
    """The token that stands last in a text, the longest of them."""
    found = [(text.rfind(token) + len(token), len(token), token) for token in tokens if token in text]
    return max(found)[2] if found else None


def _begins(text: str | None, template: ChatTemplate) -> str | None:
    """The token with which a text begins, the longest of them."""
    rest = (text or "").lstrip()
    tokens = {*template.added_tokens, *template.end_of_turn} - {template.special_tokens.get("bos_token")}
    return max((token for token in tokens if rest.startswith(token)), key=len, default=None)


def _opens_only(header: str) -> bool:
    """Whether a text is white space and tags that open something: an answer may begin so, no message before ends so."""
    found = tags(header)
    rest = "".join(header[a:b] for a, b in _between(found, len(header)))
    return not rest.strip() and all(tag.kind == "opens" for tag in found)


def _between(found: Sequence[Tag], end: int) -> Iterator[tuple[int, int]]:
    place = 0
    for tag in found:
        yield place, tag.start
        place = tag.end
    yield place, end


def _is_header(header: str, template: ChatTemplate) -> bool:
    """Whether a text consists of tokens, role names and white space, with at least one token."""
    rest, tokens = header, (*template.known_tokens, *template.special_tokens.values())
    for token in sorted({token for token in tokens if token}, key=len, reverse=True):
        rest = rest.replace(token, "\n")
    words = rest.split()
    return rest != header and all(word.strip(":<|>").lower() in _ROLE_NAMES for word in words)
