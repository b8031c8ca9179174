"""A trained model opened to be talked to: a model folder, a checkpoint, an adapter with its base, or a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from outlive.checkpoint.folder import best, broken_checkpoints, saved_checkpoints
from outlive.checkpoint.manifest import NAME, read_manifest
from outlive.modeling.loading import find_model, load_model, quiet_peft
from outlive.run.errors import InputError
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer

Which = Literal["latest", "best"]


@dataclass(frozen=True)
class Served:
    """A model with the tokenizer and template that it was trained with."""

    model: Any
    tokenizer: Tokenizer
    template: ChatTemplate | None


def open_served(
    name: str,
    home: Path,
    *,
    dtype: torch.dtype | None = None,
    date: str | None = None,
    which: Which = "latest",
    say: Callable[[str], None] = lambda note: None,
    trust_remote_code: bool = False,
) -> Served:
    """Open what `name` names. dtype None: bf16, as servers do; an adapter stays in its own. `which`: of a run.
    trust_remote_code: whether code that comes with the model may run.

    Raises InputError where an adapter's base is not the one that it was trained on.
    """
    path = newest_checkpoint(Path(name), which, say)
    if path is not None and path != Path(name):
        say(f"answers come from {path}")
    adapter = path if path is not None and (path / "adapter_config.json").is_file() else None
    base, base_hash = _base_of(adapter) if adapter is not None else (str(path) if path else name, None)
    place = find_model(base, home, trust_remote_code)
    if base_hash is not None and place.content_hash() != base_hash:
        raise InputError(
            "the base model is not the one that this adapter was trained on: its content hash is another",
            where=base,
            fix="put the original base back, or train anew",
        )
    model = load_model(place, dtype or torch.bfloat16, per_document=False)
    if adapter is not None:
        model = _with_adapter(model, adapter)
    tokenizer = Tokenizer.load(adapter or place.folder)
    template = ChatTemplate.of(tokenizer, date=date) if tokenizer.chat_template else None
    return Served(model.eval(), tokenizer, template)


def _with_adapter(model: Any, adapter: Path) -> Any:
    from peft import PeftModel

    if not any((adapter / name).is_file() for name in ("adapter_model.safetensors", "adapter_model.bin")):
        fix = "get the folder again from where it was trained"
        raise InputError("the adapter's folder holds no weights", where=str(adapter), fix=fix)
    try:
        with quiet_peft():
            return PeftModel.from_pretrained(model, str(adapter))
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # PEFT checks little, and raises whatever comes of it
        what = f"the adapter can't be loaded: {type(error).__name__}: {error}"
        raise InputError(what, where=str(adapter), fix="get the folder again from where it was trained") from error


def newest_checkpoint(
    path: Path, which: Which = "latest", say: Callable[[str], None] = lambda note: None
) -> Path | None:
    """The folder with the weights in a run, a checkpoint, or a model or adapter folder; None where `path` is none.

    Of a run it is the newest whole checkpoint that holds a model or an adapter, or of these the one whose validation
    loss is lowest. Raises InputError where there is none.
    """
    is_run = (path / "checkpoints").is_dir() or (path / "run.yaml").is_file()
    if which == "best" and not is_run:
        raise InputError("only a run has a best checkpoint", where=str(path), fix="name a run's folder")
    if is_run:
        return _of_run(path, which, say)
    if not path.is_dir():
        return None
    for part in ("model", "adapter"):
        if (path / part).is_dir():
            read_manifest(path)  # a checkpoint without one is not finished
            return path / part
    if (path / NAME).is_file() and (path / "state").is_dir():
        fix = "name a checkpoint with a model/ or adapter/, or its run (checkpoint.model says which hold one)"
        raise InputError("the checkpoint holds no model, only what a run goes on from", where=str(path), fix=fix)
    return path


def _of_run(run: Path, which: Which, say: Callable[[str], None]) -> Path:
    saved = saved_checkpoints(run / "checkpoints")
    candidates = [one for one in saved if one.served() is not None]
    if not candidates:
        what, fix = "the run has no checkpoint", "train it to its end"
        if saved:
            what, fix = "the run has no checkpoint with a model in it, only states to go on from", "resume the run"
        for broken, reason in broken_checkpoints(run / "checkpoints"):
            what += f"; {broken.name} is not whole: {reason}"
        raise InputError(what, where=str(run), fix=fix)
    for broken, reason in broken_checkpoints(run / "checkpoints"):
        say(f"{broken} is no whole checkpoint and is left out: {reason}")
    chosen = candidates[-1] if which == "latest" else best(candidates)
    if chosen is None:
        what = "no checkpoint of the run has a validation loss"
        raise InputError(what, where=str(run), fix="take the latest, or set data.validation and train anew")
    return chosen.served() or chosen.path


def _base_of(adapter: Path) -> tuple[str, str | None]:
    try:
        about = json.loads((adapter / "base.json").read_text(encoding="utf-8"))
        return str(about["model"]), about.get("content_hash")
    except FileNotFoundError:
        pass  # an adapter that PEFT or another tool saved: it names its base, and no hash of it
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        fix = "get the folder again from where it was trained"
        where = str(adapter / "base.json")
        raise InputError(f"the adapter's base.json is damaged: {error}", where=where, fix=fix) from None
    config_file = adapter / "adapter_config.json"
    try:
        return str(json.loads(config_file.read_text(encoding="utf-8"))["base_model_name_or_path"]), None
    except (ValueError, KeyError, TypeError) as error:
        fix = "write the base model's name into base_model_name_or_path"
        what = f"the adapter's config names no base model: {error}"
        raise InputError(what, where=str(config_file), fix=fix) from None
