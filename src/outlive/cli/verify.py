"""`outlive verify`: is a checkpoint whole, and does everybody read the same model from it?"""

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
    path: Annotated[Path, typer.Argument(help="A model or an adapter of any format, a checkpoint or a run.")],
    against: Annotated[
        Path | None, typer.Option(metavar="OTHER", help="Another folder: compare all tensors with its own.")
    ] = None,
    base: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The model that an adapter is for, or whose config it has.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Read every byte of a checkpoint, and name what others accept in silence. Exit code 1 where it is not whole."""
    from outlive.checkpoint.formats.detect import open_checkpoint
    from outlive.checkpoint.verify.against import differences
    from outlive.checkpoint.verify.path import verify_path

    place = _place(path)
    found = verify_path(place, base)
    differ = None
    if against is not None:
        one, other = open_checkpoint(_weights(place)), open_checkpoint(_weights(_place(against)))
        differ = differences(one.tensors, other.tensors)
    if as_json:
        _print_json(place, found, differ)
    else:
        _print(place, found)
        if differ is not None:
            _print_differences(differ)
    if differ or any(finding.level == "error" for finding in found):
        raise typer.Exit(1)


def _place(path: Path) -> Path:
    """What is looked at: the path itself, or of a run its last checkpoint."""
    from outlive.checkpoint.folder import saved_checkpoints
    from outlive.run.errors import InputError

    if not (path / "checkpoints").is_dir():
        return path
    saved = saved_checkpoints(path / "checkpoints")
    if not saved:
        fix = "name a run that has saved one"
        raise InputError("this run has no whole checkpoint", where=str(path), fix=fix)
    return saved[-1].path


def _weights(path: Path) -> Path:
    """The weights of a checkpoint that outlive wrote: its model/."""
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
