"""The prompt of a turn as a server renders it: what training has to have as its prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outlive.text.template import ChatTemplate, plain_messages, plain_objects


def served_prompt(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    turn: int | None = None,
) -> str:
    """The text before an assistant turn, with the generation prompt: what a server gives to the model.

    turn: the place of that turn in `messages`. By default the last message, if that is an assistant turn; else the
    turn that would come next. Raises TemplateError.
    """
    if turn is None:
        turn = len(messages) - 1 if messages and messages[-1].get("role") == "assistant" else len(messages)
    plain = plain_messages(messages[:turn])
    return template.render_plain(plain, tools=plain_objects(tools, "tools"), add_generation_prompt=True)
