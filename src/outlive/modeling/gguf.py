"""A GGUF file becomes a Hugging Face folder that can be trained: weights, config, tokenizer, template.

transformers reads the tensors (seen on 5.24). What its reader leaves wrong is put right here:

* the tokenizer's `pre` rule, which splits text before the merges, is named in the file but ignored by the reader: white
  space before digits would become other tokens than those that the model was trained on. A rule that isn't in
  `PRE_TOKENIZERS` is refused, because a wrong one shows in no loss curve;
* keys of the GGUF header in config.json, and numbers that went through float32 (1e-05 arrives as 9.99999974e-06);
* spellings: transformers 4 doesn't know `rope_parameters` and would silently turn positions with its default base;
* tokenizer_config.json: the state of the loading process, a class that transformers 4 can't load, no maximum length.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from outlive.run.errors import InputError, WorkError
from outlive.run.files import building_folder, hash_file, write_atomic

if TYPE_CHECKING:
    from gguf import GGUFReader

# `tokenizer.ggml.pre` → the pre-tokenizer of tokenizer.json that does the same.
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]},
}

# GGUF files of some architectures hold permuted rows; those named here were read and compared.
ARCHITECTURES = ("llama",)

# Part of a cached folder's name: raise it when the same file gives another folder.
_CONVERSION = 1


def gguf_to_folder(gguf: Path, folder: Path) -> None:
    """Write `gguf` as a Hugging Face folder: bf16 safetensors, configs, tokenizer, chat template.

    The folder appears whole or not at all. Raises InputError when the file is missing or no GGUF, when the folder
    exists, or when the architecture or the tokenizer's rule isn't known here; WorkError when the file's tensors aren't
    those of the model.
    """
    _convert(gguf, folder, if_exists="refuse")


def cached_folder(gguf: Path, models: Path) -> Path:
    """The folder of `gguf` under `models`, converted at the first call. Its name holds the file's content hash."""
    folder = models / f"{gguf.stem}-{hash_file(gguf)[:16]}-v{_CONVERSION}"
    if not folder.is_dir():
        _convert(gguf, folder, if_exists="keep")  # another process may be first, with the same content
    return folder


def _convert(gguf: Path, folder: Path, if_exists: Literal["refuse", "keep"]) -> None:
    reader = _open(gguf)
    pre = _known_pre_rule(reader, gguf)
    with building_folder(folder, if_exists) as building:
        _write_model(gguf, building)
        _write_tokenizer(gguf, building, pre, max_length=_context_length(reader))


def _open(gguf: Path) -> GGUFReader:
    if not gguf.is_file():
        raise InputError("there is no such file", where=str(gguf), fix="name a .gguf file")
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise InputError("reading GGUF needs the package gguf", fix="pip install 'outlive[train]'") from error
    try:
        return GGUFReader(gguf)
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise InputError(f"not a whole GGUF file: {error}", where=str(gguf), fix="download it again") from error


def _text(reader: GGUFReader, key: str) -> str | None:
    field = reader.get_field(key)
    return None if field is None else str(field.contents())


def _context_length(reader: GGUFReader) -> int | None:
    field = reader.get_field(f"{_text(reader, 'general.architecture')}.context_length")
    return None if field is None else int(field.contents())


def _known_pre_rule(reader: GGUFReader, gguf: Path) -> dict[str, Any]:
    architecture = _text(reader, "general.architecture")
    if architecture not in ARCHITECTURES:
        raise InputError(
            f"GGUF files of the architecture {architecture!r} can't be read yet (known: {', '.join(ARCHITECTURES)})",
            where=str(gguf),
            fix="use the model's Hugging Face folder",
        )
    kind, pre = _text(reader, "tokenizer.ggml.model"), _text(reader, "tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        known = ", ".join(repr(name) for name in PRE_TOKENIZERS)
        raise InputError(
            f"the tokenizer of this GGUF file (model {kind!r}, pre {pre!r}) follows a rule that isn't known here, "
            f"and a guess could change tokens unseen (known: model 'gpt2' with pre {known})",
            where=str(gguf),
            fix="use the model's Hugging Face folder, whose tokenizer.json says the rule",
        )
    return PRE_TOKENIZERS[pre]


def _write_model(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    with contextlib.redirect_stderr(io.StringIO()):  # nothing else turns the reader's progress bars off
        model, loading = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent.resolve()),
            gguf_file=gguf.name,
            # Without this the weights stay packed, and can be neither trained nor saved.
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.bfloat16,
            output_loading_info=True,
        )
        kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
        wrong = sorted(str(key) for kind in kinds for key in loading[kind])
        if wrong:
            fix = "use the model's safetensors folder instead of the GGUF file"
            raise WorkError(f"{len(wrong)} tensors of file and model don't match", where=", ".join(wrong[:5]), fix=fix)
        model.save_pretrained(folder)
    _rewrite(folder / "config.json", _clean_config)
    _rewrite(folder / "generation_config.json", _clean_generation_config)
    for weights in folder.glob("*.safetensors"):  # written as 0600: other users of a shared cache couldn't read them
        os.chmod(weights, (folder / "config.json").stat().st_mode)


def _write_tokenizer(gguf: Path, folder: Path, pre: dict[str, Any], max_length: int | None) -> None:
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(str(gguf.parent.resolve()), gguf_file=gguf.name).save_pretrained(folder)
    # The reader's post-processor does nothing; without it the file says so.
    repairs = {"pre_tokenizer": pre, "post_processor": None}
    _rewrite(folder / "tokenizer.json", lambda tokenizer: tokenizer | repairs)
    _rewrite(folder / "tokenizer_config.json", lambda config: _clean_tokenizer_config(config, max_length))


def _clean_config(config: dict[str, Any]) -> dict[str, Any]:
    config = {key: value for key, value in config.items() if key not in ("_model_name_or_path", "unk_token_id")}
    config["rms_norm_eps"] = _shortest_float32(config["rms_norm_eps"])
    rope = dict(config["rope_parameters"])
    if rope["rope_type"] != "default":
        raise WorkError(
            f"the rope type {rope['rope_type']!r} of this GGUF file can't be written for transformers 4",
            fix="use the model's safetensors folder instead of the GGUF file",
        )
    rope["rope_theta"] = _shortest_float32(rope["rope_theta"])
    config |= {"rope_parameters": rope, "rope_theta": rope["rope_theta"], "torch_dtype": config["dtype"]}
    return dict(sorted(config.items()))


def _clean_generation_config(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key.endswith("_token_id") or key == "transformers_version"}


def _clean_tokenizer_config(config: dict[str, Any], max_length: int | None) -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if key not in ("backend", "is_local", "local_files_only")}
    kept |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    if max_length is not None:
        kept["model_max_length"] = max_length
    return dict(sorted(kept.items()))


def _shortest_float32(value: float) -> float:
    """The shortest decimal with the same float32: 9.99999974e-06 is 1e-05."""
    import numpy as np

    return float(str(np.float32(value)))


def _rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    new = change(json.loads(path.read_text("utf-8")))
    write_atomic(path, json.dumps(new, indent=2, ensure_ascii=False) + "\n")
