"""Credentials in URLs (https://user:token@host): found, so that they are refused, and taken out of what is shown."""

from __future__ import annotations

import re
from typing import Any

_IN_URL = re.compile(r"://[^/\s@]*(?:@[^/\s@]*)*@")


def has_credentials(text: str) -> bool:
    """Whether a URL in `text` names a user or a token."""
    return _IN_URL.search(text) is not None


def without_credentials(value: Any) -> Any:
    """`value` with the user part of every URL taken out, in texts at any depth of lists and dicts."""
    if isinstance(value, str):
        return _IN_URL.sub("://", value)
    if isinstance(value, dict):
        return {without_credentials(key): without_credentials(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_credentials(item) for item in value]
    return value
