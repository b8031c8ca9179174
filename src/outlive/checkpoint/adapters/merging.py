"""How one adapter goes into the tensors of a base: each of its parts to the weight that it belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outlive.checkpoint.adapters.adapter import Adapter, LowRank
from outlive.checkpoint.adapters.experts import can_split, expert_modules, fuse, merged_experts, parameters, split
from outlive.checkpoint.adapters.initial import start_term, taken_out
from outlive.checkpoint.adapters.lowrank import Held, Kept, Magnitude, Merged, RowsReplaced, Shifted, Term, added
from outlive.checkpoint.adapters.places import embedding_of, head_of, is_conv1d, is_embedding, is_head, place
from outlive.checkpoint.adapters.tied import HEAD, equal, resized, settle
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Cast, Transposed
from outlive.run.errors import InputError

_MOST_NAMED = 5


@dataclass(frozen=True)
class Result:
    """`tensors` are computed when they are read. `config`: the base's, where the merge changed it so. `notes`: what the
    user should know."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    notes: list[str] = field(default_factory=list)


class Merging:
    """One adapter going into what there is so far: `tensors` are those of the result, `first` those of the base."""

    def __init__(
        self, so_far: Result, first: Mapping[str, Tensor], adapter: Adapter, initial: Adapter | None, blockwise: bool,
        factor: float,
    ) -> None:  # fmt: skip
        self.adapter, self.settings, self.blockwise = adapter, adapter.settings.times(factor), blockwise
        self.tensors, self.config, self.first = dict(so_far.tensors), dict(so_far.config), first
        self.changed = {name for name, tensor in self.tensors.items() if tensor is not first.get(name)}
        self.model_type = str(self.config.get("model_type"))
        self.held, self.notes, self.unknown = Held(), list(so_far.notes), list[str]()
        self.initial = None if initial is None else initial.low_rank
        self.initial_settings = None if initial is None else initial.settings.times(factor)
        self.start = taken_out(adapter.settings) if initial is None else None
        self.embedding = embedding_of(self.tensors)
        self.rows = None if self.embedding is None else self.tensors[self.embedding].shape[0]
        self.tied = self.embedding is not None and head_of(self.tensors) is None
        if self.tied and self.config.get("tie_word_embeddings") is not False and self._touches_ends():
            assert self.embedding is not None
            self.tensors[HEAD] = self.tensors[self.embedding]
        self.fused = self._split_experts()
        self.experts = expert_modules(self.tensors)

    def _touches_ends(self) -> bool:
        changed = [path for path, _ in self.adapter.low_rank] + list(self.adapter.tokens)
        changed += [name.removesuffix(".weight") for name in (*self.adapter.saved, *self.adapter.below)]
        return any(is_embedding(path) or is_head(path) for path in changed)

    def _split_experts(self) -> list[str]:
        """Modules whose fused experts are given tensors of their own, since the adapter has a part for each."""
        modules = set()
        for path, _ in self.adapter.low_rank:
            found = re.fullmatch(r"(.+\.experts)\.\d+\.(gate_proj|up_proj|down_proj)", path)
            if found and can_split(self.tensors, found[1]):
                modules.add(found[1])
        for module in modules:
            split(self.tensors, module)
        return sorted(modules)

    def lay_below(self) -> None:
        """Put in what the adapter brings of the base itself: a resized embedding, trained biases."""
        for name, tensor in self.adapter.below.items():
            found = place(name, self.tensors)
            if found is None:
                self.unknown.append(name)
                continue
            self._check_whole(found, tensor)
            whole = _like(tensor, self.tensors[found])
            if self._is_sum(found):
                below = self.tensors[found]
                if equal(below.base if isinstance(below, Merged) else below, whole):
                    continue  # PEFT saves an adapted embedding's own weight along
                self._refuse_sum(found, "the whole")
            both = self.tied and found in (self.embedding, HEAD)
            for each in (self.embedding, HEAD) if both and self.embedding else (found,):
                self.tensors[str(each)] = whole

    def add_low_rank(self) -> None:
        """Add every low-rank part to its weight."""
        modules: dict[str, list[LowRank]] = {}
        for low in self.adapter.low_rank.values():
            modules.setdefault(low.path, []).append(low)
        for path, lows in modules.items():
            name = place(f"{path}.weight", self.tensors)
            if name is None and (experts := self._experts_at(path)):
                self._refuse_start(path)
                self.tensors |= merged_experts(lows, experts, self.tensors, self.settings, self.held, self.blockwise)
            elif name is None or len(lows) > 1:
                self.unknown.append(path)
            else:
                self._add(lows[0], name)

    def _experts_at(self, path: str) -> list[Any]:
        for candidate in (path, path.replace(".mlp.", ".block_sparse_moe.")):
            if found := parameters(candidate, self.tensors, self.experts, self.model_type):
                return found
        found_name = place(f"{path}.gate_up_proj", self.tensors) or place(f"{path}.down_proj", self.tensors)
        other = found_name.rpartition(".")[0] if found_name else ""
        return parameters(other, self.tensors, self.experts, self.model_type) if other else []

    def _refuse_start(self, path: str) -> None:
        if self.start is not None or self.initial is not None:
            what = f"what the start of {path} took out of its experts' weights is not found again"
            raise InputError(
                what, where=self.settings.where, fix="save it with path_initial_model_for_weight_conversion"
            )

    def _add(self, low: LowRank, name: str) -> None:
        base = self.tensors[name]
        transposed = self._is_transposed(low, name)
        scale = self.settings.scale(low.path, low.rank)
        if self.settings.dora != (low.magnitude is not None):
            said = "true" if self.settings.dora else "false"
            what = f"use_dora is {said}, and {low.path} has {'no' if self.settings.dora else 'a'} magnitude vector"
            raise InputError(
                what, where=self.settings.where, fix="use the adapter_config.json that belongs to the tensors"
            )
        terms = [self._term(low, scale, transposed)]
        if self.initial is not None and self.initial_settings is not None:
            first = self.initial.get((low.path, low.depth))
            if first is None or (first.a.shape[1], first.b.shape[0]) != (low.a.shape[1], low.b.shape[0]):
                what = f"the initial adapter has no part of {low.path} that fits the trained one"
                raise InputError(
                    what, where=self.initial_settings.where, fix="name the one that this training began with"
                )
            terms.append(self._term(first, -self.initial_settings.scale(first.path, first.rank), transposed))
        elif self.start is not None and not low.embedding:
            published, factor = self.first.get(name, base), self.settings.factor
            terms.append(start_term(self.start, published, transposed, low.rank, scale, self.held, factor))
        magnitude = None if low.magnitude is None else Magnitude(low.magnitude, int(transposed))
        if magnitude is not None or (isinstance(base, Merged) and base.magnitude is not None):
            self._refuse_sum(name, "magnitudes (DoRA)")
        self.tensors[name] = added(base, terms, magnitude)
        if low.bias is not None:
            self._shift(low, scale)

    def _is_sum(self, name: str) -> bool:
        return name in self.changed or self.settings.factor != 1.0

    def _refuse_sum(self, name: str, brings: str) -> None:
        """Raise InputError where what an adapter brings of a weight can't be added to another's, or weighted."""
        if not self._is_sum(name):
            return
        other = "another adapter has changed that weight" if name in self.changed else "its weight is not 1"
        what = f"the adapter brings {brings} of {name}, and {other}: the two are no sum"
        raise InputError(what, where=self.adapter.where, fix="merge it alone; average whole models with --method")

    def _term(self, low: LowRank, scale: float, transposed: bool) -> Term:
        a, b = Kept(low.a, self.held), Kept(low.b, self.held)
        return Term(scale, Transposed(a, (1, 0)), Transposed(b, (1, 0))) if transposed else Term(scale, b, a)

    def _shift(self, low: LowRank, scale: float) -> None:
        assert low.bias is not None
        name = place(f"{low.path}.bias", self.tensors)
        if name is None:
            what = f"lora_bias gives {low.path} a bias, and the base's module has none that could take it"
            raise InputError(what, where=self.settings.where, fix="keep the adapter beside its base, and serve both")
        if self.tensors[name].shape != low.bias.shape:
            raise self._misfit(f"{low.path}.bias", low.bias.shape, name)
        self.tensors[name] = Shifted(self.tensors[name], scale, low.bias)

    def _is_transposed(self, low: LowRank, name: str) -> bool:
        """Whether the base's matrix is [in, out]: embeddings are, and the modules of some older models."""
        shape, out_in = self.tensors[name].shape, (low.b.shape[0], low.a.shape[1])
        turned = low.embedding or is_conv1d(low.path, self.model_type)
        if shape == (out_in[::-1] if turned else out_in):
            return turned
        if not low.embedding and shape == out_in[::-1] and self.settings.fan_in_fan_out:
            return True
        raise self._misfit(low.path, out_in, name)

    def _misfit(self, path: str, shape: tuple[int, ...], name: str) -> InputError:
        base = f", {self.settings.base}" if self.settings.base else ""
        return InputError(
            f"the adapter's {path} is for a weight of {shape}, and the base's {name} has {self.tensors[name].shape}",
            where=self.adapter.where,
            fix=f"name the base that it was trained on{base}",
        )

    def replace_rows(self) -> None:
        """Put in the rows of the tokens that were trained, in a tied head too unless it has rows of its own."""
        own = {path for path in self.adapter.tokens if is_head(path)}
        for path, rows in self.adapter.tokens.items():
            name = place(f"{path}.weight", self.tensors)
            if name is None:
                self.unknown.append(path)
                continue
            self._replace_rows(path, name, rows)
            if self.tied and is_embedding(path) and not own and HEAD in self.tensors:
                self._replace_rows(path, HEAD, rows)

    def _replace_rows(self, path: str, name: str, rows: Tensor) -> None:
        index = self._index(path)
        base = self.tensors[name]
        self._refuse_sum(name, "rows")
        if len(base.shape) != 2 or rows.shape != (len(index), base.shape[1]):
            raise self._misfit(f"{path} (of {len(index)} trained tokens)", rows.shape, name)
        if max(index, default=0) >= base.shape[0]:
            what = f"trainable_token_indices names token {max(index)}, and {name} has {base.shape[0]} rows"
            raise InputError(what, where=self.settings.where, fix="name the base whose vocabulary was trained on")
        if isinstance(base, Merged):
            what = f"{path} has both trained tokens and a low-rank part, whose order the adapter does not tell"
            raise InputError(what, where=self.settings.where, fix="merge it with PEFT: merge_and_unload()")
        self.tensors[name] = RowsReplaced(base, index, rows)

    def _index(self, path: str) -> list[int]:
        named = self.settings.tokens
        for module, index in named.items():
            if module == path or path.endswith(f".{module}") or (module == "" and is_embedding(path)):
                return index
        what = f"the adapter has trained tokens of {path}, and trainable_token_indices does not say which"
        raise InputError(what, where=self.settings.where, fix="use the adapter_config.json that belongs to the tensors")

    def replace_whole(self) -> None:
        """Put in the modules that were trained as a whole (modules_to_save)."""
        for name, tensor in self.adapter.saved.items():
            found = place(name, self.tensors)
            if found is None:
                self.unknown.append(name)
                continue
            self._check_whole(found, tensor)
            self._refuse_sum(found, "the whole")
            self.tensors[found] = _like(tensor, self.tensors[found])

    def _check_whole(self, name: str, tensor: Tensor) -> None:
        shape = self.tensors[name].shape
        path = name.removesuffix(".weight")
        rows_may_differ = is_embedding(path) or is_head(path)
        if tensor.shape != shape and not (rows_may_differ and tensor.shape[1:] == shape[1:]):
            raise self._misfit(name, tensor.shape, name)

    def result(self) -> Result:
        """The result. Raises InputError where parts of the adapter fit nothing in the base."""
        if self.unknown:
            named = ", ".join(self.unknown[:_MOST_NAMED])
            more = f" and {len(self.unknown) - _MOST_NAMED} more" if len(self.unknown) > _MOST_NAMED else ""
            base = f" ({self.settings.base})" if self.settings.base else ""
            raise InputError(
                f"the base has no modules for these of the adapter: {named}{more}",
                where=self.adapter.where,
                fix=f"name the base that it was trained on{base}",
            )
        for module in self.fused:
            fuse(self.tensors, module)
        self.config, resize = resized(self.tensors, self.config, self.rows, self.adapter.where)
        self.config, untied = settle(self.tensors, self.config, self.tied)
        self.notes += [note for note in (resize, untied) if note]
        return Result(self.tensors, self.config, self.notes)


def _like(tensor: Tensor, base: Tensor) -> Tensor:
    return tensor if tensor.dtype == base.dtype else Cast(tensor, base.dtype)
