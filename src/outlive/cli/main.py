"""`outlive VERB`: a table of verbs, each loaded only when it is used, and errors as exit codes."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import re
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from outlive.run.errors import InputError, OutliveError, nearest
from outlive.run.excerpt import COMMAND_LINE, Excerpt

# Verb: the module that has its `command`, and its help line. Shown in this order.
VERBS: dict[str, tuple[str, str]] = {
    "train": ("outlive.cli.train", "Prepare, train, validate and save: the main job."),
    "inspect": ("outlive.cli.inspect", "Show samples with the tokens that carry loss marked."),
    "prepare": ("outlive.cli.prepare", "Only the data: rows, store, plan and ledger."),
    "convert": ("outlive.cli.convert", "A checkpoint in another format."),
    "verify": ("outlive.cli.verify", "Is a model folder whole, and read alike by everybody?"),
    "merge": ("outlive.cli.merge", "Merge an adapter into its base, or several models into one."),
    "upload": ("outlive.cli.upload", "A model or adapter to the Hugging Face hub."),
    "generate": ("outlive.cli.generate", "Talk to a checkpoint."),
    "report": ("outlive.cli.report", "Draw a run's report page."),
    "init": ("outlive.cli.init", "Write a commented run file."),
    "schema": ("outlive.cli.schema", "Print the JSON Schema of the run file, for editors."),
}
_TYPED = "outlive.typed"
_USAGE: type[Exception] = typer.BadParameter.__bases__[
    0
]  # click's UsageError, wherever this version of typer has its click
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


class Verbs(TyperGroup):
    """A group whose verbs come from the table: `outlive --help` loads none of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The verbs, in the table's order."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a verb, or None when there is no such verb. Loads its module."""
        if cmd_name not in VERBS:
            return None
        module, line = VERBS[cmd_name]
        app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        loaded = importlib.import_module(module)
        app.command(cmd_name, short_help=line, cls=getattr(loaded, "Command", None))(loaded.command)
        return typer.main.get_command(app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of verbs in `--help`, from the table alone."""
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, line) for verb, (_, line) in VERBS.items()])

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Note the whole command line: errors quote it, and `--json` decides on their form."""
        ctx.meta[_TYPED] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb. Known errors become a message on stderr and an exit code."""
        typed: list[str] = ctx.meta.get(_TYPED, [])
        try:
            return super().invoke(ctx)
        except OutliveError as error:
            raise _exit(error, typed) from None
        except _USAGE as error:
            raise _exit(_usage_error(error, typed), typed) from None
        except OSError as error:
            if error.errno is None or error.errno == errno.EPIPE:  # not a file's; a reader that left, as `| head` does
                raise
            raise _exit(_file_error(error), typed) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


def _exit(error: OutliveError, typed: list[str]) -> typer.Exit:
    sys.stdout.flush()
    if _wants_json(typed):
        typer.echo(json.dumps({"error": error.to_json()}), err=True)
    else:
        typer.echo(error.render(color=_colors()), err=True)
    return typer.Exit(error.exit_code)


def _wants_json(typed: list[str]) -> bool:
    return "--json" in typed[: typed.index("--")] if "--" in typed else "--json" in typed


def _colors() -> bool:
    """Whether whoever reads stderr wants colours: a terminal, and no NO_COLOR (no-color.org)."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _usage_error(error: Any, typed: list[str]) -> InputError:
    """What click has against the command line, in our form."""
    verb = next((word for word in typed if not word.startswith("-")), None)
    known = list(VERBS) if verb not in VERBS else getattr(error, "possibilities", None) or []
    wrong = getattr(error, "option_name", None) or (verb if verb not in VERBS else None)
    # "Got unexpected extra argument (a)", "Invalid value for '--rows': …"
    if wrong is None and (quoted := re.search(r"\((\S+)\)$|'(--[\w-]+)'", error.format_message())):
        wrong = quoted[1] or quoted[2]
    close = nearest(wrong, known) if wrong and known else None
    line = " ".join(["outlive", *typed])
    at = line.find(f" {wrong}") + 2 if wrong and f" {wrong}" in line else None
    return InputError(
        error.format_message().partition(" Did you mean")[0].partition(" (Possible")[0].rstrip("."),
        excerpts=[Excerpt(COMMAND_LINE, None, line, at, len(wrong or ""))],
        expected=f"one of {', '.join(VERBS)}" if verb not in VERBS else None,
        nearest=close,
        fix=f"outlive {verb} --help shows what it takes" if verb in VERBS else "outlive --help shows the verbs",
    )


def _file_error(error: OSError) -> OutliveError:
    """What the system says against a file that no part of Outlive has words of its own for."""
    from outlive.run.files import disk_error

    if error.errno == errno.ENAMETOOLONG:
        where = f"{str(error.filename)[:100]}…"
        return InputError("this is too long for a file's name", where=where, fix="name a file or a folder")
    if error.errno in (errno.EISDIR, errno.ENOTDIR) and error.filename:
        kind = "a folder" if error.errno == errno.EISDIR else "not in a folder"
        return InputError(f"this is {kind}, where a file is expected", where=str(error.filename), fix="name a file")
    return disk_error(error, error.filename or "the output", "read or write")


app = typer.Typer(
    cls=Verbs,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        typer.echo(f"outlive {importlib.metadata.version('outlive')}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    """Train open language models. The data, the evals and the checkpoints are yours."""


def _open_outputs() -> None:
    """Make both outputs take every character: where their encoding lacks one, its escape is written."""
    if sys.stdout is None:  # closed by whoever started this process
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (open until the process ends)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """The entry point. Exit codes: 0 done, 1 the work failed, 2 the input is wrong, 75 stopped but resumable."""
    _open_outputs()
    try:
        app()
    except Exception as error:
        import traceback

        said = "This is a fault in outlive, not in your input. Please report it with the text above."
        if _wants_json(sys.argv[1:]):
            fault = OutliveError(f"{type(error).__name__}: {error}", fix=said.replace("text above", "traceback"))
            typer.echo(json.dumps({"error": {**fault.to_json(), "traceback": traceback.format_exc()}}), err=True)
            sys.exit(1)
        traceback.print_exc()
        typer.echo(said, err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
