"""Messages of any dialect → messages in one form: known roles, text or text parts, tool calls as OpenAI writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from outlive.data.conversation import ROLES, Messages, MessageWeight
from outlive.data.json_text import parse_json
from outlive.data.naming import Naming
from outlive.data.parts import read_parts
from outlive.data.tool_calls import read_tool_calls
from outlive.data.weights import LOSS_KEYS, message_weight
from outlive.run.errors import nearest
from outlive.text.refusal import Refusal
from outlive.text.template import REASONING_KEYS

# Names of roles that mean one thing wherever they stand: ShareGPT's, and OpenAI's older one of a tool's result.
KNOWN_ROLES = {"human": "user", "gpt": "assistant", "function": "tool"}
# What other tools call them; only a guess, which a refusal tells.
_GUESSED_ROLES = {"bot": "assistant", "model": "assistant", "ai": "assistant", "observation": "tool"}
Path = tuple[str | int, ...]


class ReadMessages(NamedTuple):
    """Messages in our form and their weights, one each; no weights where no message has one."""

    messages: Messages
    weights: tuple[MessageWeight, ...]


def read_messages(value: Any, column: str, naming: Naming | None = None) -> ReadMessages:
    """The messages, checked and in one form: a non-empty list of objects with a known role and text. Raises Refusal.

    A list written as JSON text is read too.
    """
    if isinstance(value, str):
        value = _listed(value, column)
    if not isinstance(value, Sequence) or not value:
        raise Refusal("no_messages", f"'{column}' holds no message", (column,))
    messages: Messages = []
    weights: list[MessageWeight] = []
    has_weights = False
    for place, message in enumerate(value):
        if (
            naming is None
            and type(message) is dict
            and len(message) == 2
            and type(message.get("content")) is str
            and message.get("role") in ROLES
        ):
            messages.append(message)  # by far the commonest, and nothing is to be done about it
            weights.append(None)
            continue
        found, weight = _read(message, f"{column}[{place}]", (column, place), naming)
        messages += found
        weights += [weight] * len(found)
        has_weights = has_weights or weight is not None
    return ReadMessages(messages, tuple(weights) if has_weights else ())


def _listed(text: str, column: str) -> Any:
    if not text.lstrip().startswith("["):
        raise Refusal("no_messages", f"'{column}' is text, not a list of messages", (column,))
    try:
        return parse_json(text)
    except ValueError as error:
        raise Refusal("no_messages", f"'{column}' is text, and no JSON: {error}", (column,)) from None


def _read(message: Any, where: str, path: Path, naming: Naming | None) -> tuple[Messages, MessageWeight]:
    if not isinstance(message, Mapping):
        raise Refusal("bad_message", f"{where} is {kind_of(message)}, not an object with role and content", path)
    keys = naming.message_keys if naming is not None else dict[str, str]()
    said = {str(keys.get(key, key)): value for key, value in message.items() if value is not None}
    role = _role(said, where, path, naming)
    parts = read_parts(said.get("content"), where, (*path, "content"))
    weight = message_weight(said, parts, where, path)
    clean = {key: value for key, value in said.items() if key not in LOSS_KEYS} | {"role": role}
    _take_reasoning(clean, parts.reasoning, where, path)
    calls = read_tool_calls(clean, parts.calls, where, path)
    clean.pop("tool_calls", None)
    clean.pop("function_call", None)
    clean |= {"tool_calls": calls} if calls else {}
    if parts.results:
        return _with_results(clean, parts.texts, parts.results), weight
    if parts.texts is None:
        if not calls and not any(clean.get(key) for key in REASONING_KEYS):
            found = (*path, "content") if "content" in message else path
            raise Refusal("content_not_text", f"the content of {where} is {kind_of(message.get('content'))}", found)
        clean["content"] = ""  # None, absent and empty say the same
    else:
        clean["content"] = parts.texts if len(parts.texts) > 1 else parts.texts[0]["text"] if parts.texts else ""
    return [clean], weight


def _role(said: Mapping[str, Any], where: str, path: Path, naming: Naming | None) -> str:
    role = said.get("role")
    if naming is not None and isinstance(role, str) and role in naming.roles:
        return naming.roles[role]
    if isinstance(role, str):
        if role in ROLES:
            return role
        if role in KNOWN_ROLES:
            return KNOWN_ROLES[role]
    raise _unknown_role(said, where, path)


def _unknown_role(message: Mapping[str, Any], where: str, path: Path) -> Refusal:
    known = f"known: {', '.join(ROLES)}"
    if "role" not in message:
        other = "; 'from' and 'value' are ShareGPT's names of role and content" if "from" in message else ""
        return Refusal("unknown_role", f"{where} has no role{other}; {known}", path)
    role = message["role"]
    close = _GUESSED_ROLES.get(str(role).lower()) or nearest(str(role), ROLES)
    more = f"; did you mean {close}?" if close else "; data.train[].roles maps names"
    return Refusal("unknown_role", f"{where} has the role {role!r}; {known}{more}", (*path, "role"))


def _take_reasoning(message: dict[str, Any], from_parts: str | None, where: str, path: Path) -> None:
    """One reasoning under its first name. Raises Refusal where there are two, or where it is no text."""
    found = {key: message[key] for key in REASONING_KEYS if message.get(key)}
    if from_parts:
        found["content"] = from_parts
    for key, value in found.items():
        if not isinstance(value, str):
            raise Refusal("content_not_text", f"the {key} of {where} is {kind_of(value)}, not text", (*path, key))
    if len(set(found.values())) > 1:
        raise Refusal("two_reasonings", f"{where} has several, which differ: {', '.join(found)}", path)
    for key in REASONING_KEYS:
        message.pop(key, None)
    if found:
        message[REASONING_KEYS[0]] = next(iter(found.values()))


def _with_results(message: dict[str, Any], texts: Messages | None, results: Sequence[dict[str, Any]]) -> Messages:
    """Results of tools that stand among a user's parts are turns of their own, before what the user says."""
    said = [{**message, "content": texts if len(texts) > 1 else texts[0]["text"]}] if texts else []
    return [*results, *said]


def kind_of(value: Any) -> str:
    """What a value is, in words: 'missing', 'a list of parts', 'text' …"""
    kinds = {
        "NoneType": "missing",
        "list": "a list of parts",
        "str": "text",
        "dict": "an object",
        "bool": "true or false",
    }
    return kinds.get(type(value).__name__, "a number")
