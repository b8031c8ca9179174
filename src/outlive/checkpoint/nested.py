"""Nested state dicts made flat, as torch.distributed.checkpoint does it, and back.

Seen on torch 2.13 (torch.distributed.checkpoint._nested_dict): keys are texts, joined by dots; a list is one item
unless it holds tensors or dicts; empty dicts vanish.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from outlive.checkpoint.tensors.tensor import Tensor

Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class Flat:
    """tensors and items (what is none) by flat name; paths: of each name the keys that lead to it."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    items: dict[str, Any] = field(default_factory=dict)
    paths: dict[str, Keys] = field(default_factory=dict)


def flattened(value: Mapping[Any, Any]) -> Flat:
    """A nested state dict by flat names."""
    flat = Flat()
    for keys, leaf in _leaves(value, ()):
        name = ".".join(map(str, keys))
        flat.paths[name] = keys
        if isinstance(leaf, Tensor):
            flat.tensors[name] = leaf
        else:
            flat.items[name] = leaf
    return flat


def _leaves(value: Any, keys: Keys) -> Iterator[tuple[Keys, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*keys, str(key)))
    elif isinstance(value, (list, tuple)) and not _is_item(value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, (*keys, number))
    else:
        yield keys, value


def _is_item(value: Any) -> bool:
    """Whether nothing in a list is a tensor or a dict."""
    if isinstance(value, (list, tuple)):
        return all(_is_item(each) for each in value)
    return not isinstance(value, (Mapping, Tensor))


def nested(leaves: Mapping[str, Any], paths: Mapping[str, Keys]) -> dict[Any, Any]:
    """A nested state dict of leaves by flat name; a name that `paths` lacks is its own key.

    Numbers 0 … n - 1 are the places of a list. Texts of digits under a key "state" are the numbers of an optimizer's
    parameters.
    """
    top: dict[Any, Any] = {}
    for name, leaf in leaves.items():
        *outer, last = paths.get(name, (name,))
        inner = top
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = leaf
    return {key: _with_lists(inner, key) for key, inner in top.items()}


def _with_lists(value: Any, key: Any) -> Any:
    if type(value) is not dict:
        return value
    inner = {name: _with_lists(each, name) for name, each in value.items()}
    if key == "state" and all(str(name).isdecimal() for name in inner):
        return {int(name): each for name, each in inner.items()}
    if inner and list(inner) == list(range(len(inner))):
        return list(inner.values())
    return inner
