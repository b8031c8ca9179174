"""A model family: one table of its tensors, and the layouts that they come in."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from outlive.checkpoint.families import rope
from outlive.checkpoint.families.arithmetic import Dequantise
from outlive.checkpoint.families.names import filled, matching, places_of
from outlive.checkpoint.families.operations import Operation, Rename, Tensors, applied, has_place, inverted, put
from outlive.checkpoint.families.parts import Stack
from outlive.checkpoint.families.settings import Settings, shown
from outlive.checkpoint.remedies import OWN_CONFIG
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.run.errors import InputError

Sizes = dict[str, int]
Condition = Callable[[Settings, int], bool]  # of the config and a layer (-1 outside of layers)
SCALE = "_scale_inv"  # behind the name of a float8 matrix: that of its scales
_LAYER = re.compile(r"model\.(?:language_model\.)?layers\.([0-9]{1,7})\.")
MOST = 500_000  # tensors that a model may have


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


def block_of(config: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and columns that share a scale in a folder of float8 matrices."""
    quantization = config.get("quantization_config")
    block = quantization.get("weight_block_size") if isinstance(quantization, dict) else None
    if block is None:
        return 128, 128
    if isinstance(block, list) and len(block) == 2 and all(type(one) is int and one > 0 for one in block):
        return block[0], block[1]
    raise InputError(
        f"weight_block_size is {shown(block)} in config.json, where two numbers are expected", fix=OWN_CONFIG
    )


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
            raise InputError(
                f"config.json describes {total:,} tensors; more than {MOST:,} are not supported", fix=OWN_CONFIG
            )
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
        plain = applied(self.to_canonical(sizes), self._dequantised(tensors, config))
        return applied(self.layouts(sizes), plain)

    def fused(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Tensors:
        """Canonical tensors as the modules of transformers 5 hold them (save_original_format=False)."""
        return applied(inverted(self.layouts(self._sizes(config))), tensors)

    def ignored(self, name: str, config: Mapping[str, Any]) -> bool:
        """Whether published folders may hold a tensor of this name that transformers leaves out: multi-token
        prediction layers, buffers that are computed anew."""
        return self._is_ignored(name, self._sizes(config)["layers"])

    def _is_ignored(self, name: str, layers: int) -> bool:
        if name.startswith(self.ignored_prefixes) or name.endswith("rotary_emb.inv_freq"):
            return True
        number = _LAYER.match(name)
        return number is not None and int(number[1]) >= layers

    def to_gguf(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Tensors:
        """Canonical tensors as GGUF names and orders them, with the rotary factors that its readers expect as tensors.

        Those that are `ignored` are left out. InputError that names a tensor for which GGUF has no place.
        """
        if not self.architecture:
            raise InputError(f"GGUF has no architecture for {self.name}", fix=OWN_CONFIG)
        lost = self.not_in_gguf(tensors, config)
        if lost:
            what = f"GGUF has no place for {lost[0]} in the architecture {self.architecture}"
            others = f" (nor for {len(lost) - 1} others)" if len(lost) > 1 else ""
            raise InputError(what + others, where=lost[0], fix="convert to another format, or leave them out")
        layers = self._sizes(config)["layers"]
        used = {name: tensor for name, tensor in tensors.items() if not self._is_ignored(name, layers)}
        result = applied(self._gguf(config), used)
        for name, tensor in rope.factors(self.architecture, config).items():
            put(result, name, tensor)
        return result

    def not_in_gguf(self, names: Iterable[str], config: Mapping[str, Any]) -> list[str]:
        """Of canonical names, those that are read by the model, and for which GGUF has no place (vision towers,
        biases that its readers do not add)."""
        sizes = self._sizes(config)
        operations = self.before_gguf(sizes)
        held = [row.name for row in self.rows if row.gguf] + [getattr(one, "source", "") for one in operations]
        names = [name for name in names if not self._is_ignored(name, sizes["layers"])]
        known = {name for pattern in held for name, _ in matching(names, pattern)}
        return [name for name in names if name not in known]

    def from_gguf(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Tensors:
        """Tensors of a GGUF file under the canonical names. InputError that names one that is not known."""
        rest = rope.without_factors(tensors, self.architecture, config)
        current = applied(self.old_gguf(self._sizes(config)), rest)
        known = self._targets(config, current)
        for name in current:
            if name not in known:
                raise InputError(
                    f"{name} is not known in GGUF files of {self.architecture}", where=name, fix=OWN_CONFIG
                )
        return applied(inverted(self._gguf(config)), current)

    def _dequantised(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Tensors:
        if not any(name.endswith(SCALE) for name in tensors):
            return dict(tensors)
        block = block_of(config)
        matrices = {row.name for row in self.rows if row.name.endswith(".weight") and len(row.shape.split()) == 2}
        return applied([Dequantise(name, name + SCALE, block) for name in sorted(matrices)], tensors)

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
