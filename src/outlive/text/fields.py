"""Lists and objects of a message that a template printed as Python would."""

from __future__ import annotations

import json

from outlive.text.template import Message


def python_notation(message: Message, text: str) -> str | None:
    """The path of a list or an object of the message that `text` holds in Python's notation, or None."""
    values = [("content", message.get("content"))]
    for place, call in enumerate(message.get("tool_calls") or []):
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict):
            values.append((f"tool_calls[{place}].arguments", function.get("arguments")))
    for name, value in values:
        if value and isinstance(value, list | dict) and str(value) != json.dumps(value) and str(value) in text:
            return name
    return None
