"""`convert --to peft`: an adapter's tensors from wherever they are, or a model's difference to its base."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlive.checkpoint.adapters.adapter import NAME as WEIGHTS
from outlive.checkpoint.adapters.adapter import PICKLED, Adapter, adapter_of, check_finite
from outlive.checkpoint.adapters.binding import check_bound, content_hash
from outlive.checkpoint.adapters.config import Asked, config_from, config_of, settled
from outlive.checkpoint.adapters.extract import extracted
from outlive.checkpoint.adapters.kept import kept_of
from outlive.checkpoint.adapters.merge import merged
from outlive.checkpoint.adapters.names import is_adapter
from outlive.checkpoint.adapters.quantised import dequantised
from outlive.checkpoint.adapters.settings import NAME as CONFIG
from outlive.checkpoint.adapters.settings import settings_of
from outlive.checkpoint.adapters.write import write_adapter
from outlive.checkpoint.formats.dcp import open_dcp
from outlive.checkpoint.formats.detect import open_checkpoint
from outlive.checkpoint.formats.huggingface import read_json
from outlive.checkpoint.formats.pickled import open_state_dict
from outlive.checkpoint.formats.safetensors import open_tensors
from outlive.checkpoint.model import Model
from outlive.checkpoint.nested import flattened
from outlive.checkpoint.optimizer import OPTIMIZER
from outlive.checkpoint.resumed import key_of
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.write import Dtype
from outlive.run.errors import InputError


@dataclass
class Made:
    """format: of the source. left: names of its tensors that are not in the adapter, of `left_bytes` in all. kept: of
    an adapter made from a difference, each module's share of the difference's squared norm."""

    format: str
    tensors: dict[str, Any]
    left: list[str] = field(default_factory=list)
    left_bytes: int = 0
    kept: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def convert_to_peft(
    source: Path, target: Path, *, base: Path | None = None, rank: int | None = None, alpha: float | None = None,
    save_modules: bool = False, like: Path | None = None, dtype: Dtype | None = None,
) -> Made:  # fmt: skip
    """Write `target`, a folder of PEFT; it appears whole or not at all.

    source: a checkpoint of ours, a folder or file with LoRA tensors, or a model that was trained from `base` and is to
    become an adapter of rank `rank`. like: the folder of an adapter_config.json that is not beside the source. Raises
    InputError where the settings are said nowhere or contradict the tensors, where tensors are of no adapter, and where
    `target` exists; WorkError where the disk refuses.
    """
    if os.path.lexists(target):
        raise InputError("this exists already", where=str(target), fix="name a folder that does not exist yet")
    model = _open(source)
    asked = Asked(rank, alpha, save_modules)
    read = [one for one in (source, base, like) if one is not None]
    key = key_of(read, {"to": "peft", "dtype": dtype, **vars(asked)}, target)
    about = {"made_by": "convert", "from": str(source), "format": model.format}
    if is_adapter(model.tensors):
        return _rewritten(source, model, target, base, asked, like, dtype, about, key)
    if base is None or rank is None:
        raise InputError(
            "there are no tensors of LoRA here; a model becomes an adapter by its difference to the base",
            where=str(source),
            fix="add --base BASE and --rank R",
        )
    return _extracted(source, model, target, base, asked, like, dtype, about, key)


def _rewritten(
    source: Path, model: Model, target: Path, base: Path | None, asked: Asked, like: Path | None, dtype: Dtype | None,
    about: Mapping[str, Any], key: str,
) -> Made:  # fmt: skip
    folder = _config_folder(source, like)
    given = None if folder is None else read_json(folder / CONFIG)
    found = kept_of(model, given, asked.save_modules, str(source), of_peft=_is_own_file(source))
    where = str(source if folder is None else folder / CONFIG)
    config = config_from(found.tensors, asked, where) if given is None else settled(given, asked, where)
    adapter = adapter_of(settings_of(config, where), found.tensors, str(source))
    check_finite(adapter)
    for low in adapter.low_rank.values():
        if ".experts" not in low.path:  # theirs is that of all of them
            adapter.settings.scale(low.path, low.rank)
    bound = None
    if base is not None:
        _check_fits(base, adapter)
        config["base_model_name_or_path"] = str(base)
        if folder is not None:
            check_bound(folder, base)
        bound = _bound(base)
    sources = [] if folder is None else [folder]
    write_adapter(target, found.tensors, config, sources=sources, about=about, key=key, base=bound, dtype=dtype)
    made = Made(model.format, found.tensors)
    _leave(made, model, found.left)
    if folder is not None and folder not in (source, like):
        made.notes.append(f"the settings are those of {folder / CONFIG}")
    return made


def _leave(made: Made, model: Model, names: list[str]) -> None:
    """Say what of a checkpoint is not in the adapter."""
    made.left = names
    made.left_bytes = sum(model.tensors[name].num_bytes for name in names)
    moments = sum(name.startswith(OPTIMIZER) for name in names)
    if names:
        made.notes.append(
            f"{len(names):,} tensors ({made.left_bytes:,} bytes) are left out: peft has no place for {moments:,} "
            f"of an optimizer and {len(names) - moments:,} frozen weights"
        )


def _extracted(
    source: Path, model: Model, target: Path, base: Path, asked: Asked, like: Path | None, dtype: Dtype | None,
    about: Mapping[str, Any], key: str,
) -> Made:  # fmt: skip
    assert asked.rank is not None
    if asked.rank < 1:
        raise InputError(f"the rank is {asked.rank}", where="--rank", fix="give a whole number from 1 on")
    alpha = float(asked.rank) if asked.alpha is None else asked.alpha  # then B·A is the difference itself
    if not 0 < alpha < 1e30:
        raise InputError(f"alpha is {alpha:g}", where="--alpha", fix="give a number above 0, or leave it out")
    (first, config), (trained, own) = _whole(_open(base), base, like), _whole(model, source, like or base)
    if config.get("model_type") != own.get("model_type", config.get("model_type")):
        what = f"the model is a {own.get('model_type')} and the base a {config.get('model_type')}"
        raise InputError(what, where=str(source), fix="name the base that this model was trained from: --base BASE")
    found = extracted(
        first, trained, {**own, **config}, asked.rank, scale=alpha / asked.rank, save_modules=asked.save_modules,
        where=str(source),
    )  # fmt: skip
    if not found.kept:
        what = "no linear layer of the model differs from the base"
        raise InputError(what, where=str(source), fix="is the model the trained one? compare: outlive verify --against")
    made_config = config_of(
        rank=asked.rank, alpha=alpha, targets=sorted(found.kept), saved=found.saved, base=str(base),
        tied=found.tied and bool(found.saved), turned=found.turned,
    )  # fmt: skip
    made = Made(model.format, found.tensors, kept=found.kept)
    _leave(made, model, sorted(name for name in model.tensors if name.startswith(OPTIMIZER)))
    worst = min(found.kept, key=lambda path: found.kept[path])
    made.notes.append(
        f"rank {asked.rank} keeps {100 * min(found.kept.values()):.2f} % of the difference's squared norm in {worst}, "
        f"the worst of {len(found.kept):,} layers, and {100 * _mean(found.kept):.2f} % on average"
    )
    if found.saved:
        made.notes.append(f"{len(found.saved):,} modules are saved as a whole, such as {found.saved[0]}")
    sources = [folder for folder in (source, like, base) if folder is not None and folder.is_dir()]
    bound = _bound(base)
    write_adapter(target, found.tensors, made_config, sources=sources, about=about, key=key, base=bound, dtype=dtype)
    return made


def _mean(shares: Mapping[str, float]) -> float:
    return sum(shares.values()) / len(shares)


def _open(path: Path) -> Model:
    """Tensors by the names that they have in their own state dict, without those of what it lies in."""
    if (path / "state").is_dir() and not (path / "model").is_dir():
        return open_dcp(path / "state")
    for part in ("model", "adapter"):
        if not (path / CONFIG).is_file() and (path / part).is_dir() and not (path / "config.json").is_file():
            return _open(path / part)
    if (path / WEIGHTS).is_file():
        return Model(path, "peft", open_tensors(path / WEIGHTS))
    if (path / PICKLED).is_file():
        return Model(path, "peft", open_state_dict(path / PICKLED).tensors)
    model = open_checkpoint(path)
    paths = model.metadata.get("paths") if model.nested is None else flattened(model.nested).paths
    return (
        model
        if not isinstance(paths, Mapping) or not paths
        else Model(path, model.format, _innermost(model, paths, path), model.config)
    )


def _innermost(model: Model, paths: Mapping[str, tuple[Any, ...]], path: Path) -> dict[str, Tensor]:
    """The tensors by the last of the keys that lead to each; an optimizer's by all of them."""
    found: dict[str, Tensor] = {}
    for name, tensor in model.tensors.items():
        keys = paths.get(name, (name,))
        outer = str(keys[0]).startswith(("optim", "optimizer"))
        key = name if outer or not isinstance(keys[-1], str) else keys[-1]
        if key in found:
            what = f"{key} is there twice, in two parts of the checkpoint"
            raise InputError(what, where=str(path), fix="save the state dict of one model")
        found[key] = tensor
    return found


