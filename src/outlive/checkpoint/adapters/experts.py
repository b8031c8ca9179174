"""Experts: the weights of all in one tensor (as transformers 5 has them in memory) or of each in its own (on disk), and
adapters of either kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlive.checkpoint.adapters.adapter import LowRank
from outlive.checkpoint.adapters.lowrank import Every, Held, Kept, Term, added
from outlive.checkpoint.adapters.settings import Settings
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Joined, Part, Stacked, Transposed, Unstacked
from outlive.run.errors import InputError

_ONE = re.compile(
    r"(?P<module>.+\.experts)\.(?P<number>\d{1,6})\.(?P<leaf>gate_proj|up_proj|down_proj|w1|w2|w3)\.weight"
)
_LEAVES = {"gate_up_proj": (("gate_proj", "w1"), ("up_proj", "w3")), "down_proj": (("down_proj", "w2"),)}
# Models whose experts' tensors are [experts, in, out]; where the two sizes differ, the shapes tell it anyway.
_TRANSPOSED = {"aria", "aria_text", "gpt_oss", "llama4", "llama4_text", "openai_privacy_filter"}


@dataclass
class Parameter:
    """A parameter of a module of experts: `parts[e]` are the names of expert e's matrices, which lie one under the
    other in it; or `fused` is the name of the tensor [experts, …]. out and in are those of an expert's matrix."""

    name: str
    num_experts: int
    out: int
    width: int
    fused: str | None = None
    transposed: bool = False
    parts: Sequence[Sequence[str]] = ()


def expert_modules(names: Mapping[str, Tensor]) -> dict[str, dict[str, dict[int, str]]]:
    """module path → leaf ("gate_proj") → number of the expert → name, for experts that have tensors of their own."""
    found: dict[str, dict[str, dict[int, str]]] = {}
    for name in names:
        if place := _ONE.fullmatch(name):
            found.setdefault(place["module"], {}).setdefault(place["leaf"], {})[int(place["number"])] = name
    return found


def parameters(
    path: str, tensors: Mapping[str, Tensor], experts: Mapping[str, Any], model_type: str
) -> list[Parameter]:
    """The parameters of the module of experts at `path`, in the order in which the module defines them."""
    found = []
    for name, leaves in _LEAVES.items():
        fused = tensors.get(f"{path}.{name}")
        if fused is not None and len(fused.shape) == 3:
            number, one, other = fused.shape
            turned = model_type in _TRANSPOSED
            out, width = (other, one) if turned else (one, other)
            found.append(Parameter(name, number, out, width, f"{path}.{name}", turned))
            continue
        own: list[dict[int, str]] = (
            [next((experts[path][leaf] for leaf in names if leaf in experts[path]), {}) for names in leaves]
            if path in experts
            else []
        )
        if own and all(own) and all(sorted(each) == list(range(len(own[0]))) for each in own):
            parts = [[each[number] for each in own] for number in range(len(own[0]))]
            shapes = [tensors[part].shape for part in parts[0]]
            if all(len(shape) == 2 for shape in shapes):
                found.append(Parameter(name, len(parts), sum(s[0] for s in shapes), shapes[0][1], None, False, parts))
    return found


def merged_experts(
    lows: Sequence[LowRank],
    found: Sequence[Parameter],
    tensors: Mapping[str, Tensor],
    settings: Settings,
    held: Held,
    blockwise: bool,
) -> dict[str, Tensor]:
    """The tensors of a module of experts with what `lows`, all of that module, add to them.

    PEFT has A [experts·r, in], expert by expert, and B [out, r·experts] with the experts innermost; with `blockwise` B
    is [out, experts·r], as some other trainers write it.
    """
    changed: dict[str, Tensor] = {}
    left = list(found)
    for low in sorted(lows, key=lambda one: -one.depth):
        one = next((each for each in left if _fits(low, each)), None)
        if one is None:
            shapes = ", ".join(f"{each.name} {each.num_experts} × ({each.out}, {each.width})" for each in found)
            raise InputError(
                f"A {low.a.shape} and B {low.b.shape} of {low.path} fit none of its experts' weights ({shapes})",
                where=settings.where,
                fix=f"name the base that it was trained on{f' ({settings.base})' if settings.base else ''}",
            )
        if low.magnitude is not None or low.bias is not None:
            raise InputError(
                f"{low.path}: DoRA and biases of experts are not known",
                where=settings.where,
                fix="merge it with PEFT, or train it without these",
            )
        left.remove(one)
        changed |= _add(low, one, {**tensors, **changed}, settings, held, blockwise)
    return changed


