"""`outlive init`: write a commented run file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from outlive.run.errors import InputError


def command(
    file: Annotated[Path, typer.Argument(help="The run file to write.")] = Path("run.yaml"),
    model: Annotated[str | None, typer.Option(help="Hub id, folder or .gguf file of the model.")] = None,
    data: Annotated[str | None, typer.Option(help="File or folder of rows, or a hub data set.")] = None,
) -> None:
    """Write a commented run file with every key and its default. An existing file is never overwritten."""
    from outlive.run import init_file
    from outlive.run.files import write_atomic

    file = Path(os.path.normpath(file))  # a/../run.yaml is run.yaml, whether there is an a or not
    if os.path.lexists(file):
        raise InputError("this file exists already", where=str(file), fix="name another: outlive init FILE")
    text = init_file.init_text(model or init_file.MODEL, data or init_file.DATA, str(file))
    write_atomic(file, text)
    typer.echo(f"wrote {file}: set model and data in it, then start it with: outlive train {file}")
