"""`outlive train`: the main job. Prepare, show what will be learned from, train, validate, save."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from outlive.cli.before import data_of, lock_of, settle_data, write_before
from outlive.cli.hand_over import check_hub, hand_over, raise_not_uploaded
from outlive.cli.resume import Place, begun, refuse_no_place
from outlive.run.errors import InputError, Resumable
from outlive.run.sizes import counted

if TYPE_CHECKING:
    from rich.console import Console

    from outlive.engines.native.build import Ready
    from outlive.run.config import LoadedRun, Run
    from outlive.run.engine import Result
    from outlive.run.folder import RunFolder

SHOWN_SAMPLES = 2


def command(
    run_file: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run file (YAML), or a run folder.")
    ] = None,
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Such as seed=1.")] = None,
    model: Annotated[str | None, typer.Option(help="Hub id, folder or .gguf file: needs no run file.")] = None,
    data: Annotated[str | None, typer.Option(help="A file of rows.")] = None,
    runs: Annotated[Path | None, typer.Option(help="Where run folders are. When not given: runs.")] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="[STEP|latest|best|auto]",
            help="Go on from a checkpoint; alone: from the latest. auto: start anew where there is none.",
        ),
    ] = None,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="With --resume: this key may differ from the saved run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on stdout.")] = False,
) -> None:
    """Train as a run file says, or with --model and --data alone."""
    from rich.console import Console

    from outlive.run.config import load_run

    settings = list(overrides or [])
    if run_file is not None and "=" in run_file and not Path(run_file).exists():
        settings, run_file = [run_file, *settings], None
    if run_file is not None and (Path(run_file) / "run.yaml").is_file():  # a run folder stands for its run
        folder = Path(os.path.relpath(os.path.abspath(run_file)))
        name = Path(os.path.abspath(run_file)).name
        run_file, runs, settings = str(folder / "run.yaml"), folder.parent, [*settings, f"name={name}"]
    loaded = load_run(run_file, settings, model=model, data=data)
    console = Console(stderr=as_json, highlight=False)
    runs = runs or Path("runs")
    with loaded.at_its_line():
        result = train(loaded, runs, console, resume, accept or ())
    if result.status == "stopped":
        ignore_further_signals()
    if as_json:
        typer.echo(json.dumps(json.loads(result.to_json())))
    raise_not_uploaded(result)
    if result.status == "stopped":
        where = f"after step {result.steps}, which is saved" if result.steps else "before its first step"
        fix = f"go on with: outlive train {runs / loaded.run.name} --resume"
        raise Resumable(f"{result.message} {where}", fix=fix)


def ignore_further_signals() -> None:
    """The run is saved, and the process about to end: another signal is not to change its exit code."""
    import signal

    from outlive.run.stopping import SIGNALS

    for name in SIGNALS:
        if number := getattr(signal, name, None):
            signal.signal(number, signal.SIG_IGN)


class Command(TyperCommand):
    """`--resume` may stand alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write a lone --resume as --resume=latest, which the parser has no word for."""
        from outlive.cli.resume import is_place

        for place, argument in enumerate(args):
            if argument == "--":
                break
            if argument == "--resume" and not (place + 1 < len(args) and is_place(args[place + 1])):
                args = [*args[:place], "--resume=latest", *args[place + 1 :]]
        return super().parse_args(ctx, args)


def train(
    loaded: LoadedRun,
    runs: Path,
    console: Console,
    resume: str | None = None,
    accept: Sequence[str] = (),
) -> Result:
    """The whole job of one run: a new one, or one that goes on (`resume`: a step, latest, best or auto)."""
    from outlive.run.claim import claim
    from outlive.run.folder import RunFolder, refuse_existing

    if resume is not None:
        refuse_no_place(resume)
    if accept and resume is None:
        raise InputError(
            "--accept goes with --resume", where=f"--accept {accept[0]}", fix="add --resume, or leave it out"
        )
    for note in loaded.notes:
        say(note, console)
    check_hub(loaded.run)
    folder = RunFolder(runs / loaded.run.name)
    if resume is not None and folder.root.is_dir():
        with claim(folder, lambda note: say(note, console)):
            if begun(folder):
                return go_on(loaded.run, folder, console, resume, accept)
            say(f"{folder.root} was made by a start that came to nothing: the run begins", console)
            return start(loaded.run, folder, console)
    if resume is not None and resume != "auto":
        raise InputError(
            "there is no such run to go on with", where=str(folder.root), fix="leave --resume out to start it"
        )
    refuse_existing(loaded.run.name, runs)
    return start(loaded.run, folder, console, make=True)


def start(run: Run, folder: RunFolder, console: Console, make: bool = False) -> Result:
    """A new run, in a folder that is there and claimed, or (`make`) in one that is made for it."""
    from outlive.cli.show.preparing import Preparing
    from outlive.engines.native.build import get_ready
    from outlive.engines.native.engine import Native
    from outlive.run.claim import claim
    from outlive.run.folder import create

    for problem in Native().check(run):
        raise problem.error()
    with Preparing(console) as shown:
        ready = get_ready(run, None, shown.say, shown.on_progress)
    show_ledgers(ready, console)
    show_samples(ready, console)
    if not make:
        return first_start(ready, folder, console)
    create(ready.run.name, folder.root.parent)
    with claim(folder, lambda note: say(note, console)):
        return first_start(ready, folder, console)


def first_start(ready: Ready, folder: RunFolder, console: Console) -> Result:
    """Begin in an empty, claimed folder. It is taken away again where the run never came to its first step."""
    try:
        write_before(ready, folder)
        return work(ready, folder, console, Place(None, 0, 1))
    except BaseException:
        if not has_trained(folder):
            shutil.rmtree(folder.root, ignore_errors=True)
        raise


def go_on(run: Run, folder: RunFolder, console: Console, which: str, accept: Sequence[str]) -> Result:
    """A run from a checkpoint on, or from its beginning where none was saved; the folder is claimed."""
    from outlive.checkpoint.folder import sweep
    from outlive.cli.resume import complete, continued, find_place, same_contents, saved_facts, set_aside
    from outlive.cli.show.preparing import Preparing
    from outlive.engines.native.build import get_ready
    from outlive.run.changes import facts

    run, found = continued(run, folder, accept)
    place = find_place(folder, which, lambda note: say(note, console))
    before = saved_facts(folder, lambda note: say(note, console))
    with Preparing(console) as shown:
        ready = get_ready(run, place.checkpoint, shown.say, shown.on_progress)
    lock, data = lock_of(ready), data_of(ready)
    if before is not None:
        for change in same_contents(before, facts(lock, data), found, accept):
            say(f"differs from the saved run: {change}", console)
    num_steps = ready.source.num_steps()
    if ready.source.cursor.step >= num_steps:
        for note in ready.notes:
            say(note, console)
        trained = f"{counted(num_steps, 'step')} {'is' if num_steps == 1 else 'are'} trained"
        say(f"this run is complete: {trained}; raise stop.epochs or stop.steps to go on", console)
        sweep(folder.checkpoints)  # of a kill while the last of it was kept
        if not folder.report.exists():
            say(f"report: {write_report(folder)}", console)
        return hand_over(run, folder, complete(folder, num_steps), lambda note: say(note, console))
    show_ledgers(ready, console)
    at = f"pass {ready.source.cursor.epoch + 1}, step {place.step} of {num_steps}"
    say(f"attempt {place.attempt} goes on from {place.checkpoint or 'the beginning'}: {at}", console)
    set_aside(folder, place, lambda note: say(note, console))
    write_before(ready, folder)
    return work(ready, folder, console, place)


def work(ready: Ready, folder: RunFolder, console: Console, place: Place) -> Result:
    """The training itself, with its display and its signals."""
    from outlive.cli.show.progress import Progress
    from outlive.data.growing import end_growing
    from outlive.engines.native.build import job_of
    from outlive.engines.native.engine import Native
    from outlive.run.stopping import Stopping

    for note in ready.notes:
        say(note, console)
    progress = Progress(console, ready.source.num_steps())
    try:
        with Stopping(lambda note: say(note, console), lambda: resumable_code(folder)) as stopping, progress:
            engine = Native(progress.on_record, lambda note: say(note, console), lambda: stopping.requested is not None)
            result = engine.train(job_of(ready, folder.root, place.attempt, place.checkpoint))
    except BaseException:
        end_growing(ready.prepared.train.stores)
        raise
    if (whole := settle_data(ready, folder, lambda note: say(note, console))) is not None:
        show_ledgers(whole, console)
    facts = {
        "folder": str(folder.root),
        "report": str(folder.report),
        "attempt": place.attempt,
        "from_step": place.step,
    }
    result = replace(result, facts={**result.facts, **facts})
    if result.status == "stopped":
        return replace(result, message=stopping.requested)
    show_after(result, folder, console, place)
    return hand_over(ready.run, folder, result, lambda note: say(note, console))


def resumable_code(folder: RunFolder) -> int:
    """The exit code of a run that is ended at once: 75 where a checkpoint lets it go on, else 1."""
    from outlive.checkpoint.folder import saved_checkpoints

    return Resumable.exit_code if saved_checkpoints(folder.checkpoints) else 1


def has_trained(folder: RunFolder) -> bool:
    """Whether the run came to the end of a step: then its folder tells something, and stays."""
    from outlive.run.errors import OutliveError
    from outlive.run.metrics import read

    try:
        return any(record.kind == "train" for record in read(folder.metrics).records)
    except OutliveError:
        return folder.metrics.exists()


def show_ledgers(ready: Ready, console: Console) -> None:
    """What became of every row."""
    from outlive.cli.show.terminal import show_ledger

    show_ledger(console, ready.prepared.ledgers)


def show_samples(ready: Ready, console: Console) -> None:
    """Two samples of the first step, with the tokens that carry loss marked."""
    from outlive.cli.show.terminal import show_sample
    from outlive.engines.native.engine import first_packs

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


def say(note: str, console: Console) -> None:
    """What was decided for the user, as a line of its own."""
    console.print(f"note: {note}", markup=False, soft_wrap=True)


def show_after(result: Result, folder: RunFolder, console: Console, place: Place) -> None:
    """How it went, where the result is, and how to talk to it."""
    validation = f", validation loss {result.validation_loss:.4f}" if result.validation_loss is not None else ""
    loss = f"{result.loss:.4f}" if result.loss is not None else "not finite"
    steps = f"steps {place.step + 1} to {result.steps}" if place.step else counted(result.steps, "step")
    lines = [
        f"trained {steps}, {counted(result.tokens, 'token')} ({counted(result.target_tokens, 'target')}) in "
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
