"""From a run file, overrides and command-line options to one resolved run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from outlive.run.credentials import find_secret
from outlive.run.errors import InputError
from outlive.run.excerpt import both, said_on_command_line
from outlive.run.folder import MAX_NAME, name_mistake
from outlive.run.located import at_its_line
from outlive.run.mistakes import input_error
from outlive.run.names.translate import Given, is_synonym, refuse_twice, source_of, translate, two_names
from outlive.run.overrides import parse_override, set_value
from outlive.run.settings.base import Section
from outlive.run.settings.whole import SCHEMA_VERSION, Run
from outlive.run.yaml_file import Key, Parsed, dotted, read, shown

# From each schema version to the next: takes and returns the file's values.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


@dataclass(frozen=True)
class LoadedRun:
    """A resolved run, notes for the user (one per synonym or guess), the run file it is from, and where each key that
    was given stands: in the file, or on the command line."""

    run: Run
    notes: list[str] = field(default_factory=list)
    path: Path | None = None
    places: dict[Key, str] = field(default_factory=dict)

    def at_its_line(self) -> AbstractContextManager[None]:
        """Within it, an error about a file or model that the run file names is shown at the line that names it."""
        return at_its_line(self.run, self.places)


def load_run(
    path: Path | str | None, overrides: Sequence[str] = (), model: str | None = None, data: str | None = None
) -> LoadedRun:
    """Read a run file, apply `key.sub=value` overrides and the options --model and --data, and validate the whole.

    Without a run file, model and data are required. What the command line says wins over the file. Relative paths are
    relative to the current directory, wherever the run file lies. InputError (exit code 2) for all mistakes at once.
    """
    parsed = Parsed({}) if path is None else read(path)
    _refuse_secrets(parsed.value, parsed.places)
    raw = migrated(parsed.value, parsed.places.get(("schema_version",), str(path)))
    notes = _rename(raw, parsed.places)
    notes += _override(raw, parsed.places, [parse_override(text) for text in overrides], model, data)
    if path is None and (raw.get("model") is None or raw.get("data") is None):
        raise InputError("there is no run file", fix="name one, or give both --model and --data")
    _open_empty_sections(raw)
    if raw.get("name") is None:
        raw["name"] = _default_name(path, raw)
    try:
        run = Run.model_validate(raw)
    except ValidationError as error:
        raise input_error(error, raw, parsed.places, "command line" if path is None else str(path)) from None
    if run.trust_remote_code:
        notes.append("trust_remote_code is on: Python code that comes with the model's files runs with all your rights")
    return LoadedRun(run, notes, None if path is None else Path(path), parsed.places)


def _refuse_secrets(values: Any, places: dict[Key, str], said: str | None = None) -> None:
    """Refuse a value that looks like a credential before anything of it is repeated; `said`: what set it, no file."""
    secret = find_secret(values)
    if secret is None:
        return
    above = [secret.path[:depth] for depth in range(len(secret.path), 0, -1)]
    where = said or next((str(places[key]) for key in above if key in places), None)
    shown_part = f" ({secret.shown[:60]})" if secret.shown else ""
    raise InputError(
        f"{dotted(secret.path)}: this is {secret.what}{shown_part}; secrets come from the environment only",
        where=where,  # and not the line itself, which holds the secret
        fix="take it out, and revoke it if others can read the file; for the Hugging Face hub set HF_TOKEN",
    )


def _refuse_secret(given: Given) -> None:
    option = given.place.split(" ")[0]
    nested = given.value
    for part in reversed(given.key):
        nested = {part: nested}
    _refuse_secrets(nested, {}, option if option.startswith("--") else f"override {dotted(given.key)}")


def migrated(raw: dict[str, Any], place: str) -> dict[str, Any]:
    """The file's values brought to the present schema version. InputError at `place` for one that is not known."""
    version = raw.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(
            f"schema_version: {shown(version)}, expected a whole number from 1",
            where=place,
            fix=f"set schema_version: {SCHEMA_VERSION}, or leave it out",
        )
    if version > SCHEMA_VERSION:
        raise InputError(
            f"this run file has schema_version {version}; this version of outlive reads up to {SCHEMA_VERSION}",
            where=place,
            fix="update outlive: pip install --upgrade outlive",
        )
    for step in range(version, SCHEMA_VERSION):
        raw = MIGRATIONS[step](raw)
    return {**raw, "schema_version": SCHEMA_VERSION}


