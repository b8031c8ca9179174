"""`outlive upload`: a model or an adapter into a repository of the Hugging Face hub, looked at before and after."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from outlive.run.errors import InputError

if TYPE_CHECKING:
    from outlive.checkpoint.hub import Hub, Others, Uploaded


def command(
    path: Annotated[Path, typer.Argument(metavar="FOLDER", help="A model or adapter folder, a checkpoint or a run.")],
    repository: Annotated[str, typer.Argument(metavar="ORG/NAME", help="It is made where there is none.")],
    private: Annotated[
        bool, typer.Option("--private", help="A repository that is made is for its owner only.")
    ] = False,
    revision: Annotated[
        str | None, typer.Option(metavar="BRANCH", help="Made where there is none; by default main.")
    ] = None,
    others: Annotated[
        Literal["refuse", "keep", "delete"], typer.Option(help="Files that the repository has beside the folder's.")
    ] = "refuse",
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Upload it even where `outlive verify` finds it not whole.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Upload a folder to the Hugging Face hub. The same command goes on after an interruption.

    The token comes from the environment (HF_TOKEN) or from hf auth login. Exit code 75 where the connection was cut.
    """
    from outlive.checkpoint.hub import check_access

    check_access()
    done = send(
        path, repository, hub(), lambda note: typer.echo(f"note: {note}", err=True), private=private,
        revision=revision, others=others, unverified=unverified,
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(facts(done), ensure_ascii=False))
        return
    deleted = f", {len(done.deleted)} others deleted" if done.deleted else ""
    typer.echo(f"{repository}: {len(done.sent)} files sent, {len(done.there)} were there{deleted}; all hashes agree")
    typer.echo(f"commit: {done.commit}")
    typer.echo(done.url)


def send(
    path: Path,
    repository: str,
    to: Hub,
    say: Callable[[str], None],
    *,
    private: bool = False,
    revision: str | None = None,
    others: Others = "refuse",
    unverified: bool = False,
) -> Uploaded:
    """Look at what `path` stands for, and upload it. Raises InputError where it is not whole (unless `unverified`)."""
    from outlive.checkpoint.hub import check_name, upload
    from outlive.checkpoint.verify.path import verify_path

    check_name(repository)
    folder = served_folder(path)
    errors = [finding for finding in verify_path(folder) if finding.level == "error"]
    if errors and not unverified:
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        what = f"the folder is not whole: {errors[0].what}{more}"
        raise InputError(what, where=errors[0].where, fix=f"{errors[0].fix}; or upload it as it is with --unverified")
    if errors:
        say(f"{folder} is not whole ({len(errors)} errors, such as {errors[0].what}), and is uploaded as it is")
    return upload(folder, repository, to, private=private, revision=revision, others=others, say=say)


def facts(done: Uploaded) -> dict[str, Any]:
    """What came of an upload, as JSON."""
    numbers = {"sent": len(done.sent), "there": len(done.there), "deleted": len(done.deleted)}
    return {"repository": done.repository, "commit": done.commit, "url": done.url, **numbers}


def served_folder(path: Path) -> Path:
    """The folder that a path stands for: itself, or model/ or else adapter/ of a checkpoint, or of a run's last one."""
    from outlive.checkpoint.folder import saved_checkpoints

    if not path.is_dir():
        raise InputError("this is no folder", where=str(path), fix="name the folder of a model, an adapter or a run")
    if (path / "checkpoints").is_dir():
        served = [found for saved in saved_checkpoints(path / "checkpoints") if (found := saved.served())]
        if not served:
            fix = "train it to a checkpoint that holds a model or adapter"
            raise InputError("no checkpoint of this run can be served", where=str(path), fix=fix)
        return served[-1]
    return next((path / part for part in ("model", "adapter") if (path / part).is_dir()), path)


def hub() -> Hub:
    """The hub itself. The client finds its token in the environment or in what hf auth login saved."""
    from huggingface_hub import HfApi

    return HfApi()
