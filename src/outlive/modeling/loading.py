"""A model from wherever it is: hub id, folder, GGUF file or a fresh config. One place names files and dtypes."""

from __future__ import annotations

import contextlib
import json
import pickle
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, PretrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging as transformers_logging

from outlive.checkpoint.adapters.binding import content_hash
from outlive.modeling import attention
from outlive.modeling.gguf import cached_folder
from outlive.modeling.streaming import Loaded, load_folder
from outlive.modeling.weights import check_weights
from outlive.run.errors import InputError, OutliveError, nearest
from outlive.run.excerpt import Excerpt
from outlive.run.files import hash_json
from outlive.run.places import model_folder

# What a folder holds beside weights; everything that decides what the model computes or how text becomes tokens.
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")
_KNOWN = frozenset(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)  # model types that transformers can build
# Layers whose documents are kept apart by attention alone. Chunked, linear, convolutional and recurrent layers are not.
_STATEFUL = (
    "conv_kernel", "conv_kernel_size", "mamba_d_conv", "ssm_state_size", "state_size", "attention_chunk_size",
)  # fmt: skip
_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}


@dataclass(frozen=True)
class ModelPlace:
    """Where a model comes from: `folder` holds tokenizer and config, and weights unless `config` makes a fresh one."""

    folder: Path
    config: dict[str, Any] | None = None
    trust_remote_code: bool = False

    def content_hash(self) -> str:
        """xxh3-128 over the hashes of the weight files and the config: what an adapter is bound to."""
        if self.config is not None:
            return hash_json({"config": self.config})
        return content_hash(self.folder)


def find_model(name: str, home: Path, trust_remote_code: bool = False) -> ModelPlace:
    """The place of a model named by a folder, a .gguf file (converted once, kept under `home`) or a hub id."""
    files = (*_HUB_FILES, "*.py") if trust_remote_code else _HUB_FILES
    folder = model_folder(name, files, lambda gguf: cached_folder(gguf, home / "models"))
    if not (folder / "config.json").is_file():
        raise _no_model(folder, name)
    check_weights(folder, name)
    return ModelPlace(folder, trust_remote_code=trust_remote_code)


def _no_model(folder: Path, name: str) -> InputError:
    if (folder / "adapter_config.json").is_file():
        fix = "name the base model; to go on training an adapter is not part of this version"
        return InputError("the folder holds an adapter, not a model", where=name, fix=fix)
    if (folder / "checkpoints").is_dir() or (folder / "model").is_dir():
        inner = "model" if (folder / "model").is_dir() else "checkpoints/step-…/model"
        fix = f"name the model in it: {folder / inner}"
        return InputError("the folder holds a run or a checkpoint, not a model", where=name, fix=fix)
    return InputError("the folder holds no model: it has no config.json", where=name, fix="name a model folder")


def fresh_model(config: str | dict[str, Any], tokenizer: str) -> ModelPlace:
    """The place of a model that is to be made new: a config (values, file or folder) and a tokenizer's folder."""
    if isinstance(config, str):
        path = Path(config) / "config.json" if Path(config).is_dir() else Path(config)
        config = _read_config(path)
    if not isinstance(config, dict) or "model_type" not in config:
        raise InputError(
            "a fresh model's config names no model_type",
            where="model.init.config",
            fix="set model.init.config.model_type, such as llama or qwen3",
        )
    return ModelPlace(Path(tokenizer), config=config)


def load_config(place: ModelPlace) -> PretrainedConfig:
    """The model's config, without its weights."""
    _refuse_unknown_type(place)
    if place.config is not None:
        values = {key: value for key, value in place.config.items() if key != "model_type"}
        try:
            return AutoConfig.for_model(place.config["model_type"], **values)
        except Exception as error:  # each model type checks its own values, in its own way
            what, fix = f"the config can't be used: {_first_line(error)}", "mend the value in model.init.config"
            raise InputError(what, where="model.init.config", fix=fix) from None
    try:
        return AutoConfig.from_pretrained(place.folder, trust_remote_code=place.trust_remote_code)
    except Exception as error:
        what, where = f"the model's config cannot be used: {_first_line(error)}", str(place.folder / "config.json")
        raise InputError(what, where=where, fix="get the file again from where the model is from") from None


def _refuse_unknown_type(place: ModelPlace) -> None:
    """Raise InputError for a model type that transformers has no causal language model for, unless code comes along."""
    where = "model.init.config" if place.config is not None else str(place.folder / "config.json")
    values = place.config if place.config is not None else _read_config(place.folder / "config.json")
    kind = values.get("model_type") if isinstance(values, dict) else None
    if isinstance(values, dict) and "AutoModelForCausalLM" in (values.get("auto_map") or {}) and kind not in _KNOWN:
        if place.trust_remote_code:
            return
        raise InputError(
            f"the model is computed by Python code that comes with it: model_type {kind} is not in transformers",
            where=where,
            fix="read that code, and set trust_remote_code: true if you trust whoever wrote it",
        )
    if not isinstance(kind, str):
        raise InputError("the config names no model_type", where=where, fix="set model_type, such as llama or qwen3")
    if kind in _KNOWN:
        return
    close = None if kind in CONFIG_MAPPING_NAMES else nearest(kind, _KNOWN)
    if kind in CONFIG_MAPPING_NAMES:
        what, fix = f"{kind} is no causal language model", "name a model that generates text"
    else:
        what = f"transformers {transformers.__version__} knows no model_type `{kind}`"
        fix = (f"did you mean {close}? Or " if close else "") + "update it: pip install --upgrade transformers"
    raise InputError(what, where=where, fix=fix, nearest=close)


