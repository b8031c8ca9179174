"""`--resume`: which checkpoint a run goes on from, whether it is the same run still, and one clean curve."""

from __future__ import annotations

import contextlib
import itertools
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
    from outlive.run.engine import Result
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


def begun(folder: RunFolder) -> bool:
    """Whether a run was begun in its folder: run.yaml is the first file of all; before it, only hidden ones are made.

    Raises InputError where the rest of a run is there without it.
    """
    if folder.run_yaml.is_file():
        return True
    if others := sorted(name for name in os.listdir(folder.root) if not name.startswith(".")):
        raise InputError(
            f"the run can't be gone on with: it has no run.yaml, only {', '.join(others[:3])}",
            where=str(folder.root),
            fix="put run.yaml back, or start under another name: name=…",
        )
    return False


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
    if which.isdecimal() and int(which) == 0:
        return Place(None, 0, attempt)
    if which.isdecimal():
        named = [one for one in saved if one.step == int(which)]
        if not named:
            steps = ", ".join(str(one.step) for one in saved) or "none"
            raise InputError(
                f"there is no whole checkpoint of step {which}",
                where=str(folder.checkpoints),
                fix=f"those that are there: {steps}; --resume 0 begins anew",
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
    if lost := saved_steps(folder):
        raise InputError(
            f"{len(lost)} checkpoints were saved, the last after step {lost[-1]}, and none that is whole is there",
            where=str(folder.checkpoints),
            fix="put them back; or begin anew: --resume 0",
        )
    say("no checkpoint was saved yet: the run begins anew")
    return Place(None, 0, attempt)


def saved_steps(folder: RunFolder) -> list[int]:
    """The steps whose checkpoints were saved, as events.jsonl tells. InputError where it can't be read: whether there
    is something to lose is not to be guessed."""
    from outlive.run.events import read_events

    saved = [event.get("step") for event in read_events(folder.events) if event.get("kind") == "saved"]
    return sorted({step for step in saved if isinstance(step, int)})


def _verify(saved: Saved) -> None:
    from outlive.checkpoint.manifest import verify_manifest

    verify_manifest(saved.path)


def last_attempt(folder: RunFolder) -> int:
    """How often the run was started so far."""
    from outlive.run.events import read_events
    from outlive.run.metrics import read

    attempts: list[Any] = [1]
    with contextlib.suppress(OutliveError):  # of a run that was killed before it wrote any
        attempts += [event.get("attempt") for event in read_events(folder.events)]
    with contextlib.suppress(OutliveError):
        attempts += [record.attempt for record in read(folder.metrics).records]
    return max(attempt for attempt in attempts if type(attempt) is int)


def continued(run: Run, folder: RunFolder, accepted: Sequence[str]) -> tuple[Run, list[Change]]:
    """The run that goes on: `run`, with what the first start settled for it, and where it differs from the saved run
    file. Raises InputError for differences that are neither free nor accepted."""
    from outlive.run.changes import changes, judge
    from outlive.run.config import load_run

    accepted = our_names(accepted)
    judge([], accepted)  # names that nothing is called by
    before = load_run(folder.run_yaml).run
    if run.data.date is None:
        run = run.model_copy(update={"data": run.data.model_copy(update={"date": before.data.date})})
    found = changes(before, run)
    judge(found, [name for name in accepted if any(_covers(name, change.key) for change in found)])
    return run, found


def our_names(accepted: Sequence[str]) -> list[str]:
    """Accepted names, those that other tools have for our keys in our words."""
    from outlive.run.names.translate import taken_as

    return [".".join(map(str, taken_as(tuple(name.split("."))) or (name,))) for name in accepted]


def same_contents(
    before: dict[str, Any], after: dict[str, Any], found: Sequence[Change], accepted: Sequence[str]
) -> list[Change]:
    """All differences, those of contents that the run file only names included; `found`: those of the run file.

    Other contents of what the run file names otherwise now are no news, and neither are other samples of the same rows
    where the run file makes them otherwise. Raises InputError for differences that are neither free nor accepted.
    """
    from outlive.run.changes import SAME_BYTES, fact_changes, judge

    # A free name is free since its content is compared.
    asked = [change.key for change in found if change.kind != "free"]
    makes_samples = any(key.startswith(("data.", "method.")) for key in asked)
    news = [
        new
        for new in fact_changes(before, after)
        if not any(_covers(new.key, key) for key in asked)
        and not (makes_samples and str(new.after).startswith(SAME_BYTES))
    ]
    return judge([*found, *news], our_names(accepted))


def _covers(name: str, key: str) -> bool:
    return key == name or key.startswith(f"{name}.")


def saved_facts(folder: RunFolder, say: Callable[[str], None]) -> dict[str, Any] | None:
    """What lock.json and data.json say of the contents that the run began with; None where there is no lock.json.

    A start that was ended early has not written them yet. Raises InputError where one is damaged.
    """
    from outlive.run.changes import facts

    found = {path: read_json(path) for path in (folder.lock, folder.data) if path.exists()}
    for path in (folder.lock, folder.data):
        if path not in found:
            say(f"there is no {path.name}: whether the contents are those that the run began with can't be compared")
    if folder.lock not in found:
        return None
    known: dict[str, Any] = {}
    for path, data in ((folder.lock, None), (folder.data, found.get(folder.data))):
        try:
            known = facts(found[folder.lock], data)
        except ValueError as error:
            raise _damaged(path, error) from error
    return known


def set_aside(folder: RunFolder, place: Place, say: Callable[[str], None]) -> None:
    """Make the run's folder what it was after `place.step`: later checkpoints, and broken ones, go to superseded/, and
    so do the later lines of metrics.jsonl. Nothing is thrown away but what killed saves left behind."""
    from outlive.checkpoint.folder import broken_checkpoints, saved_checkpoints, sweep
    from outlive.checkpoint.state import read_trainer
    from outlive.run.metrics import read, supersede
    from outlive.run.sizes import counted

    # Read before anything is moved: a bad line is an error.
    records = read(folder.metrics).records if folder.metrics.exists() else []
    known = {record.step for record in records if record.kind == "train"}
    if lost := place.step - len(known & set(range(1, place.step + 1))):
        say(f"metrics.jsonl lacks {lost} of the {place.step} steps before this place: the curve has a gap there")
    sweep(folder.root)
    sweep(folder.checkpoints)
    step = place.step if place.checkpoint is not None else -1
    later = [one.path for one in saved_checkpoints(folder.checkpoints) if one.step > step]
    broken = [path for path, _ in broken_checkpoints(folder.checkpoints)]
    if aside := _move_aside([*broken, *later], folder, place.attempt):
        kinds = {"later checkpoint": later, "broken checkpoint": broken}
        say(f"kept in {aside}: {' and '.join(counted(len(paths), kind) for kind, paths in kinds.items() if paths)}")
    if folder.metrics.exists():
        owes = place.checkpoint is not None and read_trainer(place.checkpoint).get("owes_validation") is True
        moved = supersede(folder.metrics, step, owes)
        if moved:
            say(f"kept in superseded.jsonl: {counted(moved, 'record')} of steps that are trained again")


def _move_aside(paths: Sequence[Path], folder: RunFolder, attempt: int) -> Path | None:
    """Move checkpoints to a folder that is returned; on the disk before anything else is done. None: there is none."""
    from outlive.run.files import disk_error, sync_folder

    if not paths:
        return None
    # A checkpoints folder may be a link to another disk, to which nothing can be renamed from this one.
    one_disk = folder.checkpoints.stat().st_dev == folder.root.stat().st_dev
    aside = (folder.root if one_disk else folder.checkpoints) / "superseded" / f"before-attempt-{attempt}"
    try:
        for path in paths:
            aside.mkdir(parents=True, exist_ok=True)
            os.rename(path, _free_name(aside / path.name))
        for place in (aside, aside.parent, aside.parent.parent, folder.checkpoints):
            sync_folder(place)
    except OSError as error:
        raise disk_error(error, aside, "move") from error
    return aside


def complete(folder: RunFolder, num_steps: int) -> Result:
    """The result of a run that has nothing left to do."""
    from outlive.checkpoint.folder import saved_checkpoints
    from outlive.engines.native.numbers import finite
    from outlive.run.engine import Result
    from outlive.run.metrics import read

    saved = [one for one in saved_checkpoints(folder.checkpoints) if one.step <= num_steps]
    served = [path for one in saved if (path := one.served())]
    records = read(folder.metrics).records if folder.metrics.exists() else []
    steps = [record for record in records if record.kind == "train" and record.step <= num_steps]
    validations = [record for record in records if record.kind == "validation" and record.step <= num_steps]
    return Result(
        status="done",
        steps=num_steps,
        tokens=sum(record.tokens or 0 for record in steps),
        target_tokens=sum(record.target_tokens or 0 for record in steps),
        seconds=sum(record.seconds or 0.0 for record in steps),
        loss=finite(steps[-1].loss) if steps else None,
        validation_loss=finite(validations[-1].loss) if validations else None,
        output=served[-1] if served else None,
        message="this run is complete",
        facts={"folder": str(folder.root), "report": str(folder.report)},
    )


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return path if not os.path.lexists(path) else next(name for name in names if not os.path.lexists(name))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of the run folder. Raises InputError where it is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it is no object")
        return value
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path.name} of the run is damaged: {error}",
        where=str(path),
        fix="put back the file as it was, or remove it: what it says of the contents is then not compared",
    )
