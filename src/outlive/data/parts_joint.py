"""What stands between two text parts of one message: as the template writes it, or as servers join them."""

from __future__ import annotations

from outlive.data.conversation import PARTS_JOINT
from outlive.run.errors import InputError
from outlive.text.template import ChatTemplate

_WORDS = ("vq1part1zk", "vq1part2zk")


def parts_joint(template: ChatTemplate) -> str:
    """What the template writes between two text parts; a line break for one that takes text only, as servers do."""
    parts = [{"type": "text", "text": word} for word in _WORDS]
    try:
        text = template.render([{"role": "user", "content": parts}])
    except InputError:
        return PARTS_JOINT
    first, second = (text.find(word) for word in _WORDS)
    between = text[first + len(_WORDS[0]) : second]
    plain = 0 <= first < second and "text" not in between and not set(between) & set("{}[]'\"")
    return between if plain else PARTS_JOINT
