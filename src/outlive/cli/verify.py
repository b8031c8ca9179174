"""`outlive verify`: is a checkpoint whole, and does everybody read the same model from it?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outlive.checkpoint.model import Model
    from outlive.checkpoint.tensors.tensor import Tensor
    from outlive.checkpoint.verify.against import Difference
    from outlive.checkpoint.verify.finding import Finding
    from outlive.modeling.compare import Apart

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
    logits: Annotated[bool, typer.Option("--logits", help="With --against: compare what both answer.")] = False,
    dtype: Annotated[Literal["fp32", "bf16"], typer.Option(help="With --logits: how both are loaded.")] = "fp32",
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="With --logits: the largest difference of two logits that is the same.")
    ] = 1e-3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Read every byte of a checkpoint, and name what others accept in silence. Exit code 1 where it is not whole."""
    from outlive.checkpoint.formats.detect import open_checkpoint
    from outlive.checkpoint.verify.against import differences
    from outlive.checkpoint.verify.path import verify_path
    from outlive.run.malloc import keep_freed_blocks

    keep_freed_blocks()
    place = _place(path)
    found = verify_path(place, base)
    differ, apart = None, None
    if logits:
        apart = _apart(place, against, base, dtype)
    elif against is not None:
        differ = differences(*_comparable(open_checkpoint(_weights(place)), open_checkpoint(_weights(_place(against)))))
    if as_json:
        _print_json(place, found, differ, apart)
    else:
        _print(place, found)
        if differ is not None:
            _print_differences(differ)
        if apart is not None:
            share = f"{apart.same_greedy:.2%} choose the same next token"
            typer.echo(
                f"logits: apart by up to {apart.largest:.3g}, KL {apart.kl:.3g}; {share} ({apart.tokens} tokens)"
            )
    is_apart = apart is not None and apart.largest > tolerance
    if differ or is_apart or any(finding.level == "error" for finding in found):
        raise typer.Exit(1)


def _apart(place: Path, against: Path | None, base: Path | None, dtype: str) -> Apart:
    """Both as Hugging Face folders, loaded the same way."""
    import tempfile

    from outlive.cli.as_folder import as_folder
    from outlive.run.errors import InputError

    if against is None:
        raise InputError("--logits compares two checkpoints", fix="name the other one: --against OTHER")
    try:
        import torch

        from outlive.modeling.compare import logits_apart
    except ImportError as error:
        fix = "install outlive[train], or leave --logits out: tensors are compared without"
        raise InputError(f"--logits needs {error.name}", fix=fix) from None
    with tempfile.TemporaryDirectory(prefix="outlive-verify-") as made:
        one = as_folder(_weights(place), base, Path(made) / "one")
        other = as_folder(_weights(_place(against)), base, Path(made) / "other")
        return logits_apart(one, other, torch.float32 if dtype == "fp32" else torch.bfloat16)


def _comparable(one: Model, other: Model) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    """The tensors of two checkpoints; of two formats under the names that both have in Hugging Face folders."""
    from outlive.checkpoint.convert import weights_of

    if one.format == other.format:
        return one.tensors, other.tensors
    sides = [
        weights_of(side, None if side.config or side.format == "gguf" else against.folder).tensors
        for side, against in ((one, other), (other, one))
    ]
    return sides[0], sides[1]


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
    """The weights of a checkpoint that outlive wrote: its model/ or adapter/."""
    parts = (path / "model", path / "adapter")
    return next((part for part in parts if part.is_dir()), path)


def _print(folder: Path, found: list[Finding]) -> None:
    from outlive.checkpoint.verify.consequences import consequences
    from outlive.checkpoint.verify.path import form_of

    for finding in found:
        head = typer.style(f"{finding.level}[{finding.id}]", fg=_COLORS[finding.level], bold=True)
        typer.echo(f"{head}: {finding.what}\n  --> {finding.where}\n   = fix: {finding.fix}\n")
    serious = [finding for finding in found if finding.level != "note"]
    if programs := consequences(serious, form_of(folder)):
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


def _print_json(folder: Path, found: list[Finding], differ: list[Difference] | None, apart: Apart | None) -> None:
    from outlive.checkpoint.verify.consequences import consequences
    from outlive.checkpoint.verify.path import form_of

    about = {
        "folder": str(folder),
        "whole": not any(finding.level == "error" for finding in found),
        "findings": [finding.to_json() for finding in found],
        "programs": consequences((one for one in found if one.level != "note"), form_of(folder)),
    }
    if differ is not None:
        about["differences"] = [dict(one._asdict()) for one in differ]
    if apart is not None:
        about["logits"] = dict(apart._asdict())
    typer.echo(json.dumps(about, ensure_ascii=False))