def _fits(low: LowRank, one: Parameter) -> bool:
    if low.a.shape[0] % one.num_experts:
        return False
    if (low.b.shape[0], low.a.shape[1]) == (one.out, one.width):
        return True
    if one.fused and (low.b.shape[0], low.a.shape[1]) == (one.width, one.out):
        one.out, one.width, one.transposed = one.width, one.out, not one.transposed
        return True
    return False


def _add(
    low: LowRank, one: Parameter, tensors: Mapping[str, Tensor], settings: Settings, held: Held, blockwise: bool
) -> dict[str, Tensor]:
    number = one.num_experts
    rank = low.a.shape[0] // number
    scale = settings.scale(f"{low.path}.{one.name}", rank)
    all_a, all_b = Kept(low.a, held), Kept(low.b, held)
    changed: dict[str, Tensor] = {}
    experts: list[Tensor] = []
    for expert in range(number):
        a = Part.along(all_a, 0, expert * rank, (expert + 1) * rank)
        b = Part.along(all_b, 1, expert * rank, (expert + 1) * rank) if blockwise else Every(all_b, expert, number)
        if one.fused is not None:
            term = Term(scale, Transposed(a, (1, 0)), Transposed(b, (1, 0))) if one.transposed else Term(scale, b, a)
            fused = tensors[one.fused]
            own = fused.parts[expert] if isinstance(fused, Stacked) else Unstacked(fused, expert)
            experts.append(added(own, [term]))
            continue
        begin = 0
        for name in one.parts[expert]:
            end = begin + tensors[name].shape[0]
            changed[name] = added(tensors[name], [Term(scale, Part.along(b, 0, begin, end), a)])
            begin = end
    return changed if one.fused is None else {one.fused: Stacked(experts)}


def can_split(tensors: Mapping[str, Tensor], module: str) -> bool:
    """Whether a module's experts are fused, gate over up."""
    both, down = tensors.get(f"{module}.gate_up_proj"), tensors.get(f"{module}.down_proj")
    if both is None or down is None or len(both.shape) != 3 or len(down.shape) != 3:
        return False
    return both.shape[0] == down.shape[0] and both.shape[1] == 2 * down.shape[2] and both.shape[2] == down.shape[1]


def split(tensors: dict[str, Tensor], module: str) -> None:
    """Give each expert of a module whose tensors are fused its own, for adapters that have one part for each."""
    both, down = tensors.pop(f"{module}.gate_up_proj"), tensors.pop(f"{module}.down_proj")
    for expert in range(both.shape[0]):
        one = Unstacked(both, expert)
        half = one.shape[0] // 2
        tensors[f"{module}.{expert}.gate_proj.weight"] = Part.along(one, 0, 0, half)
        tensors[f"{module}.{expert}.up_proj.weight"] = Part.along(one, 0, half, one.shape[0])
        tensors[f"{module}.{expert}.down_proj.weight"] = Unstacked(down, expert)


def fuse(tensors: dict[str, Tensor], module: str) -> None:
    """Undo `split`."""
    number = len({name for name in tensors if re.fullmatch(re.escape(module) + r"\.\d+\.down_proj\.weight", name)})
    gate, up, down = (
        [tensors.pop(f"{module}.{expert}.{leaf}.weight") for expert in range(number)]
        for leaf in ("gate_proj", "up_proj", "down_proj")
    )
    tensors[f"{module}.gate_up_proj"] = Stacked([Joined(pair) for pair in zip(gate, up, strict=True)])
    tensors[f"{module}.down_proj"] = Stacked(down)
