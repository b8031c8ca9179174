"""`outlive merge`: an adapter into its base, or several models into one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from outlive.run.errors import InputError

if TYPE_CHECKING:
    from outlive.checkpoint.adapters import Result
    from outlive.checkpoint.tensors.tensor import Tensor

Method = Literal["average", "task", "ties", "dare"]


def command(
    paths: Annotated[
        list[Path], typer.Argument(help="BASE ADAPTER … DST; with --method A B … DST. DST is the folder that is made.")
    ],
    method: Annotated[Method | None, typer.Option(help="Combine models instead of merging an adapter.")] = None,
    base: Annotated[Path | None, typer.Option(help="What task, ties and dare take the differences to.")] = None,
    weights: Annotated[
        str | None, typer.Option(help="One number for each adapter or model: 0.7,0.3. By default all alike.")
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
    like: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where config and tokenizer are, if a base has none (GGUF, DCP).")
    ] = None,
    dtype: Annotated[
        Literal["bf16", "fp16", "fp32"] | None, typer.Option(help="Of the weights; by default the base's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Merge an adapter into its base, or combine models (average, task arithmetic, TIES, DARE)."""
    from outlive.checkpoint.model_folder import write_model_folder
    from outlive.checkpoint.resumed import key_of
    from outlive.run.malloc import keep_freed_blocks
    from outlive.run.stopping import resumable

    keep_freed_blocks()
    *sources, target = _paths(paths, method)
    if os.path.lexists(target):
        raise InputError("this exists already", where=str(target), fix="name a folder that does not exist yet")
    if method is None:
        if base is not None or density is not None:
            raise InputError("--base and --density go with --method", fix="add --method, or leave them out")
        root, adapters = _open(sources[0], like, dtype), sources[1:]
        found = _adapted(root, adapters, _numbers(weights), initial, blockwise_experts, dtype)
        tensors, config, notes = found.tensors, found.config, found.notes
        about: dict[str, Any] = {"made_by": "merge", "base": str(sources[0]), "weights": weights}
        about["adapters"] = [str(adapter) for adapter in adapters]
        beside = [*adapters, *root.beside]
    else:
        if initial is not None or blockwise_experts:
            raise InputError("--initial and --blockwise-experts are for adapters", fix="leave them out")
        models = [_open(source, like, dtype) for source in sources]
        began = None if base is None else _open(base, like, dtype)
        tensors = _combined(method, models, began, _numbers(weights), density, scale, seed)
        root, notes = began or models[0], []
        config, beside = dict(root.config), root.beside
        about = {"made_by": "merge", "method": method, "models": [str(source) for source in sources]}
        about |= {"base": None if base is None else str(base), "weights": weights, "density": density}
        about |= {"scale": scale, "seed": seed}
    about["notes"] = notes
    read = [*sources, *(one for one in (base, initial, like) if one is not None)]
    key = key_of(read, {**about, "dtype": dtype, "blockwise_experts": blockwise_experts}, target)
    texts = _texts(root, beside)
    with resumable("in the middle of the merge"):
        write_model_folder(target, tensors, config, sources=beside, about=about, key=key, dtype=dtype, texts=texts)
    if as_json:
        typer.echo(json.dumps({"model": str(target), "tensors": len(tensors), "notes": notes}, ensure_ascii=False))
        return
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"{target}: {len(tensors)} tensors")


@dataclass(frozen=True)
class _Opened:
    """A model to merge into, or to combine. `beside`: where its tokenizer and template are; `texts`: these as files,
    where the model's own file has them."""

    place: Path
    tensors: dict[str, Tensor]
    config: dict[str, Any]
    beside: list[Path]
    texts: Mapping[str, str] = field(default_factory=dict)


