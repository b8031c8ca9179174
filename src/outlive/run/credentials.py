"""Credentials (tokens, keys, URLs such as https://user:token@host): found, so that they are refused, and taken out of
what is shown or written. They come from the environment only."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_IN_URL = re.compile(r"://[^/\s@]*(?:@[^/\s@]*)*@")
# How the tokens of common services look, as their makers document it. A hash or a model's name is none of them.
_TOKENS = {
    "a Hugging Face token": r"hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}",
    "a GitHub token": r"gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
    "a GitLab token": r"glpat-[A-Za-z0-9_-]{20,}",
    "an API key": r"sk-[0-9a-f]{32,}|sk-(?=[\w-]*[A-Za-z0-9]{16})(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{20,}",
    "an AWS key": r"A(?:KI|SI)A[0-9A-Z]{16}",
    "a Slack token": r"xox[abeoprs]-(?=[\w-]*\d)[A-Za-z0-9-]{10,}",
    "a Google key": r"AIza[\w-]{35}",
    "a web token": r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}",
}
_TOKEN = re.compile(r"(?<![\w-])(?:" + "|".join(_TOKENS.values()) + r")")
_SECRET_KEYS = frozenset(
    {"token", "hf_token", "auth_token", "access_token", "api_token", "use_auth_token", "hf_hub_token", "hub_token"}
    | {"apikey", "api_key", "password", "passwd", "secret", "secret_key", "secret_access_key", "access_key_id"}
)
_SECRET_ENDINGS = ("_api_key", "_password", "_secret", "_secret_key", "_access_key", "_auth_token", "_hub_token")
_NAMES = r"[\w.-]*(?:token|api_?key|passw(?:or)?d|secret|secret_key|access_key)"
_SET = re.compile(rf"(?i)(?<![\w.-])({_NAMES}\s*=\s*)(['\"]?)([^\s'\",}}]+)")
_SET_IN_YAML = re.compile(rf"(?i)(?<![\w.-])({_NAMES}['\"]?\s*[:=]\s*)(['\"]?)([^\s'\",}}]+)")
_PLAIN = frozenset({"true", "false", "null", "none", "~"})
_SHOWN = 3


class Secret(NamedTuple):
    """A credential among values: the path of its key, what it is, and how it may be shown ("hf_…")."""

    path: tuple[Any, ...]
    what: str
    shown: str


def has_credentials(text: str) -> bool:
    """Whether `text` holds a URL that names a user or a token, or a token as common services give them out."""
    return _IN_URL.search(text) is not None or _TOKEN.search(text) is not None


def without_credentials(value: Any) -> Any:
    """`value` without the user part of every URL and with tokens cut to 3 characters, in texts at any depth of lists
    and dicts; what a text sets for a key that is a secret (password=…) is cut too."""
    if isinstance(value, str):
        return _SET.sub(_cut_value, _TOKEN.sub(lambda found: shortened(found.group()), _IN_URL.sub("://", value)))
    if isinstance(value, dict):
        return {without_credentials(key): without_credentials(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_credentials(item) for item in value]
    return value


def line_without_credentials(line: str) -> str:
    """A line of a run file or of a command line, as an error may show it: without what it sets for a secret key."""
    clean: str = without_credentials(line)
    return _SET_IN_YAML.sub(_cut_value, clean)


def find_secret(value: Any, path: tuple[Any, ...] = ()) -> Secret | None:
    """The first credential in nested values: a text that looks like one, or any value of a key that is a secret."""
    if isinstance(value, dict):
        found = (find_secret(item, (*path, key)) for key, item in value.items())
        return next((secret for secret in found if secret), None)
    if isinstance(value, list):
        found = (find_secret(item, (*path, place)) for place, item in enumerate(value))
        return next((secret for secret in found if secret), None)
    if isinstance(value, str) and has_credentials(value):
        return Secret(path, _kind(value), "" if _IN_URL.search(value) else without_credentials(value))
    if path and is_secret_key(path[-1]) and isinstance(value, str | int) and not isinstance(value, bool) and value:
        return Secret(path, "a secret", shortened(str(value)))
    return None


def is_secret_key(name: Any) -> bool:
    """Whether a key is one for credentials; `eos_token` and the like are not."""
    plain = str(name).lower().replace("-", "_")
    return plain in _SECRET_KEYS or plain.endswith(_SECRET_ENDINGS)


def shortened(secret: str) -> str:
    """The first characters of a secret, enough to know it again; nothing of a short one."""
    return f"{secret[:_SHOWN]}…" if len(secret) > 2 * _SHOWN else "…"


def _cut_value(found: re.Match[str]) -> str:
    key = re.split(r"[\s.:='\"]+", found[1].rstrip(" \t:='\""))[-1]
    if not is_secret_key(key) or found[3].lower() in _PLAIN or found[3].endswith("…"):
        return found[0]
    return found[1] + found[2] + shortened(found[3])


def _kind(text: str) -> str:
    if _IN_URL.search(text):
        return "a URL with credentials in it"
    return next(what for what, form in _TOKENS.items() if re.search(r"(?<![\w-])(?:" + form + ")", text))
