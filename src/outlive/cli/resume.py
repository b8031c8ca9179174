"""`--resume`: which checkpoint a run goes on from, whether it is the same run still, and one clean curve."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from outlive.run.errors import InputError, OutliveError, nearest

if TYPE_CHECKING:
    from outlive.checkpoint.folder import Saved
    from outlive.run.changes import Change
    from outlive.run.config import Run
    from outlive.run.folder import RunFolder

WORDS = ("latest", "best", "auto")


class Place(NamedTuple):
    """Where a run goes on: after `step` steps, from `checkpoint` (None: from the beginning), as its start `attempt`."""

    checkpoint: Path | None
    step: int
    attempt: int


def is_place(text: str) -> bool:
    """Whether `text` can follow --resume: a number of steps, or one of the words."""
    return text.isdecimal() or text in WORDS


def refuse_no_place(text: str) -> None:
    """Raise InputError where --resume is given something that is neither a step nor a word of its own."""
    if not is_place(text):
        near = nearest(text, WORDS)
        raise InputError(
            f"{text!r} is no checkpoint",
            where=f"--resume {text}",
            fix=f"did you mean {near}?" if near else "give a step, such as 200, or latest, best or auto",
        )


def find_place(folder: RunFolder, which: str, say: Callable[[str], None]) -> Place:
    """The checkpoint that `which` names, with every byte of its state compared with its hash.

    A folder that is not whole is never taken: `latest`, `auto` and `best` then go on from the next one, and say so.
    Raises InputError where a step is named that has no whole checkpoint.
    """
    from outlive.checkpoint.folder import best, broken_checkpoints, saved_checkpoints

    saved = saved_checkpoints(folder.checkpoints)
    for path, why in broken_checkpoints(folder.checkpoints):
        say(f"{path} is no whole checkpoint and is left out: {why}")
    attempt = last_attempt(folder) + 1
    if which.isdecimal():
        named = [one for one in saved if one.step == int(which)]
        if not named:
            steps = ", ".join(str(one.step) for one in saved) or "none"
            raise InputError(
                f"there is no whole checkpoint of step {which}",
                where=str(folder.checkpoints),
                fix=f"those that are there: {steps}",
            )
        _verify(named[0])
        return Place(named[0].path, named[0].step, attempt)
    while saved:
        chosen = (best(saved) or saved[-1]) if which == "best" else saved[-1]
        try:
            _verify(chosen)
            return Place(chosen.path, chosen.step, attempt)
        except InputError as error:
            say(f"{chosen.path} is damaged and is left out: {error.what} ({error.where})")
            saved = [one for one in saved if one is not chosen]
    say("no checkpoint was saved yet: the run begins anew")
    return Place(None, 0, attempt)


def _verify(saved: Saved) -> None:
    from outlive.checkpoint.manifest import verify_manifest

    verify_manifest(saved.path)


def last_attempt(folder: RunFolder) -> int:
    """How often the run was started so far."""
    from outlive.run.events import read_events
    from outlive.run.metrics import read

    attempts = [1]
    try:
        attempts += [int(event.get("attempt", 1)) for event in read_events(folder.events)]
        attempts += [record.attempt for record in read(folder.metrics).records]
    except OutliveError:
        pass  # a run that was killed before it wrote any
    return max(attempts)


def continued(run: Run, folder: RunFolder, accepted: Sequence[str]) -> tuple[Run, list[Change]]:
    """The run that goes on: `run`, with what the first start settled for it, and where it differs from the saved run
    file. Raises InputError for differences that are neither free nor accepted."""
    from outlive.run.changes import changes, judge
    from outlive.run.config import load_run

    before = load_run(folder.run_yaml).run
    if run.data.date is None:
        run = run.model_copy(update={"data": run.data.model_copy(update={"date": before.data.date})})
    found = changes(before, run)
    judge(found, [name for name in accepted if any(_covers(name, change.key) for change in found)])
    return run, found


def same_contents(
    before: dict[str, Any], after: dict[str, Any], found: Sequence[Change], accepted: Sequence[str]
) -> list[Change]:
    """All differences, those of contents that the run file only names included; `found`: those of the run file.

    Other contents of what the run file names otherwise now are no news. Raises InputError for differences that are
    neither free nor accepted, and for accepted names that nothing differs by.
    """
    from outlive.run.changes import fact_changes, judge

    asked = [
        change.key for change in found if change.kind != "free"
    ]  # a free name is free since its content is compared
    news = [new for new in fact_changes(before, after) if not any(_covers(new.key, key) for key in asked)]
    return judge([*found, *news], accepted)


def _covers(name: str, key: str) -> bool:
    return key == name or key.startswith(f"{name}.")


def set_aside(folder: RunFolder, place: Place, say: Callable[[str], None]) -> None:
    """Make the run's folder what it was after `place.step`: later checkpoints, and broken ones, go to superseded/, and
    so do the later lines of metrics.jsonl. Nothing is thrown away but what killed saves left behind."""
    from outlive.checkpoint.folder import broken_checkpoints, saved_checkpoints, sweep
    from outlive.run.files import disk_error
    from outlive.run.metrics import supersede

    sweep(folder.checkpoints)
    broken = [path for path, _ in broken_checkpoints(folder.checkpoints)]
    step = place.step if place.checkpoint is not None else -1
    later = [one.path for one in saved_checkpoints(folder.checkpoints) if one.step > step]
    aside = folder.root / "superseded" / f"before-attempt-{place.attempt}"
    try:
        for path in [*broken, *later]:
            aside.mkdir(parents=True, exist_ok=True)
            os.rename(path, aside / path.name)
    except OSError as error:
        raise disk_error(error, aside, "move") from error
    if later:
        say(f"{len(later)} later checkpoints are kept in {aside}")
    if folder.metrics.exists():
        moved = supersede(folder.metrics, step)
        if moved:
            say(f"{moved} records of steps that are trained again are kept in superseded.jsonl")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of the run folder. Raises InputError where it is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it is no object")
        return value
    except (OSError, ValueError) as error:
        raise InputError(
            f"the run can't be gone on with: {error}", where=str(path), fix="start it under another name: name=…"
        ) from None
