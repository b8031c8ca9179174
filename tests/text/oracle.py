"""What a mask has to be, found out with plain renders alone: nothing here uses the code that makes masks."""

from __future__ import annotations

import json

from outlive.text.prompt import served_prompt
from outlive.text.spans import Span
from outlive.text.template import ChatTemplate, TemplateError
from outlive.text.written import Written
from tests.text.conversations import Message, user

ROLE_NAMES = ("assistant", "model", "bot", "chatbot", "ai")


def squash(text: str) -> str:
    return "".join(text.split())


def words_of(message: Message) -> list[str]:
    """What of a message has to stand in its span, whatever the template: visible words of its text and its calls."""
    content = message.get("content") or ""
    texts = [content] if isinstance(content, str) else [part["text"] for part in content]
    texts += [message[key] for key in ("reasoning_content", "reasoning", "thinking") if key in message]
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        texts += [call["function"]["name"], *arguments]
        texts += [str(leaf) for value in arguments.values() for leaf in (value if isinstance(value, list) else [value])]
    return [word for text in texts for word in text.split() if word not in ("<think>", "</think>")]


def render(template: ChatTemplate, messages: list[Message], tools: list[Message] | None) -> str | None:
    try:
        return template.render(messages, tools=tools)
    except TemplateError:
        return None


def holds(template: ChatTemplate, messages: list[Message], tools: list[Message] | None) -> bool:
    """Whether each answer, rendered as the last message, stands whole in what it adds to the messages before it."""
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            without = render(template, [*messages[:place], {"role": "assistant", "content": ""}], tools) or ""
            own = render(template, messages[: place + 1], tools) or ""
            for word in words_of(message):
                if squash(own).count(squash(word)) <= squash(without).count(squash(word)):
                    return False
    return True


def closes(template: ChatTemplate, messages: list[Message], tools: list[Message] | None, tokens: list[str]) -> bool:
    """Whether a token stands after each answer, or the next message begins with one."""
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        own = render(template, messages[: place + 1], tools) or ""
        last = max((own.rfind(word) + len(word) for word in words_of(message) if word in own), default=0)
        following = messages[place + 1] if place + 1 < len(messages) else user("And then?")
        more = render(template, [*messages[: place + 1], following], tools) or ""
        begins = more.startswith(own) and more[len(own) :].lstrip().startswith(tuple(tokens))
        if not any(token in own[last:] for token in tokens) and not begins:
            return False
    return True


def check(
    template: ChatTemplate, messages: list[Message], tools: list[Message] | None, made: list[Written], tokens: list[str]
) -> None:
    """Assert all that can be said of the texts to train on without knowing how they were made."""
    turns = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    assert [span.turn for one in made for span in one.spans] == turns
    for one in made:
        done = 0
        for span in one.spans:
            assert done <= span.start < span.end <= len(one.text)
            done = span.end
            check_text(template, messages, tools, one, span.turn, tokens)
            check_span(template, messages, tools, one, span, tokens)
            ends = [token for token in tokens if one.text[span.start : span.end].endswith(token)]
            assert ends, one.text[span.start : span.end]
            assert one.text[span.start : span.end].count(max(ends, key=len)) == 1


def check_text(
    template: ChatTemplate,
    messages: list[Message],
    tools: list[Message] | None,
    one: Written,
    turn: int,
    tokens: list[str],
) -> None:
    """The text is a render: of the conversation, of its beginning, or the served prompt and the end of one."""
    last = len(one.spans) == 1 and not one.text.startswith(str(render(template, messages, tools)))
    whole = template.render(messages[: turn + 1] if last else messages, tools=tools)
    if one.how == "served":
        prompt = served_prompt(template, messages, tools, turn=turn)
        own = template.render(messages[: turn + 1], tools=tools)
        assert one.text.startswith(prompt)
        answer = one.text[len(prompt) :]
        assert own.endswith(answer) or any(own.endswith(answer.removesuffix(token)) for token in tokens)
    else:
        assert one.text.startswith(whole)
        assert one.text == whole or (one.how != "whole" and one.text[len(whole) :] in tokens)


def check_span(
    template: ChatTemplate,
    messages: list[Message],
    tools: list[Message] | None,
    one: Written,
    span: Span,
    tokens: list[str],
) -> None:
    """The span begins where the served prompt ends (or after a header of tokens, or at a mark), and holds all data."""
    text = one.text[span.start : span.end]
    prompt = served_prompt(template, messages, tools, turn=span.turn)
    assert one.text.startswith(prompt)
    between = one.text[len(prompt) : span.start]
    assert span.start >= len(prompt)
    if span.how == "header":
        words = between
        for token in tokens:
            words = words.replace(token, " ")
        assert words != between
        assert all(word in ROLE_NAMES for word in words.split())
    elif span.how != "generation":
        assert not between
    for word in words_of(messages[span.turn]):
        assert squash(word.removeprefix("<think>")) in squash(text), (word, text)
