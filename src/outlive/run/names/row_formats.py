"""How Axolotl's entries of `datasets` say what a row holds → our `format`, `fields` and `roles`.

Its types of instruction data name a prompt text, too, which is not reproduced (docs/formats.md): here only the columns
count. Types that are not listed are refused by name.
"""

from __future__ import annotations

from typing import Any

# Axolotl's type, without what follows a colon (the prompt's style) → our format; None: it is detected.
TYPES: dict[str, str | None] = {
    "chat_template": None,
    "completion": "text",
    "pretrain": "text",
    "sharegpt": "sharegpt",
    "sharegpt.load_role": "sharegpt",
    "pygmalion": "sharegpt",
    "input_output": "input_output",
    "alpaca": "alpaca",
    "alpaca_chat": "alpaca",
    "alpaca_chat.load_qa": "question_answer",
    "alpaca_chat.load_camel_ai": "camel_ai",
    "alpaca_instruct": "alpaca",
    "alpaca_w_system": "alpaca",
    "alpaca_w_system.load_instruct": "alpaca",
    "alpaca_w_system.load_chat": "alpaca",
    "alpaca_w_system.load_open_orca": "open_orca",
    "orcamini": "alpaca",
    "gpteacher": "gpteacher",
    "oasst": "oasst",
    "jeopardy": "jeopardy",
    "reflection": "reflection",
    "explainchoice": None,
    "concisechoice": None,
    "summarizetldr": "summarize_tldr",
    "context_qa": "article_qa",
    "context_qa.load_v2": "context_qa",
    "creative_acr.load_answer": "revision",
    "metharme": "metharme",
    "stepwise_supervised": "stepwise",
    "chat_template.default": "preference",
}
_FIELDS = {
    "field_messages": "messages",
    "field_system": "system",
    "field_tools": "tools",
    "field_thinking": "message.reasoning_content",
    "field_chosen": "chosen",
    "field_rejected": "rejected",
    "message_field_role": "message.role",
    "message_field_content": "message.content",
    "message_field_training": "message.train",
    "message_field_training_detail": "message.train_detail",
}


def row_format(item: dict[str, Any]) -> dict[str, Any]:
    """The entry with our keys in place of `type`, `field…`, `message_…` and of roles that list the source's names.

    A type that is not known stays, and is refused by its name.
    """
    entry = {key: value for key, value in item.items() if key not in (*_FIELDS, "type", "field", "roles")}
    entry.pop("message_property_mappings", None)
    kind = item.get("type")
    name = kind.split(":")[0] if isinstance(kind, str) else ""
    if name not in TYPES:
        entry |= {} if kind is None else {"type": kind}
    elif (known := TYPES[name]) is not None:
        entry["format"] = known
    fields = {ours: item[theirs] for theirs, ours in _FIELDS.items() if item.get(theirs) not in (None, ours)}
    mapped = item.get("message_property_mappings")
    if isinstance(mapped, dict):
        fields |= {f"message.{ours}": theirs for ours, theirs in mapped.items() if ours != theirs}
    if item.get("field") not in (None, "text"):
        fields["text"] = item["field"]
    if entry.get("format") == "sharegpt" or (name in TYPES and "messages" in fields):
        fields = _as_turns(entry, fields)
    entry |= {"fields": {**(item.get("fields") or {}), **fields}} if fields else {}
    roles = item.get("roles")
    if isinstance(roles, dict) and any(isinstance(names, list) for names in roles.values()):
        roles = {
            theirs: ours for ours, names in roles.items() for theirs in (names if isinstance(names, list) else [names])
        }
    return entry | ({"roles": roles} if roles is not None else {})


def _as_turns(entry: dict[str, Any], fields: dict[str, str]) -> dict[str, str]:
    """`conversations` needs no mapping: it is known as the column of ShareGPT's turns, and so are their names."""
    usual = {"messages": "conversations", "message.role": "from", "message.content": "value"}
    if fields.get("messages") == usual["messages"]:
        entry.setdefault("format", "sharegpt")
        return {ours: theirs for ours, theirs in fields.items() if usual.get(ours) != theirs}
    return fields
