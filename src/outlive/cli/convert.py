"""`outlive convert`: a checkpoint in another format, without a framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from outlive.run.errors import InputError
from outlive.run.malloc import keep_freed_blocks
from outlive.run.stopping import resumable


def command(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A folder, or a .bin, .pt or .gguf file.")],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The folder that is made.")],
    to: Annotated[
        Literal["huggingface", "dcp", "pt", "gguf", "peft"], typer.Option(help="The format of DST.")
    ] = "huggingface",
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where config (of peft: adapter_config), tokenizer and template are, if not in SRC."
        ),
    ] = None,
    dtype: Annotated[
        Literal["bf16", "fp16", "fp32", "q8_0"] | None, typer.Option(help="Of the weights; by default their own.")
    ] = None,
    layout: Annotated[
        Literal["original", "fused"],
        typer.Option(help="Experts apart, as published, or as modules hold them."),
    ] = "original",
    base: Annotated[
        Path | None, typer.Option(help="peft: the model that SRC was trained from; needed where SRC is a whole model.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option(help="peft: of the adapter that is made of the difference to --base.")
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="peft: LoRA's alpha, where no adapter_config.json says it. It is never guessed."),
    ] = None,
    save_modules: Annotated[
        bool, typer.Option("--save-modules", help="peft: what is no linear layer goes along whole (modules_to_save).")
    ] = False,
    param_names: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="dcp: names of an optimizer's parameters, one a line, where it has numbers."),
    ] = None,
    modelfile: Annotated[
        bool,
        typer.Option("--modelfile", help="gguf: a Modelfile for Ollama beside the file: template, stops, context."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Write a checkpoint in another format: safetensors with config in both spellings, torch DCP, a file of
    torch.save, GGUF, or an adapter of PEFT. An optimizer goes along between DCP and .pt."""
    keep_freed_blocks()
    options = {"base": base, "rank": rank, "alpha": alpha, "save_modules": save_modules}
    if to == "peft":
        if param_names is not None:
            what = "peft has no place for an optimizer"
            raise InputError(what, where="--param-names", fix="leave it out")
        if modelfile:
            raise InputError("a Modelfile is for GGUF files", where="--modelfile", fix="leave it out")
        with resumable("in the middle of the conversion"):
            about = _to_peft(source, target, like, dtype, layout, options)
    elif given := [name for name, value in options.items() if value not in (None, False)]:
        what = f"--{given[0].replace('_', '-')} says nothing to {to}"
        raise InputError(what, where="--to", fix="add --to peft, or leave it out")
    else:
        with resumable("in the middle of the conversion"):
            about = _converted(source, target, to, like, dtype, layout, param_names, modelfile)
    size = sum(path.stat().st_size for path in target.iterdir() if path.is_file())
    about = {"target": str(target), "from": about.pop("from"), "to": to, "bytes": size, **about}
    if as_json:
        typer.echo(json.dumps(about, ensure_ascii=False))
        return
    for note in about["notes"]:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"{target}: {about['tensors']} tensors, {size:,} bytes, from {about['from']} to {to}")


def _converted(
    source: Path,
    target: Path,
    to: Any,
    like: Path | None,
    dtype: Any,
    layout: Any,
    param_names: Path | None,
    modelfile: bool,
) -> dict[str, Any]:
    from outlive.checkpoint.convert import convert
    from outlive.checkpoint.formats.detect import open_checkpoint
    from outlive.checkpoint.optimizer import read_names

    model = open_checkpoint(source)
    names = None if param_names is None else read_names(param_names)
    found = convert(model, target, to, like=like, dtype=dtype, layout=layout, names=names, with_modelfile=modelfile)
    num_bytes = sum(model.tensors[name].num_bytes for name in found.left if name in model.tensors)
    about = {"from": model.format, "tensors": len(found.tensors), "left_out": found.left}
    return {**about, "left_out_bytes": num_bytes, "notes": found.notes}


def _to_peft(
    source: Path, target: Path, like: Path | None, dtype: Any, layout: str, options: dict[str, Any]
) -> dict[str, Any]:
    from outlive.checkpoint.adapters.to_peft import convert_to_peft

    if dtype == "q8_0" or layout != "original":
        raise InputError("q8_0 and --layout say nothing to peft", where="--to", fix="leave them out")
    found = convert_to_peft(source, target, like=like, dtype=dtype, **options)
    worst = min(found.kept, key=lambda path: found.kept[path]) if found.kept else None
    about = {"from": found.format, "tensors": len(found.tensors), "left_out": found.left}
    return {
        **about, "left_out_bytes": found.left_bytes, "kept": found.kept, "worst": worst, "notes": found.notes,
    }  # fmt: skip
