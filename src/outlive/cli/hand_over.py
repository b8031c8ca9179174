"""`export.hub`: a finished run goes to the hub. It is saved by then, and no failure of the upload takes that away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from outlive.run.errors import OutliveError, WorkError

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

    again = f"outlive upload {folder.root} {run.export.hub} --private"
    try:
        done = upload.send(folder.root, run.export.hub, upload.hub(), say, private=_is_new(run.export.hub))
    except OutliveError as error:
        found = {"repository": run.export.hub, "error": error.what, "fix": error.fix, "command": again}
        say(f"not uploaded: {error.what}; repeat it with: {again}")
    else:
        found = upload.facts(done)
        say(f"uploaded: {done.url}")
    return replace(result, facts={**result.facts, "hub": found})


def _is_new(repository: str) -> bool:
    """Whether a repository is to be made, and then private; whoever has made one has decided that."""
    from huggingface_hub.errors import RepositoryNotFoundError

    from outlive.cli import upload

    try:
        upload.hub().repo_info(repository)
    except RepositoryNotFoundError:
        return True
    except Exception:  # the upload itself will say it
        return False
    return False


def raise_not_uploaded(result: Result) -> None:
    """Raise WorkError where a run was finished, and could not be uploaded."""
    found = result.facts.get("hub", {})
    if "error" in found:
        what = f"the run is finished and saved, but not uploaded: {found['error']}"
        fix = f"{found['fix']}: {found['command']}" if found["fix"] else f"repeat it with: {found['command']}"
        raise WorkError(what, where=found["repository"], fix=fix)
