"""The adapter that takes a base to a model trained from it: of each linear layer's difference the largest singular
values.

W - W₀ ≈ B·A of rank r, the nearest such matrix (Eckart and Young: https://doi.org/10.1007/BF02288367).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outlive.checkpoint.adapters.lowrank import Floats, floats
from outlive.checkpoint.adapters.names import module_of
from outlive.checkpoint.adapters.places import embedding_of, head_of, is_conv1d
from outlive.checkpoint.adapters.tied import HEAD, equal
from outlive.checkpoint.tensors.dtypes import DTYPES
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

_BEGINNINGS = ("model.", "transformer.", "gpt_neox.", "lm_head.", "embed_out.")
_EXPERT = re.compile(r"\.experts(\.\d+)?\.")
_NO_LINEAR = re.compile(r"(^|\.)(\w*embed\w*|wte|wpe|\w*norm\w*|ln_\w+|router|relative_attention_bias|mlp\.gate)$")
_MOST_NAMED = 5


@dataclass
class Extracted:
    """tensors: by PEFT's names without their prefix, float32 of the low-rank parts. kept: of each module, which share
    of its difference's squared norm is in them, 0 to 1. saved: modules that are there as a whole. unchanged: how many
    linear layers are the base's."""

    tensors: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, float] = field(default_factory=dict)
    saved: list[str] = field(default_factory=list)
    unchanged: int = 0
    tied: bool = False
    turned: bool = False


def extracted(
    base: Mapping[str, Tensor],
    model: Mapping[str, Tensor],
    config: Mapping[str, Any],
    rank: int,
    *,
    scale: float = 1.0,
    save_modules: bool = False,
    where: str = "",
) -> Extracted:
    """The adapter of rank `rank` whose B·A times `scale` is nearest to what `model` has and `base` has not.

    A module whose difference is zero throughout is left out. Other tensors that differ (norms, embeddings, biases) make
    their modules saved as a whole with `save_modules`, and are refused without. A tied head counts as equal to the
    embedding. Raises InputError for models of other names or shapes, a rank that a layer does not have, and numbers
    that are not finite.
    """
    found = Extracted(tied=_are_tied(base, config) and _are_tied(model, config))
    bases, models = (_ends_alike(one, found.tied) for one in (base, model))
    _check_alike(bases, models, where)
    model_type = str(config.get("model_type"))
    changed = [name for name in bases if not _equal(bases[name], models[name])]
    linear = [name for name in bases if _is_linear(name, bases[name])]
    others = [name for name in changed if name not in linear]
    _check_places(changed, config, where)
    if others and not save_modules:
        raise _not_linear(others, where)
    found.saved = sorted({module_of(name) for name in others})
    found.unchanged = len(set(linear) - set(changed))
    found.tensors = {name: models[name] for name in models if module_of(name) in found.saved}
    embedding = embedding_of(models)
    if found.tied and embedding in found.tensors:
        found.tensors[HEAD] = models[embedding]  # PEFT asks for the head that it ties to it
    for name in changed:
        if (path := module_of(name)) in found.saved:
            continue
        turned = is_conv1d(path, model_type)
        found.turned |= turned
        left, right, kept = _low_rank(name, bases[name], models[name], rank, turned, where)
        found.kept[path] = kept
        found.tensors[f"{path}.lora_A.weight"] = right.astype(np.float32)
        found.tensors[f"{path}.lora_B.weight"] = (left / scale).astype(np.float32)
    return found


def truncated_svd(matrix: Floats, rank: int) -> tuple[Floats, Floats, Floats]:
    """U [rows, rank], S [rank] and V [rank, columns] of the largest singular values, each vector of U with its largest
    element positive, so that the same matrix gives the same bits.

    float64. The space of the largest values comes from the eigenvectors of the smaller Gram matrix, and the values from
    the matrix itself seen in it (Rayleigh-Ritz): n³ work for the smaller side n, where a whole decomposition takes ten
    times that.
    """
    if matrix.shape[0] > matrix.shape[1]:
        left, values, right = truncated_svd(matrix.T, rank)
        left, right = right.T, left.T
    else:
        _, vectors = np.linalg.eigh(matrix @ matrix.T)
        space = vectors[:, ::-1][:, :rank]
        inner, values, right = np.linalg.svd(space.T @ matrix, full_matrices=False)
        left = space @ inner
    largest = left[np.argmax(np.abs(left), axis=0), np.arange(rank)]
    signs = np.where(largest < 0, -1.0, 1.0)
    return left * signs, values, right * signs[:, None]