def _rename(raw: dict[str, Any], places: dict[Key, str]) -> list[str]:
    given = [Given(key, value, places.get(key, "")) for key, value in _two_levels(raw) if is_synonym(key, value)]
    for item in given:
        section: dict[Any, Any] = raw if len(item.key) == 1 else raw[str(item.key[0])]
        del section[item.key[-1]]
    settings, notes = translate(given, raw)
    for written, setting in settings:
        if setting.key[0] == "adapter" and raw.get("adapter", {}) is None:
            raise InputError(
                f"adapter: null trains all weights, and {dotted(written.key)} sets an adapter",
                where=both(places.get(("adapter",), ""), written.place),
                fix="remove what you don't mean",
            )
        if setting.key in places and _present(raw, setting.key):
            raise two_names(written, Given(setting.key, None, places[setting.key]), setting.key)
        places[set_value(raw, setting)] = setting.place
    return notes


def _two_levels(raw: dict[str, Any]) -> list[tuple[Key, Any]]:
    found: list[tuple[Key, Any]] = []
    for name, value in raw.items():
        found.append(((name,), value))
        if isinstance(value, dict):
            found += [((name, inner), item) for inner, item in value.items()]
    return found


def _present(raw: dict[str, Any], key: Key) -> bool:
    node: Any = raw
    for part in key:
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


def _override(
    raw: dict[str, Any], places: dict[Key, str], given: list[Given], model: str | None, data: str | None
) -> list[str]:
    if model is not None:
        given = [*given, Given(("model",), model, said_on_command_line(f"--model {model}", "--model ", model))]
    if data is not None:
        place = said_on_command_line(f"--data {data}", "--data ", data)
        given = [*given, Given(("data", "train"), [source_of(data)], place)]
    for item in given:
        _refuse_secret(item)
    synonyms = [item for item in given if is_synonym(item.key, item.value)]
    renamed, notes = translate(synonyms, raw)
    if version := next((item for item in given if item.key == ("schema_version",)), None):
        raise InputError(
            "schema_version belongs to the file that is written in it", where=version.place, fix="leave it out"
        )
    settings = [(item, item) for item in given if not is_synonym(item.key, item.value)] + renamed
    refuse_twice(settings)
    # Whole sections first, so that optimizer={…} does not undo optimizer.lr=….
    for _, setting in sorted(settings, key=lambda pair: len(pair[1].key)):
        key = set_value(raw, setting)
        for below in [place for place in places if place[: len(key)] == key]:
            del places[below]
        places[key] = setting.place
    return notes


def _open_empty_sections(raw: dict[str, Any]) -> None:
    # A section whose keys are all commented out reads as null and means its defaults.
    for name, info in Run.model_fields.items():
        annotation = info.annotation
        is_section = isinstance(annotation, type) and issubclass(annotation, Section)
        if is_section and name in raw and raw[name] is None:
            raw[name] = {}


def _default_name(path: Path | str | None, raw: dict[str, Any]) -> str:
    if path is not None:
        name = Path(path).stem
    else:
        model, data = raw.get("model"), raw.get("data")
        train = data.get("train") if isinstance(data, dict) else None
        source = train[0] if isinstance(train, list) and train and isinstance(train[0], dict) else {}
        name = f"{Path(str(model)).name}-{Path(str(source.get('path') or source.get('hub') or '')).stem}"
    name = re.sub(r"[^\w.+-]+", "-", name).strip(".- ")[:MAX_NAME].rstrip(".- ")
    return "run" if name_mistake(name) else name
