"""Where in a base's tensors a module of an adapter is: on disk some models have other names than in memory."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from outlive.checkpoint.tensors.tensor import Tensor

# From the beginning of a module's path in memory to that of its tensors on disk, and back.
_BEGINNINGS = (
    ("model.language_model.", "language_model.model."),
    ("model.language_model.", "model."),
    ("model.visual.", "visual."),
    ("model.vision_tower.", "vision_tower."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
    ("transformer.", ""),
    ("model.", ""),
)
_INSIDE = ((".mlp.", ".block_sparse_moe."), (".experts.gate_proj.", ".experts.w1."))
EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in")
HEADS = ("lm_head", "embed_out")
# Models whose matrices are [in, out] (transformers' Conv1D), and the names that these have.
_CONV1D_MODELS = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer", "clvp"}
_CONV1D = {"c_attn", "c_proj", "c_fc", "q_attn"}


def place(name: str, names: Container[str]) -> str | None:
    """The name among `names` that a tensor called `name` in memory has; None where there is none."""
    return next((candidate for candidate in _candidates(name) if candidate in names), None)


def _candidates(name: str) -> Iterator[str]:
    begun = [name]
    for one, other in _BEGINNINGS:
        begun += [other + name.removeprefix(one)] if name.startswith(one) else []
        begun += [one + name.removeprefix(other)] if name.startswith(other) else []
    for candidate in begun:
        yield candidate
        for one, other in _INSIDE:
            yield candidate.replace(one, other)
            yield candidate.replace(other, one)


def is_embedding(path: str) -> bool:
    """Whether a module is the input embedding."""
    return path.rpartition(".")[2] in EMBEDDINGS


def is_head(path: str) -> bool:
    """Whether a module is the output head."""
    return path.rpartition(".")[2] in HEADS


def embedding_of(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the input embedding's weight; None where none or several could be it."""
    found = [name for name in _matrices(tensors) if is_embedding(name.removesuffix(".weight"))]
    return found[0] if len(found) == 1 else None


def head_of(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the head's weight; None where there is none."""
    return next((name for name in _matrices(tensors) if is_head(name.removesuffix(".weight"))), None)


def _matrices(tensors: Mapping[str, Tensor]) -> list[str]:
    return [name for name, tensor in tensors.items() if name.endswith(".weight") and len(tensor.shape) == 2]


def is_conv1d(path: str, model_type: str) -> bool:
    """Whether a module's matrix is [in, out]."""
    return model_type in _CONV1D_MODELS and path.rpartition(".")[2] in _CONV1D
