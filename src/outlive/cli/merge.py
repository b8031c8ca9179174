"""`outlive merge`: an adapter into its base, or several models into one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from outlive.run.errors import InputError

if TYPE_CHECKING:
    from outlive.checkpoint.model import Model
    from outlive.checkpoint.tensors.tensor import Tensor

Method = Literal["average", "task", "ties", "dare"]


def command(
    paths: Annotated[
        list[Path], typer.Argument(help="BASE ADAPTER DST; with --method A B … DST. DST is the folder that is made.")
    ],
    method: Annotated[Method | None, typer.Option(help="Combine models instead of merging an adapter.")] = None,
    base: Annotated[Path | None, typer.Option(help="What task, ties and dare take the differences to.")] = None,
    weights: Annotated[
        str | None, typer.Option(help="One number for each model: 0.7,0.3. By default all alike.")
    ] = None,
    density: Annotated[
        float | None, typer.Option(help="Of ties and dare: the share that is kept; 0.2 and 0.5 by default.")
    ] = None,
    scale: Annotated[float, typer.Option(help="Of task, ties and dare: what the sum of differences is times.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="Of what dare drops.")] = 0,
    initial: Annotated[
        Path | None, typer.Option(help="The adapter before its first step, where its start changed the base (PiSSA …).")
    ] = None,
    blockwise_experts: Annotated[
        bool, typer.Option(help="B of experts lies expert by expert, not interleaved as PEFT writes it.")
    ] = False,
    dtype: Annotated[
        Literal["bf16", "fp16", "fp32"] | None, typer.Option(help="Of the weights; by default the base's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Merge an adapter into its base, or combine models (average, task arithmetic, TIES, DARE)."""
    from outlive.checkpoint.model_folder import write_model_folder

    *sources, target = _paths(paths, method)
    if os.path.lexists(target):
        raise InputError("this exists already", where=str(target), fix="name a folder that does not exist yet")
    if method is None:
        if base is not None or weights is not None or density is not None:
            raise InputError("--base, --weights and --density go with --method", fix="add --method, or leave them out")
        tensors, config, notes = _adapted(sources[0], sources[1], initial, blockwise_experts, dtype == "fp32")
        about: dict[str, Any] = {"made_by": "merge", "base": str(sources[0]), "adapter": str(sources[1])}
        taken = [sources[1], sources[0]]
    else:
        if initial is not None or blockwise_experts:
            raise InputError("--initial and --blockwise-experts are for adapters", fix="leave them out")
        tensors, config, notes = _combined(
            method, sources, base, _numbers(weights), density, scale, seed, dtype == "fp32"
        )
        about = {"made_by": "merge", "method": method, "models": [str(source) for source in sources]}
        about |= {"base": None if base is None else str(base), "weights": weights, "density": density}
        about |= {"scale": scale, "seed": seed}
        taken = [base or sources[0]]
    write_model_folder(target, tensors, config, sources=taken, about={**about, "notes": notes}, dtype=dtype)
    if as_json:
        typer.echo(json.dumps({"model": str(target), "tensors": len(tensors), "notes": notes}, ensure_ascii=False))
        return
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"{target}: {len(tensors)} tensors")


def _paths(paths: list[Path], method: Method | None) -> list[Path]:
    if (method is None and len(paths) != 3) or len(paths) < 3:
        wanted = "BASE ADAPTER DST" if method is None else "at least two models and DST"
        what = f"{len(paths)} paths are given, and merge{f' --method {method}' if method else ''} takes {wanted}"
        raise InputError(what, fix="outlive merge BASE ADAPTER DST, or outlive merge --method average A B DST")
    return paths


def _adapted(
    base: Path, adapter: Path, initial: Path | None, blockwise: bool, wide: bool
) -> tuple[dict[str, Tensor], dict[str, Any], list[str]]:
    from outlive.checkpoint.adapters import check_bound, merged, open_adapter

    model, opened = _open(base), open_adapter(_folder(adapter))
    check_bound(adapter, base)
    first = None if initial is None else open_adapter(_folder(initial))
    result = merged(_tensors(model, wide), opened, model.config, initial=first, blockwise_experts=blockwise)
    return result.tensors, result.config, result.notes


def _combined(
    method: Method,
    sources: list[Path],
    base: Path | None,
    weights: list[float] | None,
    density: float | None,
    scale: float,
    seed: int,
    wide: bool,
) -> tuple[dict[str, Tensor], dict[str, Any], list[str]]:
    from outlive.checkpoint import combine

    models = [_open(source) for source in sources]
    tensors = [_tensors(model, wide) for model in models]
    if method == "average":
        if base is not None or density is not None or scale != 1.0:
            raise InputError("--base, --density and --scale say nothing to an average", fix="leave them out")
        return combine.average(tensors, weights), dict(models[0].config), []
    if base is None:
        raise InputError(
            f"{method} takes differences to a base", where="--base", fix="name the model that all began as"
        )
    began = _open(base)
    root = _tensors(began, wide)
    if method == "task":
        if density is not None:
            raise InputError("--density says nothing to task arithmetic", fix="leave it out, or use ties or dare")
        return combine.task_arithmetic(root, tensors, weights, scale), dict(began.config), []
    if method == "ties":
        kept = 0.2 if density is None else density
        return combine.ties(root, tensors, weights, density=kept, scale=scale), dict(began.config), []
    kept = 0.5 if density is None else density
    return combine.dare(root, tensors, weights, density=kept, scale=scale, seed=seed), dict(began.config), []


def _open(folder: Path) -> Model:
    from outlive.checkpoint.formats.huggingface import open_model

    return open_model(_folder(folder))


def _tensors(model: Model, wide: bool) -> dict[str, Tensor]:
    """A model's tensors; with `wide` those that hold reals in float32, so that what is made of them is not rounded to
    less before it is written as float32."""
    from outlive.checkpoint.tensors.views import Cast

    narrow = ("bfloat16", "float16") if wide else ()
    return {name: Cast(each, "float32") if each.dtype in narrow else each for name, each in model.tensors.items()}


def _folder(folder: Path) -> Path:
    if not folder.is_dir():
        fix = "name a folder on this machine; hf download fetches one from the hub"
        raise InputError("there is no such folder", where=str(folder), fix=fix)
    return folder


def _numbers(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{text!r} is no list of numbers", where="--weights", fix="write them as 0.7,0.3") from None
