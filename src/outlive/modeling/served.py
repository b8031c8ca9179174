"""A trained model opened to be talked to: a model folder, a checkpoint, an adapter with its base, or a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from outlive.checkpoint.manifest import read_manifest
from outlive.modeling.loading import find_model, load_model, quiet_peft
from outlive.run.errors import InputError
from outlive.text.template import ChatTemplate
from outlive.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Served:
    """A model with the tokenizer and template that it was trained with."""

    model: Any
    tokenizer: Tokenizer
    template: ChatTemplate | None


def open_served(name: str, home: Path, *, dtype: torch.dtype | None = None, date: str | None = None) -> Served:
    """Open what `name` names. dtype None: bf16, as servers do; an adapter stays in its own.

    Raises InputError where an adapter's base is not the one that it was trained on.
    """
    path = newest_checkpoint(Path(name))
    adapter = path if path is not None and (path / "adapter_config.json").is_file() else None
    base, base_hash = _base_of(adapter) if adapter is not None else (str(path) if path else name, None)
    place = find_model(base, home)
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
        raise InputError("the adapter's folder holds no weights", where=str(adapter))
    try:
        with quiet_peft():
            return PeftModel.from_pretrained(model, str(adapter))
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # PEFT checks little, and raises whatever comes of it
        what = f"the adapter can't be loaded: {type(error).__name__}: {error}"
        raise InputError(what, where=str(adapter), fix="get the folder again from where it was trained") from error


def newest_checkpoint(path: Path) -> Path | None:
    """The folder with the weights in a run, a checkpoint, or a model or adapter folder; None where `path` is none."""
    if not path.is_dir():
        return None
    checkpoints = sorted((path / "checkpoints").glob("step-*"))
    if ((path / "checkpoints").is_dir() or (path / "run.yaml").is_file()) and not checkpoints:
        raise InputError("the run has no checkpoint", where=str(path), fix="train it to its end")
    folder = checkpoints[-1] if checkpoints else path
    for part in ("model", "adapter"):
        if (folder / part).is_dir():
            read_manifest(folder)  # a checkpoint without one is not finished
            return folder / part
    return folder


def _base_of(adapter: Path) -> tuple[str, str | None]:
    try:
        about = json.loads((adapter / "base.json").read_text(encoding="utf-8"))
        return str(about["model"]), about.get("content_hash")
    except FileNotFoundError:
        pass  # an adapter that PEFT or another tool saved: it names its base, and no hash of it
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"the adapter's base.json is damaged: {error}", where=str(adapter / "base.json")) from None
    config_file = adapter / "adapter_config.json"
    try:
        return str(json.loads(config_file.read_text(encoding="utf-8"))["base_model_name_or_path"]), None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"the adapter's config names no base model: {error}", where=str(config_file)) from None
