"""`outlive verify`: is a model folder whole, and does everybody read the same model from it?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from outlive.checkpoint.verify.against import Difference
    from outlive.checkpoint.verify.finding import Finding

SHOWN = 20  # differing tensors
_COLORS = {"error": typer.colors.RED, "warning": typer.colors.YELLOW, "note": typer.colors.CYAN}


def command(
    path: Annotated[Path, typer.Argument(help="A model folder, a checkpoint or a run.")],
    against: Annotated[
        Path | None, typer.Option(metavar="OTHER", help="Another folder: compare all tensors with its own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Read every byte of a model folder, and name what others accept in silence. Exit code 1 where it is not whole."""
    from outlive.checkpoint.formats.huggingface import open_model
    from outlive.checkpoint.verify.against import differences
    from outlive.checkpoint.verify.folder import verify_folder

    folder = model_folder(path)
    found = verify_folder(folder)
    differ = None
    if against is not None:
        differ = differences(open_model(folder).tensors, open_model(model_folder(against)).tensors)
    if as_json:
        _print_json(folder, found, differ)
    else:
        _print(folder, found)
        if differ is not None:
            _print_differences(differ)
    if differ or any(finding.level == "error" for finding in found):
        raise typer.Exit(1)


def model_folder(path: Path) -> Path:
    """The folder of weights that a path stands for: itself, a checkpoint's model/, or that of a run's last one."""
    from outlive.checkpoint.folder import saved_checkpoints
    from outlive.run.errors import InputError

    if not path.is_dir():
        raise InputError("this is no folder", where=str(path), fix="name the folder of a model")
    if (path / "checkpoints").is_dir():
        saved = [one for one in saved_checkpoints(path / "checkpoints") if (one.path / "model").is_dir()]
        if not saved:
            fix = "an adapter is not verified alone: name a folder with a whole model"
            raise InputError("no checkpoint of this run has a model/", where=str(path), fix=fix)
        path = saved[-1].path
    return path / "model" if (path / "model").is_dir() else path


def _print(folder: Path, found: list[Finding]) -> None:
    from outlive.checkpoint.verify.consequences import consequences

    for finding in found:
        head = typer.style(f"{finding.level}[{finding.id}]", fg=_COLORS[finding.level], bold=True)
        typer.echo(f"{head}: {finding.what}\n  --> {finding.where}\n   = fix: {finding.fix}\n")
    serious = [finding for finding in found if finding.level != "note"]
    if programs := consequences(serious):
        typer.echo("what programs do with it:")
        for program, lines in programs.items():
            for line in lines:
                typer.echo(f"  {program}: {line}")
    counts = {level: sum(finding.level == level for finding in found) for level in _COLORS}
    verdict = "not whole" if counts["error"] else "whole"
    numbers = ", ".join(f"{number} {level}{'' if number == 1 else 's'}" for level, number in counts.items())
    typer.echo(f"{folder}: {verdict} ({numbers})")


def _print_differences(differ: list[Difference]) -> None:
    for one in differ[:SHOWN]:
        by = f", by up to {one.largest:.3g}" if one.largest is not None else ""
        typer.echo(f"differs: {one.name}: {one.what}{by}")
    if len(differ) > SHOWN:
        typer.echo(f"… and {len(differ) - SHOWN:,} more")
    typer.echo("all tensors are the same" if not differ else f"{len(differ):,} tensors differ")


def _print_json(folder: Path, found: list[Finding], differ: list[Difference] | None) -> None:
    from outlive.checkpoint.verify.consequences import consequences

    about = {
        "folder": str(folder),
        "whole": not any(finding.level == "error" for finding in found),
        "findings": [finding.to_json() for finding in found],
        "programs": consequences(finding for finding in found if finding.level != "note"),
    }
    if differ is not None:
        about["differences"] = [dict(one._asdict()) for one in differ]
    typer.echo(json.dumps(about, ensure_ascii=False))
