"""What is wrong with a run file, in the user's words: where, which key, what was expected, and what to set."""

from __future__ import annotations

import re
import types
import typing
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from outlive.run.errors import InputError, nearest
from outlive.run.excerpt import Excerpt, Place, excerpts_of
from outlive.run.names.table import TABLE
from outlive.run.names.translate import known_names
from outlive.run.settings.base import Mistake, Section
from outlive.run.settings.whole import Run
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
_SHOWN = 8
_LISTED = 12  # known keys that an error lists
_QUOTED = "take the quotes off"


def input_error(error: ValidationError, raw: dict[str, Any], places: dict[Key, str], file: str) -> InputError:
    """The InputError (exit code 2) for all that is wrong with `raw`; `places` says where each key stands."""
    by_key: dict[Key, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        by_key.setdefault(_key(detail, raw), []).append(detail)
    found = [_mistake_at(key, details, _place(key, details[0], places, file)) for key, details in by_key.items()]
    meant = {mistake.nearest for mistake in found if mistake.nearest}  # a misspelt key that must be there: one mistake
    found = [item for item in found if not item.what.endswith(" is missing") or item.what.split()[0] not in meant]
    if len(found) == 1:
        return found[0]
    found.sort(key=lambda mistake: (mistake.excerpts[0].line or 0) if mistake.excerpts else 0)
    shown = f"; the first {_SHOWN} are shown, and {len(found) - _SHOWN} more are not" if len(found) > _SHOWN else ""
    return InputError(f"the run has {len(found)} mistakes{shown}", mistakes=found[:_SHOWN])


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
            return place if length == len(key) else _inside(place, str(key[-1]))
    return file


def _inside(place: str, name: str) -> str:
    """The place of a key that was typed within a value, `optimizer={lrr: 1}`: where the name stands, if but once."""
    for excerpt in excerpts_of(place):
        found = [match.start(1) for match in re.finditer(rf"[{{,]\s*({re.escape(name)})\s*:", excerpt.text)]
        if excerpt.line is None and len(found) == 1:
            return Place(place, [Excerpt(excerpt.file, None, excerpt.text, found[0] + 1, len(name))])
    return place


def _mistake_at(key: Key, details: list[ErrorDetails], place: str) -> InputError:
    """The error about one key: the caret stands under the key where that is wrong or absent, else under its value."""
    first = details[0]
    value = place.value if isinstance(place, Place) else None
    excerpts = [value] if value else []
    if mistake := _mistake(first):
        what = f"{dotted(key)}: {mistake.what}" if key else mistake.what
        return InputError(what, where=place, fix=mistake.fix or _other_value(key), excerpts=excerpts)
    if first["type"] in ("extra_forbidden", "invalid_key"):
        return _unknown(key, place)
    if first["type"] == "missing":
        return InputError(f"{dotted(key)} is missing", where=place, fix=f"set {dotted(key)}")
    given, expected, (fix, close) = first["input"], _expected(details), _type_fix(first["input"], details)
    if given is None and _is_required(key):
        fix = f"set {dotted(key)}"
    elif fix is None:
        default = _default(key)
        fix = f"set it to {expected}" + ("" if default is None else f"; the default is {shown(default)}")
    text = f'"{given}"' if fix == _QUOTED else shown(given)
    what = f"{dotted(key)}: {text}, expected {expected}"
    return InputError(what, where=place, fix=fix, expected=expected, nearest=close, excerpts=excerpts)


def _is_required(key: Key) -> bool:
    section = section_at(key[:-1])
    field = section.model_fields.get(str(key[-1])) if section and key else None
    return field is not None and field.is_required()


def _other_value(key: Key) -> str:
    default = _default(key)
    return f"set another {dotted(key)}" + (
        "" if default is None else f", or leave it out: its default is {shown(default)}"
    )


def _default(key: Key) -> Any:
    """The default of a key that has a plain one, else None."""
    section = section_at(key[:-1])
    field = section.model_fields.get(str(key[-1])) if section and key else None
    if section is None or field is None or field.is_required() or str(key[-1]) in section.decided_elsewhere:
        return None
    default = field.default
    return default if isinstance(default, str | int | float) else None


def _expected(details: list[ErrorDetails]) -> str:
    texts: list[str] = []
    for detail in details:
        text = _EXPECTED.get(detail["type"])
        text = text.format(**detail.get("ctx", {})) if text else detail["msg"].removeprefix("Input should be ")
        text = text.replace("'", "")
        if text not in texts:
            texts.append(text)
    return " or ".join(texts)


def _type_fix(value: Any, details: list[ErrorDetails]) -> tuple[str | None, str | None]:
    """What to do about a value of the wrong type, and the nearest valid one."""
    kinds = {detail["type"] for detail in details}
    if value is None:
        return "leave the key out to get its default", None
    if isinstance(value, str) and kinds & {"int_type", "float_type"}:
        try:
            float(value)
        except ValueError:
            pass
        else:
            return _QUOTED, None
    if details[0]["type"] == "string_type" and isinstance(value, int | float) and len(details) == 1:
        return f'put it in quotes: "{shown(value)}"', None
    if details[0]["type"] == "literal_error" and isinstance(value, str):
        options = details[0].get("ctx", {}).get("expected", "").replace(" or ", ", ").replace("'", "").split(", ")
        if close := nearest(value, options):
            return f"did you mean {close}?", close
    if "bool_type" in kinds:
        return "write true or false, without quotes", None
    if kinds & {"list_type", "tuple_type"} and not isinstance(value, dict):
        return f"write it as a list: [{shown(value)}]", None
    if kinds & {"model_type", "model_attributes_type", "dict_type"}:
        return "write its keys below it, each indented by two spaces, or leave it out", None
    return None, None


def _unknown(key: Key, place: str) -> InputError:
    section, name = section_at(key[:-1]), str(key[-1])
    own = list(section.model_fields) if section else []
    listed = ", ".join(own[:_LISTED]) + (", …" if len(own) > _LISTED else "")
    inside = f"{dotted(key[:-1])} has" if len(key) > 1 else "a run file has"
    found = _nearest_key(key, own)
    fix = found[0] if found else "remove it: nothing here has a name like it" if own else "remove it"
    return InputError(
        f"{inside} no key `{name}`",
        where=place,
        expected=f"one of {listed}" if own else None,
        nearest=found[1] if found else None,
        fix=fix,
    )


def _nearest_key(key: Key, own: list[str]) -> tuple[str, str] | None:
    """The advice for an unknown key and the key that it names; None where nothing is near."""
    name = str(key[-1])
    section = None if len(key) == 1 else str(key[0])
    if close := nearest(name, [*own, *known_names(section)]):
        known = (*key[:-1], close)
        ours = next((synonym.key for synonym in TABLE if close in (*synonym.names, *synonym.short)), None)
        remark = f" (taken as {dotted(ours)})" if ours and ours != known else ""
        return f"did you mean {dotted(known)}?{remark}", dotted(known)
    if elsewhere := [dotted(path) for path in _all_keys(Run) if path[-1] == name]:
        return f"its place is {' or '.join(elsewhere)}", elsewhere[0]
    if close := nearest(name, [str(path[-1]) for path in _all_keys(Run)]):
        paths = [dotted(path) for path in _all_keys(Run) if path[-1] == close]
        return f"did you mean {' or '.join(paths)}?", paths[0]
    return None


def _all_keys(model: type[Section], prefix: Key = ()) -> list[Key]:
    keys: list[Key] = []
    for name, field in model.model_fields.items():
        keys.append((*prefix, name))
        if inner := section_of(field.annotation):
            keys += _all_keys(inner, (*prefix, name))
    return keys