def _read_config(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the config cannot be read: {error}", where=str(path), fix="name a config.json") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = error.doc.split("\n")[error.lineno - 1]
        raise InputError(
            f"the config is no JSON: {error.msg}",
            where=f"{path}:{error.lineno}",
            excerpts=[Excerpt(str(path), error.lineno, line, error.colno)],
            fix="mend the file, or get it again from where the model is from",
        ) from None
    except RecursionError:
        raise InputError("the config is nested too deep", where=str(path), fix="name a config.json") from None


def isolates(config: PretrainedConfig) -> str | None:
    """None where attention alone decides who sees whom, so that documents can share a sequence; else the reason not."""
    text = config.get_text_config()
    types = set(getattr(text, "layer_types", None) or ())
    if others := types - _ATTENTION_LAYERS:
        names = ", ".join(sorted(others))
        return f"{config.model_type} has layers that carry a state across documents or cut them: {names}"
    for key in _STATEFUL:
        if getattr(text, key, None):
            return f"{config.model_type} has recurrent, convolutional or chunked layers (config.{key})"
    architecture = _architecture(config)
    if architecture is not None and not architecture._supports_attention_backend:
        return f"{config.model_type} computes attention in its own way, which knows of one document only"
    if getattr(text, "use_bidirectional_attention", False) or not getattr(text, "is_causal", True):
        return f"the attention of {config.model_type} is not causal"
    return None


def load_model(
    place: ModelPlace,
    dtype: torch.dtype,
    *,
    per_document: bool,
    seed: int = 0,
    device: torch.device | str = "cpu",
    notes: list[str] | None = None,
) -> Any:
    """The model in `dtype`, with attention per document or its own. Raises InputError where weights are missing.

    A fresh model is drawn from `seed` in fp32 and then cast. Attention dropout, which no fused kernel counts, is off;
    where the config asks for some, `notes` says so.
    """
    attention.register()
    config = load_config(place)
    asked = _switch_off_attention_dropout(config, notes if notes is not None else [])
    implementation = attention.NAME if per_document else _own_attention(config)
    model = _load(place, config, dtype, implementation, seed, notes if notes is not None else [])
    for name, share in asked.items():
        setattr(model.config.get_text_config(), name, share)  # what is saved says what the model's makers said
    return model.to(device)


def _architecture(config: PretrainedConfig) -> Any:
    """transformers' class for the config, or None where it has none (code that comes with the model)."""
    found = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    return found[0] if isinstance(found, tuple) else found


def _own_attention(config: PretrainedConfig) -> str:
    architecture = _architecture(config)
    return "sdpa" if architecture is None or architecture._supports_sdpa else "eager"


def _switch_off_attention_dropout(config: PretrainedConfig, notes: list[str]) -> dict[str, float]:
    text = config.get_text_config()
    asked = {name: share for name in ("attention_dropout", "attn_pdrop") if (share := getattr(text, name, 0.0))}
    for name, share in asked.items():
        notes.append(f"the model's config has {name} {share}: attention dropout is not applied here")
        setattr(text, name, 0.0)
    return asked


def _load(
    place: ModelPlace, config: PretrainedConfig, dtype: torch.dtype, implementation: str, seed: int, notes: list[str]
) -> Any:
    try:
        with _quiet():
            if place.config is not None:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(seed)
                    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
                return model.to(dtype)
            loaded = load_folder(place.folder, config, dtype, implementation, place.trust_remote_code, notes)
    except (OutliveError, torch.OutOfMemoryError, MemoryError):
        raise
    except pickle.UnpicklingError as error:  # torch's own advice is to load it without that protection
        pickled = next(iter(sorted(place.folder.glob("*.bin"))), place.folder)
        raise InputError(
            "the weights are a pickle that holds more than tensors, perhaps code: none of it was run",
            where=str(pickled),
            fix="get the model as safetensors from whom you trust",
        ) from error
    except Exception as error:  # models are built by their own code, which checks little and raises anything
        where = str(place.folder) if place.config is None else "model.init.config"
        fix = "check the config's values" if place.config else "get the folder again from where the model is from"
        raise InputError(f"the model cannot be loaded: {_first_line(error)}", where=where, fix=fix) from error
    _refuse_incomplete(loaded, place.folder)
    if loaded.unused:
        names = ", ".join(loaded.unused[:3]) + (", …" if len(loaded.unused) > 3 else "")
        count = f"{len(loaded.unused)} tensors in the model's files have no place in the model and are left out"
        notes.append(f"{count}: {names}")
    return loaded.model


def _refuse_incomplete(loaded: Loaded, folder: Path) -> None:
    """Raise InputError where tensors of the model would be random: not in the files, or there in another shape."""
    if others := loaded.misfits:
        name, found, wanted = others[0]
        more = f", and so have {len(others) - 1} more" if len(others) > 1 else ""
        raise InputError(
            f"{name} has the shape {list(found)} in the files and {list(wanted)} in the model{more}",
            where=str(folder),
            fix="config.json and the weights are of two models: get the folder again from where the model is from",
        )
    if missing := loaded.missing:
        raise InputError(
            f"{len(missing)} tensors are missing, and would be random: {', '.join(missing[:3])}",
            where=str(folder),
            fix="use a complete model folder",
        )


@contextlib.contextmanager
def quiet_peft() -> Iterator[None]:
    """Without the long warning that PEFT 0.21 draws from transformers by asking for an attribute's old name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and its report of tied weights: what matters is raised as an error here."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)
        transformers_logging.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    text = " ".join(line.strip() for line in lines[:2]) or type(error).__name__
    return f"{type(error).__name__}: {text}" if isinstance(error, LookupError) else text[:400]
