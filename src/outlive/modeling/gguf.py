"""A GGUF file becomes a Hugging Face folder that can be trained: weights, config, tokenizer, template.

transformers reads the tensors (seen on 5.24). What it leaves wrong is put right here, each with its reason:

* the tokenizer's `pre` rule: the rule that splits text before the merges is named in the file but ignored by the reader, so
  white space before digits would become other tokens than those the model was trained on. A rule that is not in
  `PRE_TOKENIZERS` is refused, because a wrong one shows in no loss curve;
* keys of the GGUF header in config.json, and numbers that went through float32 (1e-05 arrives as 9.99999974e-06);
* spellings: transformers 4 does not know `rope_parameters` and would silently turn positions with its default base;
* the state of the loading process in tokenizer_config.json, a class name that transformers 4 can't load, and no maximum length.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive.run.errors import InputError, WorkError
from outlive.run.files import building_folder, hash_file, write_atomic

if TYPE_CHECKING:
    from gguf import GGUFReader

# `tokenizer.ggml.pre` → the pre-tokenizer of tokenizer.json that has the same effect.
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]},
    "gpt-2": _BYTE_LEVEL,
}

# The kinds of GGUF whose tensors this module was checked on: the reader un-permutes query and key rows for each of them.
ARCHITECTURES = ("llama",)

VERSION = 1  # part of the cached folder's name: raise it when the same file gives another folder


def gguf_to_folder(gguf: Path, folder: Path) -> None:
    """Write `gguf` as a Hugging Face folder: bf16 safetensors, config, generation config, tokenizer, chat template.

    The folder appears whole or not at all. Raises InputError when the file is missing or no GGUF, when the folder exists, or when
    the architecture or the tokenizer's rule is not known here; WorkError when a tensor of the model is not in the file.
    """
    reader = _open(gguf)
    pre = _known_pre_rule(reader, gguf)
    with building_folder(folder) as building:
        _write_model(gguf, building)
        _write_tokenizer(gguf, building, pre, max_length=_number(reader, "context_length"))


def cached_folder(gguf: Path, models: Path) -> Path:
    """The folder of `gguf` under `models`, converted at the first call. Its name holds the file's content hash."""
    if not gguf.is_file():
        raise InputError(f"There is no file {gguf}.", fix="give the path of a .gguf file")
    folder = models / f"{gguf.stem}-{hash_file(gguf)[:16]}-v{VERSION}"
    if not folder.is_dir():
        try:
            gguf_to_folder(gguf, folder)
        except InputError:
            if not folder.is_dir():  # else another process was first, with the same content
                raise
    return folder


def _open(gguf: Path) -> GGUFReader:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise InputError("Reading GGUF needs the package gguf.", fix="pip install 'outlive[train]'") from error
    if not gguf.is_file():
        raise InputError(f"There is no file {gguf}.", fix="give the path of a .gguf file")
    try:
        return GGUFReader(gguf)
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise InputError(f"{gguf.name} is no whole GGUF file: {error}", where=str(gguf), fix="download it again") from error


def _text(reader: GGUFReader, key: str) -> str | None:
    field = reader.get_field(key)
    return None if field is None else str(field.contents())


def _number(reader: GGUFReader, key: str) -> int | None:
    field = reader.get_field(f"{_text(reader, 'general.architecture')}.{key}")
    return None if field is None else int(field.contents())


def _known_pre_rule(reader: GGUFReader, gguf: Path) -> dict[str, Any]:
    architecture = _text(reader, "general.architecture")
    if architecture not in ARCHITECTURES:
        raise InputError(
            f"GGUF files of the architecture {architecture!r} can't be read yet (known: {', '.join(ARCHITECTURES)}).",
            where=str(gguf),
            fix="use the model's Hugging Face folder",
        )
    kind, pre = _text(reader, "tokenizer.ggml.model"), _text(reader, "tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        raise InputError(
            f"The tokenizer of this GGUF file (model {kind!r}, pre {pre!r}) follows a rule that isn't known here; "
            f"guessing it could change tokens unseen (known: model 'gpt2' with pre {', '.join(map(repr, PRE_TOKENIZERS))}).",
            where=str(gguf),
            fix="use the model's Hugging Face folder, whose tokenizer.json says the rule",
        )
    return PRE_TOKENIZERS[pre]


def _write_model(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    model, loading = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent.resolve()),
        gguf_file=gguf.name,
        # without this the weights stay packed, and can be neither trained nor saved
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
        output_loading_info=True,
    )
    wrong = sorted(str(key) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for key in loading[kind])
    if wrong:
        raise WorkError(f"{len(wrong)} tensors of the model and of the file don't match.", where=", ".join(wrong[:5]))
    model.save_pretrained(folder)
    _rewrite(folder / "config.json", _clean_config)
    _rewrite(folder / "generation_config.json", _clean_generation_config)
    for weights in folder.glob("*.safetensors"):  # written as 0600: other users of a shared cache couldn't read it
        os.chmod(weights, (folder / "config.json").stat().st_mode)


def _write_tokenizer(gguf: Path, folder: Path, pre: dict[str, Any], max_length: int | None) -> None:
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(str(gguf.parent.resolve()), gguf_file=gguf.name).save_pretrained(folder)

    def repair(tokenizer: dict[str, Any]) -> dict[str, Any]:
        return tokenizer | {"pre_tokenizer": pre, "post_processor": None}  # the reader's post-processor does nothing

    _rewrite(folder / "tokenizer.json", repair)
    _rewrite(folder / "tokenizer_config.json", lambda config: _clean_tokenizer_config(config, max_length))


def _clean_config(config: dict[str, Any]) -> dict[str, Any]:
    config = {key: value for key, value in config.items() if key not in ("_model_name_or_path", "unk_token_id")}
    config["rms_norm_eps"] = _shortest_float32(config["rms_norm_eps"])
    rope = config["rope_parameters"] = dict(config["rope_parameters"])
    rope["rope_theta"] = _shortest_float32(rope["rope_theta"])
    if rope.get("rope_type", "default") != "default":
        raise WorkError(f"The rope type {rope['rope_type']!r} of this GGUF file can't be written for transformers 4 yet.")
    config |= {"rope_theta": rope["rope_theta"], "rope_scaling": None, "torch_dtype": config["dtype"]}
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
    """The shortest decimal that is the same float32: GGUF stores 1e-05 as float32, which reads back as 9.99999974e-06."""
    import numpy as np

    return float(str(np.float32(value)))


def _rewrite(path: Path, change: Any) -> None:
    new = change(json.loads(path.read_text("utf-8")))
    write_atomic(path, json.dumps(new, indent=2, ensure_ascii=False) + "\n")
