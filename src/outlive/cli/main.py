"""`outlive VERB`: a table of verbs, each loaded only when it is used, and errors as exit codes."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from outlive.run.errors import InputError, OutliveError

# Verb: the module that has its `command`, and its help line. Shown in this order.
VERBS: dict[str, tuple[str, str]] = {
    "train": ("outlive.cli.train", "Prepare, train, validate and save: the main job."),
    "inspect": ("outlive.cli.inspect", "Show samples with the tokens that carry loss marked."),
    "prepare": ("outlive.cli.prepare", "Only the data: rows, store, plan and ledger."),
    "generate": ("outlive.cli.generate", "Talk to a checkpoint."),
    "report": ("outlive.cli.report", "Draw a run's report page."),
    "init": ("outlive.cli.init", "Write a commented run file."),
    "schema": ("outlive.cli.schema", "Print the JSON Schema of the run file, for editors."),
}
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
        app.command(cmd_name, short_help=line)(importlib.import_module(module).command)
        return typer.main.get_command(app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of verbs in `--help`, from the table alone."""
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, line) for verb, (_, line) in VERBS.items()])

    def invoke(self, ctx: Any) -> Any:
        """Run a verb. Known errors become a message on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except OutliveError as error:
            raise _exit(error) from None
        except OSError as error:
            if error.errno is None or error.errno == errno.EPIPE:  # not a file's; a reader that left, as `| head` does
                raise
            raise _exit(_file_error(error)) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


def _exit(error: OutliveError) -> typer.Exit:
    sys.stdout.flush()
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(error.exit_code)


def _file_error(error: OSError) -> OutliveError:
    """What the system says against a file that no part of Outlive has words of its own for."""
    from outlive.run.files import disk_error

    if error.errno == errno.ENAMETOOLONG:
        return InputError("this is too long for a file's name", where=f"{str(error.filename)[:100]}…")
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
    """Make both outputs take every character: where their encoding lacks one, it is written as \\uXXXX."""
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
    except Exception:
        import traceback

        traceback.print_exc()
        typer.echo("This is a fault in outlive, not in your input. Please report it with the text above.", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
