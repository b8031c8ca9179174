"""`outlive convert`: a checkpoint in another format, without a framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer


def command(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A folder, or a .bin, .pt or .gguf file.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The folder that is made.")],
    to: Annotated[Literal["huggingface", "dcp", "gguf"], typer.Option(help="The format.")] = "huggingface",
    like: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where config, tokenizer and template are, if not in SRC.")
    ] = None,
    dtype: Annotated[
        Literal["bf16", "fp16", "fp32", "q8_0"] | None, typer.Option(help="Of the weights; by default their own.")
    ] = None,
    layout: Annotated[
        Literal["original", "fused"],
        typer.Option(help="Experts apart, as published, or as modules hold them."),
    ] = "original",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Write a checkpoint in another format: safetensors with config in both spellings, torch DCP or GGUF."""
    from outlive.checkpoint.convert import convert
    from outlive.checkpoint.formats.detect import open_checkpoint
    from outlive.run.malloc import keep_freed_blocks

    keep_freed_blocks()
    model = open_checkpoint(source)
    found = convert(model, target, to, like=like, dtype=dtype, layout=layout)
    size = sum(path.stat().st_size for path in target.iterdir() if path.is_file())
    if as_json:
        about = {"target": str(target), "from": model.format, "to": to, "tensors": len(found.tensors), "bytes": size}
        typer.echo(json.dumps({**about, "left_out": found.left, "notes": found.notes}, ensure_ascii=False))
        return
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"{target}: {len(found.tensors)} tensors, {size:,} bytes, from {model.format} to {to}")
