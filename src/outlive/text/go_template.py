"""A chat template in Go's template syntax, as Ollama takes it, where it is surely the same: no guess from names.

The template is looked at on a few chats, the text around their contents is taken for the form of every chat, and that
form has to give the template's own text, byte for byte, on other chats. Facts of Ollama: docs/template.mdx and
template/template.go (fb3076099): system messages are `.System`, messages of one role that follow each other are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from outlive.text.template import REASONING_KEYS, ChatTemplate, TemplateError

Chat = Sequence[Mapping[str, str]]
_SEEN = (
    "Where do swifts nest?",
    "Under old roofs.",
    "And rooks, in which trees?",
    "In tall elms.",
    "Since when, then?",
)
_RULE = "Be brief: birds only."
_OTHERS = (
    ("Hello", "Hi! What can I do?", "7 * 6 =", "42"),
    (
        "Zürich 🏔 liegt wo?",
        "in der Schweiz\n\n(ganz im Norden)",
        "a\tb  c",
        "- one\n- two",
        "{{ x }} {% y %}",
        "'\"\\ <b>&",
    ),
    ("user", "assistant", "system", "1", "```py\nprint(1)\n```", "[INST] no [/INST]", "?", "..."),
    ("Think", "<think>\nOne and one.\n</think>\n\nTwo", "Go on", "<think></think>three", "And?"),
    ("Again", "<|channel>thought\nOne.\n<channel|>Two", "And", "[THINK]Two.[/THINK]Three", "And then?"),
)
_RULES = ("Answer in French.", "Line one\n\nline two", "ünïcode {{ x }}")
_EDGES = "  two spaces before, a line after\n"


class GoTemplate(NamedTuple):
    """text: of TEMPLATE. system: what the template says where a chat has no system message of its own; None: nothing.
    system_refused: chats with a system message are refused by the template, so there is no place for one.
    trims: the template takes white space off the ends of contents, which Go's can't."""

    text: str
    system: str | None
    system_refused: bool
    trims: bool


class _Form(NamedTuple):
    """What stands around the contents: `start` before all; with a system message `before_system` and `after_system`
    instead (None: it is refused; `last`: it stands in the last question); `answer` between a question and its answer,
    `question` between an answer and the next question, of which `end` closes the answer; `prompt` behind the last."""

    start: str
    before_system: str | None
    after_system: str
    last: bool
    answer: str
    end: str
    question: str
    prompt: str


def go_template(template: ChatTemplate, drop_bos: str | None = None) -> GoTemplate | str:
    """The template for Ollama, or why there is none. drop_bos: the token that Ollama puts before every text by itself,
    so that the template must not."""
    if template.uses_date:
        return "it tells the day, which Go's templates write otherwise"
    try:
        form = _looked(template)
    except (TemplateError, ValueError) as error:
        return getattr(error, "detail", str(error))
    default = _default_system(template, form)
    if default is not None:
        form = form._replace(start="")  # the default is written as SYSTEM: every chat has one
    if odd := _differs(template, form, default):
        return odd
    trims = _trims(template, form, default)
    if trims is None:
        return "it changes white space at the ends of contents"
    if drop_bos:
        bare = _without(form, drop_bos, default)
        if bare is None:
            return f"the tokenizer puts {drop_bos!r} before every text, and the template does not"
        form = bare
    text = _text(form, default)
    pieces = "".join(piece for piece in form if isinstance(piece, str))
    if '"""' in text + (default or "") or "{{" in pieces or not printable(text + (default or "")):
        return "it has characters that a Modelfile can't hold"
    return GoTemplate(text, default, form.before_system is None, trims)


def _served(template: ChatTemplate, messages: Chat) -> str:
    return template.render_plain([dict(message) for message in messages], add_generation_prompt=True)


def talk(contents: Sequence[str], system: str | None = None) -> list[dict[str, str]]:
    """A chat that begins and ends with a question."""
    turns = contents if len(contents) % 2 else contents[:-1]
    roles = ("user", "assistant")
    rule = [] if system is None else [{"role": "system", "content": system}]
    return rule + [{"role": roles[place % 2], "content": content} for place, content in enumerate(turns)]


def _around(text: str, contents: Sequence[str]) -> list[str]:
    """The pieces of a text between contents that stand in it once, in their order."""
    places = [text.find(content) for content in contents]
    if any(text.count(content) != 1 for content in contents) or places != sorted(places):
        raise ValueError("it leaves contents out, repeats them, or changes their order")
    ends = [place + len(content) for place, content in zip(places, contents, strict=True)]
    return [
        text[: places[0]],
        *(text[end:start] for end, start in zip(ends, places[1:], strict=False)),
        text[ends[-1] :],
    ]


def _looked(template: ChatTemplate) -> _Form:
    start, answer, question, *_, prompt = _around(_served(template, talk(_SEEN)), _SEEN)
    try:
        text = _served(template, talk(_SEEN, _RULE))
    except TemplateError:
        return _formed(template, start, None, "", False, answer, question, prompt)
    last = _SEEN[0] in text and _RULE in text and text.find(_RULE) > text.find(_SEEN[0])
    if not last:
        before, after, *_ = _around(text, (_RULE, *_SEEN))
        return _formed(template, start, before, after, False, answer, question, prompt)
    pieces = _around(text, (*_SEEN[:-1], _RULE, _SEEN[-1]))
    if not pieces[-3].startswith(question):
        raise ValueError("it puts the system message into the last question, in a way that is not known here")
    return _formed(template, start, pieces[-3].removeprefix(question), pieces[-2], True, answer, question, prompt)


