"""What is wrong with a run file, in the user's words: where, which key, what was expected, and what to set."""

from __future__ import annotations

import types
import typing
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from outlive.run.credentials import without_credentials
from outlive.run.errors import InputError, nearest
from outlive.run.settings.base import Mistake, Section
from outlive.run.settings.whole import Run
from outlive.run.synonyms import known_names
from outlive.run.yaml_file import Key, dotted, shown

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "keys and values",
    "model_type": "keys and values",
    "model_attributes_type": "keys and values",
    "greater_than": "more than {gt:.15g}",
    "greater_than_equal": "{ge:.15g} or more",
    "less_than": "less than {lt:.15g}",
    "less_than_equal": "{le:.15g} or less",
    "literal_error": "{expected}",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    "string_pattern_mismatch": "the form module:function",
}
_SHOWN = 12
_QUOTED = "take the quotes off"


def input_error(error: ValidationError, raw: dict[str, Any], places: dict[Key, str], file: str) -> InputError:
    """The InputError (exit code 2) for all that is wrong with `raw`; `places` says where each key stands."""
    by_key: dict[Key, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        by_key.setdefault(_key(detail, raw), []).append(detail)
    found = [
        without_credentials((*_sentence(key, details), _place(key, details[0], places, file)))
        for key, details in by_key.items()
    ]
    if len(found) == 1:
        what, fix, where = found[0]
        return InputError(what, where=where, fix=fix)
    lines = [f"{where}: {what}" + (f" ({fix})" if fix else "") for what, fix, where in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more")
    return InputError("\n  ".join([f"the run has {len(found)} mistakes", *lines]))


def section_at(key: Key, model: type[Section] = Run) -> type[Section] | None:
    """The model of the section at `key`, or None when there are plain values."""
    for part in key:
        if isinstance(part, int):
            continue  # an entry of a list: its model was found with the list
        field = model.model_fields.get(part)
        inner = None if field is None else section_in(field.annotation)
        if inner is None:
            return None
        model = inner
    return model


def section_of(annotation: Any) -> type[Section] | None:
    """The section that an annotation is, or may be absent as (Section | None); None for anything else."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    options = typing.get_args(annotation) if is_union else (annotation,)
    return next((item for item in options if isinstance(item, type) and section_in(item) is item), None)


def section_in(annotation: Any) -> type[Section] | None:
    """The first section that an annotation names, through unions, lists and Annotated."""
    if typing.get_origin(annotation) is None and isinstance(annotation, type):
        return annotation if issubclass(annotation, Section) else None
    return next((found for item in typing.get_args(annotation) if (found := section_in(item))), None)


def _key(detail: ErrorDetails, raw: dict[str, Any]) -> Key:
    # pydantic's location also names branches of unions; what is no key of the value is such a branch.
    node: Any = raw
    key: Key = ()
    location = detail["loc"]
    for depth, part in enumerate(location):
        last_and_absent = detail["type"] == "missing" and depth == len(location) - 1
        if isinstance(node, dict) and (part in node or last_and_absent):
            node = node.get(part)
        elif isinstance(node, list | tuple) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            continue
        key = (*key, part)
    mistake = _mistake(detail)
    return (*key, *mistake.key) if mistake else key


def _mistake(detail: ErrorDetails) -> Mistake | None:
    error = detail.get("ctx", {}).get("error")
    return error if isinstance(error, Mistake) else None


def _place(key: Key, detail: ErrorDetails, places: dict[Key, str], file: str) -> str:
    mistake = _mistake(detail)
    if key not in places and mistake and mistake.cause in places:
        return places[mistake.cause]
    if key not in places and (below := [place for inner, place in places.items() if inner[: len(key)] == key]):
        return below[0]
    for length in range(len(key), 0, -1):
        if place := places.get(key[:length]):
            return place
    return file


def _sentence(key: Key, details: list[ErrorDetails]) -> tuple[str, str | None]:
    first = details[0]
    if mistake := _mistake(first):
        return (f"{dotted(key)}: {mistake.what}" if key else mistake.what), mistake.fix
    if first["type"] in ("extra_forbidden", "invalid_key"):
        return f"{dotted(key)}: there is no such key", _unknown(key)
    if first["type"] == "missing":
        return f"{dotted(key)} is missing", f"set {dotted(key)}"
    value, fix = first["input"], _type_fix(first["input"], details)
    if value is None and _is_required(key):
        fix = f"set {dotted(key)}"
    text = f'"{value}"' if fix == _QUOTED else shown(value)
    return f"{dotted(key)}: {text}, expected {_expected(details)}", fix


def _is_required(key: Key) -> bool:
    section = section_at(key[:-1])
    field = section.model_fields.get(str(key[-1])) if section and key else None
    return field is not None and field.is_required()


def _expected(details: list[ErrorDetails]) -> str:
    texts: list[str] = []
    for detail in details:
        text = _EXPECTED.get(detail["type"])
        text = text.format(**detail.get("ctx", {})) if text else detail["msg"].removeprefix("Input should be ")
        text = text.replace("'", "")
        if text not in texts:
            texts.append(text)
    return " or ".join(texts)


def _type_fix(value: Any, details: list[ErrorDetails]) -> str | None:
    if value is None:
        return "leave the key out to get its default"
    if isinstance(value, str) and any(detail["type"] in ("int_type", "float_type") for detail in details):
        try:
            float(value)
        except ValueError:
            pass
        else:
            return _QUOTED
    if details[0]["type"] == "string_type" and isinstance(value, int | float):
        return f'put it in quotes: "{shown(value)}"'
    if details[0]["type"] == "literal_error" and isinstance(value, str):
        options = details[0].get("ctx", {}).get("expected", "").replace(" or ", ", ").replace("'", "").split(", ")
        if close := nearest(value, options):
            return f"did you mean {close}?"
    return None


def _unknown(key: Key) -> str:
    section, name = section_at(key[:-1]), str(key[-1])
    own = list(section.model_fields) if section else []
    inside = None if len(key) == 1 else str(key[0])
    if close := nearest(name, [*own, *known_names(inside)]):
        return f"did you mean {dotted((*key[:-1], close))}?"
    if elsewhere := [path for path in _all_keys(Run) if path[-1] == name]:
        return f"its place is {' or '.join(dotted(path) for path in elsewhere)}"
    if close := nearest(name, [str(path[-1]) for path in _all_keys(Run)]):
        return f"did you mean {' or '.join(dotted(path) for path in _all_keys(Run) if path[-1] == close)}?"
    return f"known here: {', '.join(own)}" if own else "remove it"


def _all_keys(model: type[Section], prefix: Key = ()) -> list[Key]:
    keys: list[Key] = []
    for name, field in model.model_fields.items():
        keys.append((*prefix, name))
        if inner := section_of(field.annotation):
            keys += _all_keys(inner, (*prefix, name))
    return keys