def _is_own_file(source: Path) -> bool:
    names = (WEIGHTS, PICKLED)
    return source.name in names or any((source / name).is_file() for name in names)


def _config_folder(source: Path, like: Path | None) -> Path | None:
    """Where the adapter's config is: in `like`, the source, its adapter/, or beside it."""
    if like is not None:
        if not (like / CONFIG).is_file():
            raise InputError(f"there is no {CONFIG}", where=str(like), fix="name the folder that has it: --like DIR")
        return like
    near = [source, source / "adapter", source.parent, source.parent / "adapter"]
    return next((folder for folder in near if (folder / CONFIG).is_file()), None)


def _check_fits(base: Path, adapter: Adapter) -> None:
    """InputError for an adapter that fits nothing in the base, or not in shape."""
    tensors, config = _whole(_open(base), base, None)
    merged(tensors, adapter, config)


def _whole(model: Model, place: Path, like: Path | None) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
    from outlive.checkpoint.convert import weights_of

    if model.format == "huggingface":
        return dequantised(model.tensors, model.config)
    if is_adapter(model.tensors):
        raise InputError("this is an adapter, no model", where=str(place), fix="name a model's folder")
    found = weights_of(model, like if (like is None or (like / "config.json").is_file()) else None)
    return dequantised(found.tensors, found.config)


def _bound(base: Path) -> dict[str, str] | None:
    """What base.json says; None for what is no model folder: it has no hash as a base."""
    is_folder = (base / "config.json").is_file()
    return {"model": str(base), "content_hash": content_hash(base)} if is_folder else None