def _formed(
    template: ChatTemplate,
    start: str,
    before: str | None,
    after: str,
    last: bool,
    answer: str,
    question: str,
    prompt: str,
) -> _Form:
    """`end`: what of `question` closes the answer: not the beginning of the next question, cut where no token is."""
    first = after if before is not None and not last and question.endswith(_tail(after, question)) else start
    begins = max(_tail(start, question), _tail(first, question), key=len)
    cut = len(question) - len(begins)
    for token in template.known_tokens:
        place = question.find(token)
        while place >= 0:
            if place < cut < place + len(token):
                cut = place + len(token)
            place = question.find(token, place + 1)
    return _Form(start, before, after, last, answer, question[:cut], question[cut:], prompt)


def _tail(one: str, other: str) -> str:
    """The longest end that both have."""
    length = 0
    while length < min(len(one), len(other)) and one[-1 - length] == other[-1 - length]:
        length += 1
    return one[len(one) - length :]


def _default_system(template: ChatTemplate, form: _Form) -> str | None:
    """The system message that the template takes where there is none."""
    if form.before_system is None or form.last or not form.start.startswith(form.before_system):
        return None
    if not form.after_system or not form.start.endswith(form.after_system):
        return None
    low, high = len(form.before_system), len(form.start) - len(form.after_system)
    if high <= low:
        return None
    default = form.start[low:high]
    same = _served(template, talk(_SEEN)) == _served(template, talk(_SEEN, default))
    return default if same else None


def _differs(template: ChatTemplate, form: _Form, default: str | None) -> str | None:
    """What of the chats the form gets wrong."""
    rules: list[str | None] = [None, *([] if form.before_system is None else _RULES)]
    for contents in (*_OTHERS, *(chat[:1] for chat in _OTHERS), _SEEN[:3]):
        for rule in rules:
            try:
                theirs = _served(template, talk(contents, rule))
            except TemplateError as error:
                return f"it refuses a plain chat: {error.detail}"
            if theirs != _rendered(form, talk(contents, rule or default)):
                thinks = any("think" in content or "thought" in content for content in contents)
                return "it takes reasoning out of answers" if thinks else "its turns are not all written alike"
    return "it writes the reasoning of answers" if _reasons(template) else None


def _reasons(template: ChatTemplate) -> bool:
    """Whether it reads more of an answer than its content."""
    plain = talk(_SEEN)
    named = [{**message, **{key: _RULE for key in REASONING_KEYS if message["role"] != "user"}} for message in plain]
    try:
        return _served(template, named) != _served(template, plain)
    except TemplateError:
        return True


def _rendered(form: _Form, messages: Chat) -> str:
    """A chat that ends with a question, as the form says."""
    system = messages[0]["content"] if messages[0]["role"] == "system" else None
    turns = messages if system is None else messages[1:]
    parts = [form.start] if system is None or form.last else [form.before_system or "", system, form.after_system]
    for place, message in enumerate(turns):
        if form.last and system is not None and place == len(turns) - 1:
            parts += [form.before_system or "", system, form.after_system]
        parts.append(message["content"])
        if place == len(turns) - 1:
            parts.append(form.prompt)
        else:
            parts += [form.answer] if message["role"] == "user" else [form.end, form.question]
    return "".join(parts)


def _trims(template: ChatTemplate, form: _Form, default: str | None) -> bool | None:
    """Whether white space at the ends of contents is kept (False) or taken away everywhere (True)."""
    edged = [_EDGES, _EDGES[1:], "y" + _EDGES]
    text = _served(template, talk(edged))
    for trims, contents in ((False, edged), (True, [content.strip() for content in edged])):
        if text == _rendered(form, talk(contents, default)):
            return trims
    return None


def _without(form: _Form, bos: str, default: str | None) -> _Form | None:
    starts = [form.start] * (default is None) + [form.before_system] * (
        form.before_system is not None and not form.last
    )
    if not all(start is not None and start.startswith(bos) for start in starts):
        return None
    before = form.before_system if form.last or form.before_system is None else form.before_system.removeprefix(bos)
    return form._replace(start=form.start.removeprefix(bos), before_system=before)


def _text(form: _Form, default: str | None) -> str:
    """As Go's syntax."""
    is_last = "{{ if eq (len (slice $.Messages $i)) 1 }}"
    system = f"{form.before_system}{{{{ $.System }}}}{form.after_system}"
    start, within = form.start, ""
    if form.before_system is not None and form.last:
        within = "{{ if $.System }}" + is_last + system + "{{ end }}{{ end }}"
    elif form.before_system is not None:
        start = "{{ if .System }}" + system + ("{{ else }}" + start if start else "") + "{{ end }}"
    after = form.answer
    if form.answer != form.prompt:
        after = is_last + form.prompt + "{{ else }}" + form.answer + "{{ end }}"
    not_last = "{{ if gt (len (slice $.Messages $i)) 1 }}"
    return (
        start + "{{ range $i, $_ := .Messages }}"
        '{{ if eq .Role "user" }}' + within + "{{ .Content }}" + after
        + '{{ else if eq .Role "assistant" }}{{ .Content }}' + not_last + form.end + form.question
        + "{{ end }}{{ end }}{{ end }}"
    )  # fmt: skip


def printable(text: str) -> bool:
    """Whether a Modelfile can hold it: Ollama's parser drops other characters (parser/parser.go)."""
    return all(letter.isprintable() or letter in "\n\t" for letter in text)
