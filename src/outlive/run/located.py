"""Errors about a file or a model that a run file names, shown at the line that names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outlive.run.errors import InputError
from outlive.run.excerpt import Place, excerpts_of
from outlive.run.settings.whole import Run
from outlive.run.yaml_file import Key, dotted


@contextmanager
def at_its_line(run: Run, places: Mapping[Key, str]) -> Iterator[None]:
    """An InputError whose `where` is what a key of the run file says is raised again with the key and its line.

    `places`: where each key was written. What was typed on the command line stands there already, and is left as it is.
    """
    try:
        yield
    except InputError as error:
        found = _place(error.where, run, places) if type(error) is InputError and not error.excerpts else None
        if found is None:
            raise
        key, place = found
        raise InputError(
            f"{dotted(key)}: {error.what}",
            where=place,
            fix=error.fix,
            expected=error.expected,
            nearest=error.nearest,
            excerpts=[place.value] if place.value else [],
            mistakes=error.mistakes,
        ) from None


def _place(where: str | None, run: Run, places: Mapping[Key, str]) -> tuple[Key, Place] | None:
    """The key that says `where`, and the line of the run file on which it, or what it stands in, is written."""
    for key, value in _named(run):
        if where is None or Path(value) != Path(where):
            continue
        for depth in range(len(key), 0, -1):
            place = places.get(key[:depth])
            if isinstance(place, Place) and any(excerpt.line is not None for excerpt in excerpts_of(place)):
                return key, place
            if place is not None:
                break
    return None


def _named(run: Run) -> Iterator[tuple[Key, str]]:
    """Each file, folder and hub id that the run names, with its key."""
    found: list[tuple[Key, Any]] = [(("model",), run.model), (("data", "chat_template"), run.data.chat_template)]
    if not isinstance(run.model, str):
        found.append((("model", "init", "tokenizer"), run.model.init.tokenizer))
    for side in ("train", "validation"):
        sources = getattr(run.data, side)
        for place, source in enumerate(sources if isinstance(sources, list) else []):
            found += [(("data", side, place, name), getattr(source, name)) for name in ("path", "hub")]
    return ((key, value) for key, value in found if isinstance(value, str))
