"""A model family: one table of its tensors, and the layouts that they come in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from outlive.checkpoint.families import rope
from outlive.checkpoint.families.names import filled, matching, places_of
from outlive.checkpoint.families.operations import (
    Operation,
    Rename,
    Stack,
    Tensors,
    applied,
    has_place,
    inverted,
    put,
)
from outlive.checkpoint.families.settings import Settings
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

Sizes = dict[str, int]
Condition = Callable[[Settings, int], bool]  # of the config and a layer (-1 outside of layers)
MOST = 4_000_000  # tensors that a model may have


def always(settings: Settings, layer: int) -> bool:
    """In every model, in every layer."""
    return True


@dataclass(frozen=True)
class Row:
    """A tensor, or one of each {layer}, {expert}, {block}.

    shape: names of sizes. gguf: its name there; "" where that format has no place for it; with fewer places than
    `name`, the experts are stacked. change: what happens to its values on the way to GGUF.
    """

    name: str
    shape: str
    gguf: str = ""
    change: Callable[[Sizes, str], Operation] | None = None
    when: Condition = always

    def under(self, old: str, new: str) -> Row:
        """The same with another prefix."""
        return replace(self, name=new + self.name.removeprefix(old)) if self.name.startswith(old) else self


def nothing(sizes: Sizes) -> list[Operation]:
    """No operations."""
    return []


@dataclass(frozen=True)
class Family:
    """name: what it is called; model_types: of config.json; architecture: of GGUF ("" where that can't hold it).

    rows: every tensor under its canonical name, the one that transformers' save_pretrained writes. defaults: what
    transformers takes where config.json says nothing. layouts: from transformers' modules to canonical names.
    to_canonical: what only old or quantised folders need before. before_gguf: what comes before the rows' own renames
    on the way to GGUF. old_gguf: older GGUF names into the current ones. ignored_prefixes: see `ignored`.
    """

    name: str
    model_types: tuple[str, ...]
    architecture: str
    rows: tuple[Row, ...]
    sizes: Callable[[Settings], Sizes]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    layouts: Callable[[Sizes], list[Operation]] = nothing
    to_canonical: Callable[[Sizes], list[Operation]] = nothing
    before_gguf: Callable[[Sizes], list[Operation]] = nothing
    old_gguf: Callable[[Sizes], list[Operation]] = nothing
    ignored_prefixes: tuple[str, ...] = ()

    def expected(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Every tensor's canonical name and shape. InputError where the config is not this family's."""
        settings = Settings(config, self.defaults)
        sizes = self.sizes(settings)
        counts = {"layer": sizes["layers"], "expert": sizes.get("experts", 0), "block": sizes.get("blocks", 0)}
        total = sum(math.prod(counts[place] for place in places_of(row.name)) for row in self.rows)
        if total > MOST:
            raise InputError(f"config.json describes {total:,} tensors; more than {MOST:,} are not supported")
        result = {}
        for row in self.rows:
            shape = tuple(sizes[size] for size in row.shape.split())
            places = places_of(row.name)
            for numbers in product(*(range(counts[place]) for place in places)):
                at = dict(zip(places, numbers, strict=True))
                if row.when(settings, at.get("layer", -1)):
                    result[filled(row.name, {place: str(number) for place, number in at.items()})] = shape
        return result

    def canonical(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Tensors:
        """Tensors of any layout that Hugging Face folders have, under the canonical names.

        Names that the family does not know stay as they are. InputError where a layout is incomplete.
        """
        sizes = self._sizes(config)
        return applied([*self.to_canonical(sizes), *self.layouts(sizes)], tensors)

    def fused(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Tensors:
        """Canonical tensors as the modules of transformers 5 hold them (save_original_format=False)."""
        return applied(inverted(self.layouts(self._sizes(config))), tensors)

    def ignored(self, name: str, config: Mapping[str, Any]) -> bool:
        """Whether published folders may hold a tensor of this name that transformers leaves out: multi-token
        prediction layers, buffers that are computed anew."""
        if name.startswith(self.ignored_prefixes) or name.endswith("rotary_emb.inv_freq"):
            return True
        layers = self._sizes(config)["layers"]
        beyond = [places for _, places in matching([name.partition(".layers.")[2].partition(".")[0]], "{layer}")]
        return bool(beyond) and int(beyond[0]["layer"]) >= layers and name.startswith("model.layers.")

    def to_gguf(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Tensors:
        """Canonical tensors as GGUF names and orders them, with the rotary factors that its readers expect as tensors.

        Those that are `ignored` are left out. InputError that names a tensor for which GGUF has no place.
        """
        if not self.architecture:
            raise InputError(f"GGUF has no architecture for {self.name}")
        used = {name: tensor for name, tensor in tensors.items() if not self.ignored(name, config)}
        result = applied(self._gguf(config), used)
        held = self._targets(config, result)
        for name in result:
            if name not in held:
                what = f"GGUF has no place for {name} in the architecture {self.architecture}"
                raise InputError(what, where=name, fix="convert to another format, or remove what needs this tensor")
        for name, tensor in rope.factors(self.architecture, config).items():
            put(result, name, tensor)
        return result

    def from_gguf(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Tensors:
        """Tensors of a GGUF file under the canonical names. InputError that names one that is not known."""
        rest = rope.without_factors(tensors, self.architecture, config)
        current = applied(self.old_gguf(self._sizes(config)), rest)
        known = self._targets(config, current)
        for name in current:
            if name not in known:
                raise InputError(f"{name} is not known in GGUF files of {self.architecture}", where=name)
        return applied(inverted(self._gguf(config)), current)

    def _sizes(self, config: Mapping[str, Any]) -> Sizes:
        return self.sizes(Settings(config, self.defaults))

    def _gguf(self, config: Mapping[str, Any]) -> list[Operation]:
        sizes = self._sizes(config)
        rows = [row for row in self.rows if row.gguf]
        changes = [row.change(sizes, row.name) for row in rows if row.change is not None]
        return [*changes, *self.before_gguf(sizes), *(self._rename(row, sizes) for row in rows)]

    def _rename(self, row: Row, sizes: Sizes) -> Operation:
        if has_place(row.name, "expert") and not has_place(row.gguf, "expert"):
            return Stack(row.name, row.gguf, sizes["experts"])
        return Rename(row.name, row.gguf)

    def _targets(self, config: Mapping[str, Any], names: Mapping[str, Tensor]) -> set[str]:
        patterns = [row.gguf for row in self.rows if row.gguf]
        for operation in self.before_gguf(self._sizes(config)):
            patterns += getattr(operation, "targets", ())
        return {name for pattern in patterns for name, _ in matching(names, pattern)}
