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
        from peft import PeftModel

        with quiet_peft():
            model = PeftModel.from_pretrained(model, str(adapter))
    tokenizer = Tokenizer.load(adapter or place.folder)
    template = ChatTemplate.of(tokenizer, date=date) if tokenizer.chat_template else None
    return Served(model.eval(), tokenizer, template)


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
        config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
        return str(config["base_model_name_or_path"]), None
