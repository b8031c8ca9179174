"""`outlive report`: how a run went, as a page that opens offline and as a few lines here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from outlive.cli.show.summary import Losses, Summary


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder, as runs/NAME.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Write RUN/report.html from the run's records, and print its figures and its path."""
    from outlive.cli.show.pages import report_page
    from outlive.cli.show.report_page import summary_of
    from outlive.cli.show.terminal import make_console, show_facts
    from outlive.run.errors import InputError
    from outlive.run.files import write_atomic
    from outlive.run.folder import RunFolder

    if not run.is_dir():
        raise InputError("there is no such run folder", where=str(run), fix="name a folder of runs/")
    folder, summary = RunFolder(run), summary_of(run)
    write_atomic(folder.report, report_page(run))
    if as_json:
        typer.echo(json.dumps(summary.to_json() | {"report": str(folder.report)}))
        return
    console = make_console()
    console.print(summary.verdict(), style="bold", soft_wrap=True)
    for warning in summary.warnings():
        console.print(f"note: {warning}", style="yellow", soft_wrap=True)
    show_facts(console, {**facts(summary), "report": str(folder.report)})


def facts(summary: Summary) -> dict[str, str]:
    """The figures of a run, for people."""
    from outlive.cli.show.progress import duration

    rows = {
        "loss": _losses(summary.loss),
        "validation": _losses(summary.validation),
        "steps": f"{summary.steps:,}" + (f" of {summary.planned_steps:,}" if summary.planned_steps else ""),
        "tokens": f"{summary.tokens:,}, of them {summary.target_tokens:,} targets",
        "time": f"{duration(summary.train_seconds)} of training steps",
    }
    if summary.tokens_per_second is not None:
        rows["speed"] = f"{summary.tokens_per_second:,.0f} tokens/s"
    if summary.memory is not None:
        rows["memory"] = f"{summary.memory / 2**30:.2f} GiB at most"
    return rows


def _losses(losses: Losses | None) -> str:
    if losses is None:
        return "none"
    return f"first {losses.first:.4f}, last {losses.last:.4f}, best {losses.best:.4f} (step {losses.best_step})"
