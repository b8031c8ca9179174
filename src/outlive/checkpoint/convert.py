"""From one format to another: the tensors under their Hugging Face names, and what belongs beside them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from outlive.checkpoint.families.table import family_of
from outlive.checkpoint.formats.dcp_write import write_dcp
from outlive.checkpoint.formats.gguf_config import config_kv, config_of
from outlive.checkpoint.formats.gguf_tokenizer import tokenizer_files
from outlive.checkpoint.formats.gguf_tokenizer_write import tokenizer_kv
from outlive.checkpoint.formats.gguf_write import Type, kv_for, types_for, write_gguf
from outlive.checkpoint.formats.huggingface import CONFIG, read_json
from outlive.checkpoint.formats.modelfile import NAME as MODELFILE
from outlive.checkpoint.formats.modelfile import modelfile
from outlive.checkpoint.formats.pickled_write import write_pickled
from outlive.checkpoint.model import Model
from outlive.checkpoint.model_folder import copy_beside, write_model_folder
from outlive.checkpoint.optimizer import OPTIMIZER
from outlive.checkpoint.resumed import key_of, resumed_checkpoint
from outlive.checkpoint.spellings import both_spellings
from outlive.checkpoint.tensors.dtypes import DTYPES
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.whole import holds_all, write_whole
from outlive.checkpoint.write import Dtype
from outlive.run.errors import InputError

Target = Literal["huggingface", "dcp", "pt", "gguf"]
GGUF_FILE = "model.gguf"
PICKLED = "pytorch_model.bin"
Layout = Literal["original", "fused"]
Format = Literal["bf16", "fp16", "fp32", "q8_0"]
_TRIED = 16  # names that show what an application put before all of them


@dataclass
class Weights:
    """A model's tensors under canonical names. `beside`: folders with tokenizer and template; `texts`: these as files,
    where the checkpoint itself has them. `left`: the names of what is no part of it; `notes`: for the user."""

    tensors: dict[str, Tensor]
    config: Mapping[str, Any]
    beside: list[Path]
    texts: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def weights_of(model: Model, like: Path | None, layout: Layout = "original") -> Weights:
    """The weights of a checkpoint of any format. `like`: a folder with the config, tokenizer and template that the
    checkpoint itself does not have. Raises InputError where there is no config, or tensors do not fit it."""
    config = dict(model.config)
    if model.format == "gguf" and like is None:
        config = config_of(model.metadata, model.tensors, str(model.folder))
    if like is not None:
        config = read_json(like / CONFIG)
    elif not config and (model.folder / CONFIG).is_file():
        config = read_json(model.folder / CONFIG)
    if not config:
        raise InputError(
            "the checkpoint does not say what model it is: it has no config.json",
            where=str(model.folder),
            fix="name a folder that has it, with tokenizer and template: --like DIR",
        )
    beside = [folder for folder in (like, model.folder) if folder is not None]
    family = family_of(config)
    expected = family.expected(config)
    if model.format == "gguf":
        named, left = family.from_gguf(model.tensors, config), list[str]()
    else:
        named, left = unwrapped(model.tensors, set(expected))
    found = Weights(family.canonical(named, config), config, beside, left=left)
    if model.format == "gguf" and like is None:
        found.texts = tokenizer_files(model.metadata, str(model.folder))
    _check(found, expected, model.folder)
    found.tensors = {name: found.tensors[name] for name in expected if name in found.tensors} | {
        name: tensor for name, tensor in found.tensors.items() if name not in expected
    }
    if more := sorted(found.tensors.keys() - expected.keys()):
        found.notes.append(f"{len(more):,} tensors that the config does not ask for are there too, such as {more[0]}")
    if left:
        found.notes.append(f"{len(left):,} tensors that are no weights of the model are left out, such as {left[0]}")
    if layout == "fused":
        found.tensors = dict(family.fused(found.tensors, config))
    return found


def unwrapped(tensors: Mapping[str, Tensor], expected: set[str]) -> tuple[dict[str, Tensor], list[str]]:
    """Tensors without the prefix that an application put before their names, and the names of those that have another:
    an optimizer's."""
    prefixes = {""}
    for known in sorted(expected)[:_TRIED]:
        before = (name.removesuffix(known) for name in tensors if name.endswith(known))
        prefixes |= {one for one in before if one.endswith(".") and not one.startswith(OPTIMIZER)}
    fits = {prefix: sum(prefix + name in tensors for name in expected) for prefix in sorted(prefixes, key=len)}
    prefix = max(fits, key=lambda one: fits[one])  # the shortest of those that fit alike
    named = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    own = {name: tensor for name, tensor in named.items() if not name.startswith(OPTIMIZER)}
    return own, sorted(name for name in tensors if name.removeprefix(prefix) not in own or not name.startswith(prefix))


def _check(found: Weights, expected: Mapping[str, tuple[int, ...]], folder: Path) -> None:
    absent = sorted(expected.keys() - found.tensors.keys())
    if absent:
        raise InputError(
            f"{len(absent):,} tensors that the config asks for are not there, such as {absent[0]}",
            where=str(folder),
            fix="is the config of this model? `outlive verify` says more of a Hugging Face folder",
        )
    for name, shape in expected.items():
        if tuple(found.tensors[name].shape) != tuple(shape):
            raise InputError(
                f"{name} has the shape {list(found.tensors[name].shape)}, and the config makes it {list(shape)}",
                where=str(folder),
                fix="name the folder of the model that this checkpoint is of: --like DIR",
            )


