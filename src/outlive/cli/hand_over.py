"""`export.hub`: a finished run goes to the hub. It is saved by then, and no failure of the upload takes that away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from outlive.run.errors import OutliveError, Resumable, WorkError

if TYPE_CHECKING:
    from outlive.run.config import Run
    from outlive.run.engine import Result
    from outlive.run.folder import RunFolder


def check_hub(run: Run) -> None:
    """What would stand against the upload at the end, before anything begins: InputError for it."""
    if run.export.hub is not None:
        from outlive.checkpoint.hub import check_access, check_name

        check_name(run.export.hub)
        check_access()


def hand_over(run: Run, folder: RunFolder, result: Result, say: Callable[[str], None]) -> Result:
    """Upload what a finished run saved, and put into `facts.hub` what came of it."""
    if run.export.hub is None or result.status != "done":
        return result
    from outlive.cli import upload

    private = not _is_there(run.export.hub)
    again = f"outlive upload {folder.root} {run.export.hub}{' --private' if private else ''}"
    try:
        done = upload.send(folder.root, run.export.hub, upload.hub(), say, private=private)
    except OutliveError as error:
        fix = None if isinstance(error, Resumable) else error.fix  # of which the fix is to repeat it
        found = {"repository": run.export.hub, "error": error.what, "fix": fix, "command": again}
        say(f"not uploaded: {error.what}; repeat it with: {again}")
    else:
        found = upload.facts(done)
        say(f"uploaded: {done.url}")
    return replace(result, facts={**result.facts, "hub": found})


def _is_there(repository: str) -> bool:
    """Whether a repository was made before: by somebody who decided then who can read it."""
    from outlive.cli import upload

    try:
        upload.hub().repo_info(repository)
    except Exception:  # there is none, or the upload itself will say what is wrong
        return False
    return True


def raise_not_uploaded(result: Result) -> None:
    """Raise WorkError where a run was finished, and could not be uploaded."""
    found = result.facts.get("hub", {})
    if "error" in found:
        what = f"the run is finished and saved, but not uploaded: {found['error']}"
        fix = f"{found['fix']}; then: {found['command']}" if found["fix"] else f"repeat it with: {found['command']}"
        raise WorkError(what, where=found["repository"], fix=fix)
