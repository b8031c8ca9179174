"""`outlive prepare`: only the data. Rows → store → plan, with the ledger; and, if asked, files for other tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlive.run.errors import InputError, nearest

if TYPE_CHECKING:
    from outlive.cli.show.terminal import Table
    from outlive.data.plan import Mixture, Plan
    from outlive.data.prepare import Prepared
    from outlive.data.preparer import Mapper
    from outlive.run.config import Run
    from outlive.text.tokenizer import Tokenizer

ORDERS = ("store", "plan")
PLACES = ("here", "ray")


def command(
    run_file: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run file (YAML).")] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Such as data.packing=none.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Folder, hub id or .gguf file: needs no run file.")] = None,
    data: Annotated[str | None, typer.Option(help="A file of rows.")] = None,
    export: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Write the samples for other tools; docs/export.md lists them.")
    ] = None,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A new folder for --export.")] = None,
    order: Annotated[
        str | None, typer.Option(help="store: each sample once (default); plan: the packs of the first pass.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="PLACE", help="Who does the work: here (default), or ray, a Ray cluster.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Turn a run's rows into tokens, keep them, and show what became of every row and how they fill the steps."""
    _check_export(export, to, order)
    refuse_other("--on", on, PLACES)
    from rich.console import Console

    from outlive.cli.open_run import open_run
    from outlive.cli.show.preparing import Preparing
    from outlive.cli.show.terminal import make_console, show_facts, show_ledger
    from outlive.data.mixing_notes import notes_on
    from outlive.data.prepare import prepare
    from outlive.run.config import load_run

    settings = list(overrides or [])
    if run_file is not None and "=" in run_file and not Path(run_file).exists():
        settings, run_file = [run_file, *settings], None
    loaded = load_run(run_file, settings, model=model, data=data)
    for note in loaded.notes:
        typer.echo(f"note: {note}", err=True)
    with loaded.at_its_line(), Preparing(Console(stderr=True, highlight=False)) as shown:
        opened = open_run(loaded.run)
        section, columns = loaded.run.data, opened.columns
        elsewhere = _mapper(on, section.processes)
        prepared = prepare(section, opened.tokenizer, opened.template, columns, shown.say, shown.on_progress, elsewhere)
    plan = plan_facts(loaded.run, prepared)
    for note in notes_on(loaded.run, prepared):
        typer.echo(f"note: {note}", err=True)
    exported = None
    if export is not None and to is not None:
        exported = _export(loaded.run, prepared, opened.tokenizer, export, to, order or ORDERS[0])
    if as_json:
        typer.echo(json.dumps({**prepared.about(), "plan": plan, **({"export": exported} if exported else {})}))
        return
    console = make_console()
    show_ledger(console, prepared.ledgers)
    console.print()
    facts = facts_for_people(loaded.run, prepared, plan)
    if exported:
        facts["export"] = f"{exported['format']}, a row is a {exported['row']}: {to}"
    show_facts(console, facts)


def _check_export(export: str | None, to: Path | None, order: str | None) -> None:
    if export is None and to is None and order is None:
        return
    from outlive.data.export import EXPORTS, refuse_existing

    refuse_other("--export", export, list(EXPORTS))
    refuse_other("--order", order, ORDERS)
    if export is None:
        where = "--to" if to is not None else "--order"
        raise InputError("there is no format to export in", where=where, fix="name one, such as --export hf")
    if to is None:
        raise InputError("there is no folder to export to", where="--export", fix="name a new one with --to FOLDER")
    refuse_existing(to)


def refuse_other(option: str, value: str | None, choices: Sequence[str]) -> None:
    """Raise InputError where an option has a value that is none of its choices."""
    if value is not None and value not in choices:
        near = nearest(value, choices)
        what, fix = f"{value} is none of {', '.join(choices)}", f"name one of them: {option} {near or choices[0]}"
        raise InputError(what, where=option, fix=fix, nearest=near)


def _mapper(on: str | None, processes: int | None) -> Mapper | None:
    """Who makes the chunks, where this machine does not."""
    if on != "ray":
        return None
    from outlive.data.on_ray import OnRay

    return OnRay(processes)


def _export(run: Run, prepared: Prepared, tokenizer: Tokenizer, name: str, to: Path, order: str) -> dict[str, Any]:
    """Write the prepared samples in format `name`; gives the folder and its manifest."""
    from outlive.data.export import export
    from outlive.data.export_rows import Outgoing
    from outlive.data.plan import make_plan
    from outlive.data.prepare import layout_of, validation_plan

    layout = layout_of(run)
    about: dict[str, Any] = {"run": run.name}
    plans: list[Plan | None] = [None, None]
    if order == "plan":
        validation = validation_plan(prepared.validation, layout) if prepared.validation else None
        plans = [make_plan(prepared.train, layout, run.seed, 0), validation]
        about |= {"packing": layout.packing, "sequence_length": layout.sequence_length, "seed": run.seed, "epoch": 0}
    elif any(weight != 1 for weight in prepared.train.weights) or prepared.train.beyond_weights:
        typer.echo("note: each sample is exported once; the sources' weights count with --order plan", err=True)
    mixtures = {"train": prepared.train, "validation": prepared.validation}
    sides = {
        side: Outgoing(mixture, plan)
        for (side, mixture), plan in zip(mixtures.items(), plans, strict=True)
        if mixture is not None
    }
    return {"folder": str(to), **export(name, sides, to, tokenizer, about)}


def plan_facts(run: Run, prepared: Prepared) -> dict[str, Any]:
    """What the first epoch's plan holds: packs, steps, tokens, targets, and how full the packs are (0 to 1)."""
    from outlive.data.plan import make_plan, refuse_empty
    from outlive.data.prepare import layout_of

    layout = layout_of(run)
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
        **({"sources": mixed(prepared.train, plan)} if len(prepared.train.stores) > 1 else {}),
    }


def mixed(mixture: Mixture, plan: Plan) -> list[dict[str, Any]]:
    """What the first pass takes of each source: samples and tokens there, tokens taken and their share, passes."""
    import numpy as np

    taken = np.bincount(plan.store, plan.end - plan.start, len(mixture.stores)).astype(int).tolist()
    visits = mixture.visits(0)
    return [
        {
            "source": store.manifest["source"],
            "samples": len(store),
            "tokens": size.tokens,
            "tokens_taken": tokens,
            "share": tokens / max(1, sum(taken)),
            "passes": stretch.number / max(1, size.units),
        }
        for store, size, stretch, tokens in zip(mixture.stores, mixture.sizes, visits, taken, strict=True)
    ]


def facts_for_people(run: Run, prepared: Prepared, plan: dict[str, Any]) -> dict[str, str | Table]:
    """The summary, as names and values."""
    from outlive.run.sizes import counted

    stores = prepared.train.stores
    num_tokens, num_targets = (sum(s.manifest[key] for s in stores) for key in ("num_tokens", "num_targets"))
    validation = prepared.validation.stores if prepared.validation else []
    num_held = sum(store.manifest["num_tokens"] for store in validation)
    facts: dict[str, str | Table] = {
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
    if sources := plan.get("sources"):
        facts["mixed"] = [
            (f"{one['share']:.1%} of the tokens", f"{one['passes']:.2f} passes", one["source"]) for one in sources
        ]
    if run.data.packing != "none":
        facts["note"] = "training packs only where it is proved that documents stay apart; else each sample has its own"
    return facts
