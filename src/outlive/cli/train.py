"""`outlive train`: the main job. Prepare, show what will be learned from, train, validate, save."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from outlive.engines.native.build import Ready
    from outlive.run.config import LoadedRun
    from outlive.run.engine import Result
    from outlive.run.folder import RunFolder

SHOWN_SAMPLES = 2


def command(
    run_file: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run file (YAML).")] = None,
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Such as seed=1.")] = None,
    model: Annotated[str | None, typer.Option(help="Hub id, folder or .gguf file: needs no run file.")] = None,
    data: Annotated[str | None, typer.Option(help="A file of rows.")] = None,
    runs: Annotated[Path, typer.Option(help="Where run folders are.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on stdout.")] = False,
) -> None:
    """Train as a run file says, or with --model and --data alone."""
    from rich.console import Console

    from outlive.run.config import load_run

    settings = list(overrides or [])
    if run_file is not None and "=" in run_file and not Path(run_file).exists():
        settings, run_file = [run_file, *settings], None
    loaded = load_run(run_file, settings, model=model, data=data)
    console = Console(stderr=as_json, highlight=False)
    result = train(loaded, runs, console, run_file or "…")
    if as_json:
        typer.echo(json.dumps(json.loads(result.to_json())))


def train(loaded: LoadedRun, runs: Path, console: Console, run_file: str = "RUN") -> Result:
    """The whole job of one run. A run folder that never came to its first step is taken away again."""
    from outlive.cli.show.progress import Progress
    from outlive.engines.native.build import get_ready, job_of
    from outlive.engines.native.engine import Native
    from outlive.run.folder import create, refuse_existing

    refuse_existing(loaded.run.name, runs, run_file, can_resume=False)
    for note in loaded.notes:
        say(note, console)
    for problem in Native().check(loaded.run):
        raise problem.error()
    ready = get_ready(loaded.run)
    show_before(ready, console)
    progress = Progress(console, ready.source.num_steps())
    engine = Native(show=progress.on_record, say=lambda note: say(note, console))
    folder = create(ready.run.name, runs, run_file, can_resume=False)
    try:
        write_before(ready, folder)
        with progress:
            result = engine.train(job_of(ready, folder.root))
    except BaseException:
        if not has_trained(folder):
            shutil.rmtree(folder.root, ignore_errors=True)
        raise
    show_after(result, folder, console)
    return result


def has_trained(folder: RunFolder) -> bool:
    """Whether the run came to the end of a step: then its folder tells something, and stays."""
    from outlive.run.errors import OutliveError
    from outlive.run.metrics import read

    try:
        return any(record.kind == "train" for record in read(folder.metrics).records)
    except OutliveError:
        return folder.metrics.exists()


def show_before(ready: Ready, console: Console) -> None:
    """The ledger, two samples with the tokens that carry loss marked, and what was decided."""
    from outlive.cli.show.terminal import show_ledger, show_sample
    from outlive.engines.native.engine import first_packs

    show_ledger(console, ready.prepared.ledgers)
    shown = 0
    packs = first_packs(ready)
    for tokens, weights, segments in zip(packs.tokens, packs.weights, packs.segments, strict=True):
        for number in range(segments[-1] + 1):
            if shown == SHOWN_SAMPLES:
                break
            places = [place for place, segment in enumerate(segments) if segment == number]
            cut = slice(places[0], places[-1] + 1)
            shown += 1
            show_sample(console, ready.tokenizer, tokens[cut], weights[cut], f"sample {shown} of the first step")
    for note in ready.notes:
        say(note, console)


def say(note: str, console: Console) -> None:
    """What was decided for the user, as a line of its own."""
    console.print(f"note: {note}", markup=False, soft_wrap=True)


def write_before(ready: Ready, folder: RunFolder) -> None:
    """What is known before the first step: the resolved run, the lock, the data, and the first batch as a page."""
    from outlive.cli.show.pages import first_batch_page
    from outlive.engines.native.engine import first_packs
    from outlive.run.files import write_atomic
    from outlive.run.lock import lock

    write_atomic(folder.run_yaml, ready.run.to_yaml())
    hashes = {
        "model": ready.place.content_hash(),
        "tokenizer": ready.tokenizer.hash,
        "chat_template": ready.template.hash if ready.template else None,
        "date": ready.run.data.date,
        "stores": [store.folder.name for store in ready.prepared.train.stores],
    }
    write_atomic(folder.lock, _json(lock(hashes, gpu=_gpu())))
    plan = ready.source.plan(0)
    about = {"packs": plan.num_packs, "steps_per_epoch": plan.num_steps, "steps": ready.source.num_steps()}
    write_atomic(folder.data, _json({**ready.prepared.about(), "plan": about}))
    page = first_batch_page(ready.tokenizer, first_packs(ready), {"run": ready.run.name, "model": str(ready.run.model)})
    write_atomic(folder.first_batch, page)


def show_after(result: Result, folder: RunFolder, console: Console) -> None:
    """How it went, where the result is, and how to talk to it."""
    validation = f", validation loss {result.validation_loss:.4f}" if result.validation_loss is not None else ""
    loss = f"{result.loss:.4f}" if result.loss is not None else "not finite"
    lines = [
        f"trained {result.steps} steps, {result.tokens:,} tokens ({result.target_tokens:,} targets) in "
        f"{result.seconds:.0f} s: loss {loss}{validation}",
        f"saved:   {result.output}",
        f"report:  {write_report(folder)}",
        f'talk:    outlive generate {folder.root} "Hello"',
    ]
    console.print("\n".join(lines), markup=False, soft_wrap=True)


def write_report(folder: RunFolder) -> str:
    """Draw the report; where it is. What is trained and saved is not lost where the report can't be written."""
    from outlive.cli.show.pages import report_page
    from outlive.run.errors import OutliveError
    from outlive.run.files import write_atomic

    try:
        write_atomic(folder.report, report_page(folder.root))
    except OutliveError as error:
        return f"not written: {error}"
    return str(folder.report)


def _gpu() -> dict[str, Any] | None:
    import torch

    if not torch.cuda.is_available():
        return None
    return {
        "name": torch.cuda.get_device_name(),
        "count": torch.cuda.device_count(),
        "cuda": torch.version.cuda,
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)