def _paths(paths: list[Path], method: Method | None) -> list[Path]:
    if len(paths) < 3:
        wanted = "BASE ADAPTER DST" if method is None else "at least two models and DST"
        what = f"{len(paths)} paths are given, and merge{f' --method {method}' if method else ''} takes {wanted}"
        raise InputError(what, fix="outlive merge BASE ADAPTER DST, or outlive merge --method average A B DST")
    return paths


def _adapted(
    root: _Opened,
    adapters: list[Path],
    weights: list[float] | None,
    initial: Path | None,
    blockwise: bool,
    dtype: str | None,
) -> Result:
    from outlive.checkpoint.adapters import all_merged, check_bound, check_finite, open_adapter, rounding_note
    from outlive.checkpoint.tensors.dtypes import SHORT

    opened = [open_adapter(_folder(adapter)) for adapter in adapters]
    first = None if initial is None else open_adapter(_folder(initial))
    for path, adapter in zip(adapters, opened, strict=True):
        check_bound(path, root.place)
        check_finite(adapter)
    found = all_merged(root.tensors, opened, root.config, weights=weights, initial=first, blockwise_experts=blockwise)
    told = [rounding_note(found.tensors, opened, SHORT[dtype] if dtype else None), _other_texts(adapters)]
    return replace(found, notes=[*found.notes, *(note for note in told if note)])


def _other_texts(adapters: list[Path]) -> str | None:
    """What to tell of adapters that bring different tokenizers or templates: those of the first are taken."""
    whole = [adapter for adapter in adapters if (adapter / "tokenizer.json").is_file()]
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        for other in whole[1:]:
            texts = [path.read_bytes() if path.is_file() else b"" for path in (whole[0] / name, other / name)]
            if texts[0] != texts[1]:
                return f"{name} of {other} differs from that of {whole[0]}, whose tokenizer and template are taken"
    return None


def _combined(
    method: Method,
    models: list[_Opened],
    began: _Opened | None,
    weights: list[float] | None,
    density: float | None,
    scale: float,
    seed: int,
) -> dict[str, Tensor]:
    from outlive.checkpoint import combine

    tensors = [model.tensors for model in models]
    if method == "average":
        if began is not None or density is not None or scale != 1.0:
            raise InputError("--base, --density and --scale say nothing to an average", fix="leave them out")
        return combine.average(tensors, weights)
    if began is None:
        raise InputError(
            f"{method} takes differences to a base", where="--base", fix="name the model that all began as"
        )
    if method == "task":
        if density is not None:
            raise InputError("--density says nothing to task arithmetic", fix="leave it out, or use ties or dare")
        return combine.task_arithmetic(began.tensors, tensors, weights, scale)
    if method == "ties":
        kept = 0.2 if density is None else density
        return combine.ties(began.tensors, tensors, weights, density=kept, scale=scale)
    kept = 0.5 if density is None else density
    return combine.dare(began.tensors, tensors, weights, density=kept, scale=scale, seed=seed)


def _open(path: Path, like: Path | None, dtype: str | None) -> _Opened:
    """A model of any format. Where float32 is written its tensors are read as such, so that what is made of them is
    not rounded to less on the way."""
    from outlive.checkpoint.convert import weights_of
    from outlive.checkpoint.formats.detect import open_checkpoint
    from outlive.checkpoint.tensors.views import widened

    if not path.is_file():
        _folder(path)
    model = open_checkpoint(path)
    if model.format == "huggingface":
        opened = _Opened(path, dict(model.tensors), dict(model.config), [path])
    else:
        found = weights_of(model, None if like is None else _folder(like))
        opened = _Opened(path, found.tensors, dict(found.config), found.beside, found.texts)
    if dtype != "fp32":
        return opened
    return replace(opened, tensors=widened(opened.tensors), config={**opened.config, "dtype": "float32"})


def _texts(root: _Opened, beside: list[Path]) -> Mapping[str, str]:
    """The tokenizer and template that the base's own file has, unless an adapter brings its own."""
    return {} if any((folder / "tokenizer.json").is_file() for folder in beside) else root.texts


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
