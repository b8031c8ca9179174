"""Save a model or an adapter as a folder that other tools open: weights, config, tokenizer, template."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError

from outlive.checkpoint.manifest import write_manifest
from outlive.checkpoint.spellings import both_spellings
from outlive.run.errors import WorkError
from outlive.run.files import building_folder, write_atomic

Dtype = Literal["bf16", "fp32", "fp16"]
_NAMES = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}
# Files that turn text into tokens; copied byte for byte, since a save through transformers changes them.
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "tokenizer.model", "chat_template.jinja", "generation_config.json",
)  # fmt: skip


def save(
    model: Any,
    folder: Path | str,
    *,
    tokenizer: Path | str,
    chat_template: str | None = None,
    dtype: Dtype = "bf16",
    base: Mapping[str, str] | None = None,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Save `model` as the checkpoint `folder`: model/, or adapter/ where it is a PEFT model, and manifest.json last.

    A model's weights are written in `dtype`, an adapter's in their own. `tokenizer` is the folder whose tokenizer goes
    along; `chat_template` replaces its template; `base` names the base model of an adapter and its content hash, to
    which the adapter is bound. The folder appears whole or not at all. Returns the folder to serve. Raises InputError
    where it exists, WorkError where the disk says no and where a weight is not finite, or not in `dtype`.
    """
    folder = Path(folder)
    kind = "adapter" if hasattr(model, "peft_config") else "model"
    with building_folder(folder) as building:
        part = building / kind
        part.mkdir()
        try:
            if kind == "adapter":
                _refuse_nonfinite({name: p for name, p in model.named_parameters() if p.requires_grad})
                _save_adapter(model, part, base or {})
            else:
                _save_model(model, part, dtype)
        except SafetensorError as error:  # its own kind, also for what the disk says
            fix = "free some space, or use another disk"
            raise WorkError(f"the weights could not be written: {error}", where=str(folder), fix=fix) from error
        _copy_tokenizer(Path(tokenizer), part, chat_template)
        for path in part.iterdir():  # safetensors are written as 0600: a server under another user could not read them
            path.chmod(0o644)
        write_manifest(building, {"kind": kind, **(about or {})})
    return folder / kind


def _save_model(model: Any, folder: Path, dtype: Dtype) -> None:
    weights = {name: _cast(t, dtype) for name, t in model.state_dict().items()}
    _refuse_nonfinite({name: weights[name] for name, _ in model.named_parameters()})
    model.save_pretrained(folder, state_dict=weights)
    _rewrite(folder / "config.json", lambda config: both_spellings(config, _NAMES[dtype]))


def _save_adapter(model: Any, folder: Path, base: Mapping[str, str]) -> None:
    # An adapter stays in the precision that it was trained in: bf16 would round the training away (it is small anyway).
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)  # a form with empty fields
    _rewrite(folder / "adapter_config.json", lambda config: {**config, "base_model_name_or_path": base.get("model")})
    write_atomic(folder / "base.json", json.dumps(dict(base), indent=1))


def _cast(tensor: Any, dtype: Dtype) -> Any:
    if not tensor.is_floating_point():
        return tensor
    return {"bf16": tensor.bfloat16, "fp32": tensor.float, "fp16": tensor.half}[dtype]()


def _refuse_nonfinite(weights: Mapping[str, Any]) -> None:
    for name, tensor in weights.items():
        if not bool(tensor.isfinite().all()):
            raise WorkError(
                f"{name} holds NaN or infinity as {str(tensor.dtype).removeprefix('torch.')}: nothing is saved",
                fix="set export.dtype to bf16 or fp32, which hold larger numbers than fp16; else lower optimizer.lr",
            )


def _copy_tokenizer(source: Path, folder: Path, chat_template: str | None) -> None:
    if not (source / "tokenizer.json").is_file():
        raise WorkError("the tokenizer is not there any more, and a model without one is of no use", where=str(source))
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if chat_template is not None:
        write_atomic(folder / "chat_template.jinja", chat_template)


def _rewrite(path: Path, change: Any) -> None:
    write_atomic(path, json.dumps(change(json.loads(path.read_text(encoding="utf-8"))), indent=2, ensure_ascii=False))
