"""Any checkpoint as a Hugging Face folder: itself, or converted or merged into a temporary one."""

from __future__ import annotations

from pathlib import Path

from outlive.run.errors import InputError


def as_folder(path: Path, base: Path | None, target: Path) -> Path:
    """The folder of a checkpoint at `path`, written to `target` where it is of another format. `base`: what an adapter
    is merged into, and whose config a checkpoint has that holds none."""
    from outlive.checkpoint.convert import convert
    from outlive.checkpoint.formats.detect import open_checkpoint

    if (path / "adapter_config.json").is_file():
        return _merged(path, base, target)
    model = open_checkpoint(path)
    if model.format == "huggingface":
        return path
    convert(model, target, "huggingface", like=base)
    return target


def _merged(adapter: Path, base: Path | None, target: Path) -> Path:
    from outlive.checkpoint.adapters import check_bound, merged, open_adapter
    from outlive.checkpoint.formats.huggingface import open_model
    from outlive.checkpoint.model_folder import write_model_folder
    from outlive.checkpoint.tensors.views import widened

    if base is None:
        fix = "name the folder of the model that it was trained on: --base DIR"
        raise InputError("an adapter answers nothing without its base", where=str(adapter), fix=fix)
    model, opened = open_model(base), open_adapter(adapter)
    check_bound(adapter, base)
    result = merged(widened(model.tensors), opened, model.config)
    about = {"made_by": "verify", "base": str(base), "adapter": str(adapter)}
    write_model_folder(target, result.tensors, result.config, sources=[adapter, base], about=about, dtype="fp32")
    return target
