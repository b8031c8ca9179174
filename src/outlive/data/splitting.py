"""Pairs without a prompt of their own: where the prompt that both share ends. At a message, never inside a word."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from outlive.data.conversation import Messages
from outlive.text.refusal import Refusal

_HUMAN = re.compile(r"(?:^|\n\n)(Human|Assistant): ?")


class Split(NamedTuple):
    """What both share, and what is each one's own."""

    prompt: Any
    chosen: Any
    rejected: Any


def split_messages(chosen: Messages, rejected: Messages) -> Split:
    """The common messages before the first assistant turn that differs. Raises Refusal where there is none."""
    if chosen == rejected:
        raise Refusal("identical_pair", "chosen and rejected hold the same messages")
    shared = 0
    while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
        shared += 1
    while shared and not _answers(chosen, rejected, shared):
        shared -= 1
    if not shared or not _answers(chosen, rejected, shared):
        raise Refusal("bad_pair", "chosen and rejected share no prompt that an assistant turn follows in both")
    return Split(chosen[:shared], chosen[shared:], rejected[shared:])


def _answers(chosen: Messages, rejected: Messages, place: int) -> bool:
    """Whether an assistant turn begins at `place` in both, after a turn that is not the assistant's."""
    both = (chosen, rejected)
    return all(place < len(turns) and turns[place]["role"] == "assistant" for turns in both) and (
        place == 0 or chosen[place - 1]["role"] != "assistant"
    )


def split_texts(chosen: str, rejected: str) -> Split:
    """The common beginning up to the last white space that stands there in both; it may be empty. Raises Refusal."""
    if chosen == rejected:
        raise Refusal("identical_pair", "chosen and rejected are the same text")
    place = 0
    for one, other in zip(chosen, rejected, strict=False):
        if one != other:
            break
        place += 1
    while place and not _between_words(chosen, rejected, place):
        place -= 1
    return Split(chosen[:place], chosen[place:], rejected[place:])


def _between_words(chosen: str, rejected: str, place: int) -> bool:
    """Whether, in both, a word ends before `place` and white space begins there."""
    inside = place < min(len(chosen), len(rejected))
    return inside and chosen[place].isspace() and rejected[place].isspace() and not chosen[place - 1].isspace()


def dialogue(text: str) -> Messages | None:
    """The turns of a text of the form "\\n\\nHuman: …\\n\\nAssistant: …", None for any other text."""
    marks = list(_HUMAN.finditer(text))
    if not marks or text[: marks[0].start()].strip() or marks[0][1] != "Human":
        return None
    turns = []
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        said = text[mark.end() : after.start() if after else len(text)]
        turns.append({"role": "user" if mark[1] == "Human" else "assistant", "content": said.strip()})
    return turns
