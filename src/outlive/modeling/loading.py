"""A model from wherever it is: hub id, folder, GGUF file or a fresh config. One place names files and dtypes."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, PretrainedConfig
from transformers.utils import logging as transformers_logging

from outlive.modeling import attention
from outlive.modeling.gguf import cached_folder
from outlive.run.errors import InputError
from outlive.run.files import hash_file, hash_json
from outlive.run.places import model_folder

# What a folder holds beside weights; everything that decides what the model computes or how text becomes tokens.
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")
_WEIGHTS = (".safetensors", ".bin")
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
        files = sorted(path for path in self.folder.iterdir() if path.suffix in _WEIGHTS or path.name == "config.json")
        return hash_json({path.name: hash_file(path) for path in files})


def find_model(name: str, home: Path, trust_remote_code: bool = False) -> ModelPlace:
    """The place of a model named by a folder, a .gguf file (converted once, kept under `home`) or a hub id."""
    folder = model_folder(name, _HUB_FILES, lambda gguf: cached_folder(gguf, home / "models"))
    if not (folder / "config.json").exists():
        raise InputError("the folder holds no model: it has no config.json", where=name, fix="name a model folder")
    return ModelPlace(folder, trust_remote_code=trust_remote_code)


def fresh_model(config: str | dict[str, Any], tokenizer: str) -> ModelPlace:
    """The place of a model that is to be made new: a config (values, file or folder) and a tokenizer's folder."""
    if isinstance(config, str):
        path = Path(config) / "config.json" if Path(config).is_dir() else Path(config)
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"the config cannot be read: {error}", where=str(path)) from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise InputError("a fresh model's config names no model_type", fix="set model.init.config.model_type")
    return ModelPlace(Path(tokenizer), config=config)


def load_config(place: ModelPlace) -> PretrainedConfig:
    """The model's config, without its weights."""
    if place.config is not None:
        values = {key: value for key, value in place.config.items() if key != "model_type"}
        try:
            return AutoConfig.for_model(place.config["model_type"], **values)
        except Exception as error:  # each model type checks its own values, in its own way
            raise InputError(f"the config can't be used: {_first_line(error)}", where="model.init.config") from None
    try:
        return AutoConfig.from_pretrained(place.folder, trust_remote_code=place.trust_remote_code)
    except Exception as error:
        raise InputError(f"the model's config cannot be used: {_first_line(error)}", where=str(place.folder)) from None


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
    model = _load(place, config, dtype, attention.NAME if per_document else _own_attention(config), seed)
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


def _load(place: ModelPlace, config: PretrainedConfig, dtype: torch.dtype, implementation: str, seed: int) -> Any:
    try:
        with _quiet():
            if place.config is not None:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(seed)
                    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
                return model.to(dtype)
            model, report = AutoModelForCausalLM.from_pretrained(
                place.folder,
                config=config,
                dtype=dtype,
                attn_implementation=implementation,
                trust_remote_code=place.trust_remote_code,
                output_loading_info=True,
            )
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # models are built by their own code, which checks little and raises anything
        where = str(place.folder) if place.config is None else "model.init.config"
        raise InputError(f"the model cannot be loaded: {_first_line(error)}", where=where) from error
    if missing := sorted(report["missing_keys"]) + sorted(map(str, report["mismatched_keys"])):
        raise InputError(
            f"{len(missing)} tensors are missing or have another shape, and would be random: {', '.join(missing[:3])}",
            where=str(place.folder),
            fix="use a complete model folder",
        )
    return model


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