def _low_rank(
    name: str, base: Tensor, model: Tensor, rank: int, turned: bool, where: str
) -> tuple[Floats, Floats, float]:
    """B [out, rank] and A [rank, in], each with the root of the singular values, and the share of the norm in them."""
    if rank > min(base.shape):
        what = f"{name} has the shape {list(base.shape)}, which has no rank {rank}"
        raise InputError(what, where=where, fix=f"take --rank {min(base.shape)} or less")
    difference = floats(model, model.whole) - floats(base, base.whole)
    if not np.isfinite(difference).all():
        fix = "take an earlier checkpoint of that training: this one diverged"
        raise InputError(f"{name} holds NaN or infinite numbers", where=where, fix=fix)
    largest = float(np.abs(difference).max())
    difference /= largest  # squares of small differences would be lost
    left, values, right = truncated_svd(difference.T if turned else difference, rank)
    kept = float(np.square(values).sum() / np.square(difference).sum())
    roots = np.sqrt(values * largest)
    return left * roots, right * roots[:, None], min(kept, 1.0)


def _are_tied(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> bool:
    head, embedding = head_of(tensors), embedding_of(tensors)
    if embedding is None or config.get("tie_word_embeddings") is False:
        return False
    return head is None or equal(tensors[head], tensors[embedding])


def _ends_alike(tensors: Mapping[str, Tensor], tied: bool) -> dict[str, Tensor]:
    """Without a head that is the embedding; or, where only one of the models has it so, with the embedding as head."""
    head, embedding = head_of(tensors), embedding_of(tensors)
    if tied:
        return {name: tensor for name, tensor in tensors.items() if name != head}
    return {**tensors, HEAD: tensors[embedding]} if head is None and embedding is not None else dict(tensors)


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether all values are: a bf16 and an fp32 tensor may be."""
    if one.dtype == other.dtype or not DTYPES[one.dtype].is_float:
        return equal(one, other)
    return all(np.array_equal(floats(one, box), floats(other, box)) for box in one.blocks())


def _is_linear(name: str, tensor: Tensor) -> bool:
    """Whether a tensor is the matrix of a linear layer, as far as its name and shape say it."""
    path = name.removesuffix(".weight")
    plain = name.endswith(".weight") and len(tensor.shape) == 2 and DTYPES[tensor.dtype].is_float
    return plain and not _NO_LINEAR.search(path) and not _EXPERT.search(name)


def _check_alike(base: Mapping[str, Tensor], model: Mapping[str, Tensor], where: str) -> None:
    fix = "name the base that this model was trained from: --base BASE"
    if differ := sorted(base.keys() ^ model.keys()):
        holder = "the base" if differ[0] in base else "the model"
        raise InputError(
            f"the model is not one of this base: {len(differ):,} tensors are in one of them, such as {differ[0]}, "
            f"which only {holder} has",
            where=where,
            fix=fix,
        )
    for name, tensor in base.items():
        if tensor.shape != model[name].shape:
            what = f"{name} has the shape {list(tensor.shape)} in the base and {list(model[name].shape)} in the model"
            raise InputError(f"the model is not one of this base: {what}", where=where, fix=fix)
        if DTYPES[tensor.dtype].is_float != DTYPES[model[name].dtype].is_float:
            what = f"{name} is {tensor.dtype} in the base and {model[name].dtype} in the model"
            raise InputError(f"the model is not one of this base: {what}", where=where, fix=fix)


def _check_places(changed: list[str], config: Mapping[str, Any], where: str) -> None:
    """Refuse what has another name in the model that PEFT puts an adapter on: nothing would be loaded there."""
    fix = "keep the model as it is, or combine it with others: outlive merge --method task"
    experts = [name for name in changed if _EXPERT.search(name)]
    if experts:
        what = (
            f"{len(experts):,} tensors of experts differ, such as {experts[0]}: they are no linear layers of a module"
        )
        raise InputError(what, where=where, fix=fix)
    begun = ("model.language_model.", "model.visual.", "lm_head.") if "vision_config" in config else _BEGINNINGS
    if strange := [name for name in changed if not name.startswith(begun)]:
        what = f"{strange[0]} is not the name that it has in memory, where PEFT looks for it"
        raise InputError(what, where=where, fix="load and save both models with transformers 5 first")


def _not_linear(others: list[str], where: str) -> InputError:
    named = ", ".join(_shown(others))
    return InputError(
        f"{len(others):,} tensors that differ are no weights of linear layers: {named}",
        where=where,
        fix="add --save-modules, which saves their modules as a whole",
    )


def _shown(names: list[str]) -> Iterator[str]:
    yield from names[:_MOST_NAMED]
    if len(names) > _MOST_NAMED:
        yield f"and {len(names) - _MOST_NAMED:,} others"