def convert(
    model: Model, target: Path, to: Target, *, like: Path | None = None, dtype: Format | None = None,
    layout: Layout = "original", names: Sequence[str] | None = None, with_modelfile: bool = False,
) -> Weights:  # fmt: skip
    """Write a checkpoint in another format; the folder appears whole or not at all. Blocks of 1 MiB are in memory. What
    the same conversion had finished before it was killed is kept: `resumed`. with_modelfile: one for Ollama beside a
    GGUF file.

    Between torch.distributed.checkpoint and files of torch.save all is taken along, an optimizer too; names: of its
    parameters, where it has only their numbers.
    Raises InputError where `target` exists or the source is not whole, WorkError where the disk refuses.
    """
    if dtype == "q8_0" and to != "gguf":
        raise InputError("q8_0 is a format of GGUF files", where="--dtype", fix="add --to gguf, or take bf16")
    if with_modelfile and to != "gguf":
        raise InputError("a Modelfile is for GGUF files", where="--modelfile", fix="add --to gguf, or leave it out")
    if os.path.lexists(target):
        raise InputError("this exists already", where=str(target), fix="name a folder that does not exist yet")
    about = {"made_by": "convert", "from": str(model.folder), "format": model.format}
    plain: Dtype | None = None if dtype == "q8_0" else dtype
    sources = [*(model.files or [model.folder]), *([like] if like else [])]
    options = {"to": to, "dtype": dtype, "layout": layout, "names": names and list(names), "modelfile": with_modelfile}
    key = key_of(sources, options, target)
    if to in ("dcp", "pt") and holds_all(model):
        if layout != "original":
            what = "between DCP and files of torch.save tensors stay as they are"
            raise InputError(what, where="--layout", fix="leave it out, or convert to huggingface")
        all_of_it = write_whole(model, target, to, about, key, like=like, dtype=plain, names=names)
        return Weights(all_of_it.tensors, {}, [], left=all_of_it.left, notes=all_of_it.notes)
    if names is not None:
        raise InputError(f"{to} has no place for an optimizer", where="--param-names", fix="leave it out")
    found = weights_of(model, like, layout)
    if moments := [name for name in found.left if name in model.tensors and name.startswith(OPTIMIZER)]:
        num_bytes = sum(model.tensors[name].num_bytes for name in moments)
        found.notes.append(
            f"{len(moments):,} of them ({num_bytes:,} bytes) are an optimizer's: {to} has no place for it"
        )
    if to == "huggingface":
        write_model_folder(
            target,
            found.tensors,
            found.config,
            sources=found.beside,
            about=about,
            key=key,
            dtype=plain,
            texts=found.texts,
        )
        return found
    if to == "gguf":
        _write_gguf(target, found, about, key, dtype, with_modelfile)
        return found
    finite = [name for name, tensor in found.tensors.items() if DTYPES[tensor.dtype].is_float]
    with resumed_checkpoint(target, about, key) as building:
        if to == "dcp":
            write_dcp(building, found.tensors, dtype=plain, finite=finite)
        else:
            write_pickled(building, PICKLED, found.tensors, dtype=plain, finite=finite)
        copy_beside(building, found.config, found.beside, found.texts)
    return found


def _write_gguf(
    target: Path, found: Weights, about: Mapping[str, Any], key: str, dtype: str | None, with_modelfile: bool
) -> None:
    family = family_of(found.config)
    tensors = family.to_gguf(found.tensors, found.config)
    if unread := [name for name in found.tensors if family.ignored(name, found.config)]:
        found.notes.append(f"{len(unread):,} tensors that readers leave out are not written, such as {unread[0]}")
    kind = _GGUF_TYPES[dtype] if dtype else _own_type(found.tensors)
    folder = next((one for one in found.beside if (one / "tokenizer.json").is_file()), None)
    if folder is None:
        fix = "name a folder with its tokenizer.json: --like DIR"
        raise InputError("a GGUF file needs the tokenizer", where=str(target), fix=fix)
    kv = {**config_kv(both_spellings(dict(found.config)), str(found.beside[0])), **kv_for(kind)}
    kv |= tokenizer_kv(folder, found.config["vocab_size"])
    text, notes = modelfile(found.beside, folder, kv, GGUF_FILE) if with_modelfile else ("", [])
    found.notes += notes
    with resumed_checkpoint(target, about, key) as building:
        write_gguf(building, GGUF_FILE, tensors, kv, types=types_for(tensors, kind))
        if with_modelfile:
            building.text(MODELFILE, text)


_GGUF_TYPES: dict[str, Type] = {"fp32": "F32", "fp16": "F16", "bf16": "BF16", "q8_0": "Q8_0"}


def _own_type(tensors: Mapping[str, Tensor]) -> Type:
    """The type of most of the elements."""
    sizes: dict[str, int] = {}
    for tensor in tensors.values():
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.size
    own = max(sizes, key=lambda name: sizes[name])
    return {"float32": "F32", "float16": "F16"}.get(own, "BF16")  # type: ignore[return-value]
