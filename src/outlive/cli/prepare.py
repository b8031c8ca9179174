"""`outlive prepare`: only the data. Rows → store → plan, with the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from outlive.data.prepare import Prepared
    from outlive.run.config import Run


def command(
    run_file: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run file (YAML).")] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Such as data.packing=none.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Folder, hub id or .gguf file: needs no run file.")] = None,
    data: Annotated[str | None, typer.Option(help="A file of rows.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Turn a run's rows into tokens, keep them, and show what became of every row and how they fill the steps."""
    from outlive.cli.open_run import open_run
    from outlive.cli.show.terminal import make_console, show_facts, show_ledger
    from outlive.data.prepare import prepare
    from outlive.run.config import load_run

    settings = list(overrides or [])
    if run_file is not None and "=" in run_file and not Path(run_file).exists():
        settings, run_file = [run_file, *settings], None
    loaded = load_run(run_file, settings, model=model, data=data)
    for note in loaded.notes:
        typer.echo(f"note: {note}", err=True)
    opened = open_run(loaded.run)
    prepared = prepare(loaded.run.data, opened.tokenizer, opened.template, opened.columns)
    plan = plan_facts(loaded.run, prepared)
    if as_json:
        typer.echo(json.dumps({**prepared.about(), "plan": plan}))
        return
    console = make_console()
    show_ledger(console, prepared.ledgers)
    console.print()
    show_facts(console, facts_for_people(loaded.run, prepared, plan))


def plan_facts(run: Run, prepared: Prepared) -> dict[str, Any]:
    """What the first epoch's plan holds: packs, steps, tokens, targets, and how full the packs are (0 to 1)."""
    from outlive.data.plan import Layout, make_plan, refuse_empty

    layout = Layout.of(
        run.data.sequence_length, tokens=run.batch.tokens, sequences=run.batch.sequences, packing=run.data.packing
    )
    plan = refuse_empty(make_plan(prepared.train, layout, run.seed, 0))
    num_tokens = int((plan.end - plan.start).sum())
    return {
        "packing": layout.packing,
        "sequence_length": layout.sequence_length,
        "packs": plan.num_packs,
        "packs_per_step": layout.packs_per_step,
        "steps_per_epoch": plan.num_steps,
        "segments": len(plan.store),
        "tokens": num_tokens,
        "fill": num_tokens / max(1, plan.num_packs * layout.sequence_length),
    }


def facts_for_people(run: Run, prepared: Prepared, plan: dict[str, Any]) -> dict[str, str]:
    """The summary, as names and values."""
    from outlive.cli.show.terminal import counted

    stores = prepared.train.stores
    num_tokens, num_targets = (sum(s.manifest[key] for s in stores) for key in ("num_tokens", "num_targets"))
    validation = prepared.validation.stores if prepared.validation else []
    num_held = sum(store.manifest["num_tokens"] for store in validation)
    facts = {
        "training": f"{counted(sum(map(len, stores)), 'sample')}, {counted(num_tokens, 'token')}, "
        f"{counted(num_targets, 'target')} ({num_targets / max(1, num_tokens):.1%})",
        "validation": f"{counted(sum(map(len, validation)), 'sample')}, {counted(num_held, 'token')}"
        if validation
        else "none",
        "packing": f"{plan['packing']} to {plan['sequence_length']:,} tokens: {counted(plan['packs'], 'pack')}, "
        f"{plan['fill']:.1%} full",
        "steps": f"{plan['steps_per_epoch']:,} per epoch, of up to {counted(plan['packs_per_step'], 'pack')}",
        "stores": ", ".join(str(store.folder) for store in [*stores, *validation]),
    }
    if run.data.packing != "none":
        facts["note"] = "training packs only where it is proved that documents stay apart; else each sample has its own"
    return facts
