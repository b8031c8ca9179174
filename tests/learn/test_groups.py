"""Shared prefixes and groups: gradients equal the unshared form, a group is never split, columns arrive with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outlive.data.batch import Batch, make_batch
from outlive.data.plan import Layout, Mixture, make_plan, rank_packs
from outlive.data.record_batch import Column
from outlive.data.samples import Sample
from outlive.learn.loss_rule import Term, count
from outlive.learn.methods import Method
from outlive.learn.objective import micro_batch_objective
from tests.stores import VOCAB, planned, write_store
from tests.tiny import CONFIGS, gradients, relative_error, tiny_model, with_exact_norms

COLUMNS = {"margin": Column("group"), "scale": Column("segment"), "advantage": Column("token")}


def _pair_terms(batch: Batch, logprobs: torch.Tensor, columns: Mapping[str, torch.Tensor]) -> list[Term]:
    """A coupled loss: log-sigmoid of chosen minus rejected minus the group's margin; and a term per token."""
    places = torch.from_numpy(batch.target_weight).nonzero().squeeze(1)
    sums: dict[int, torch.Tensor] = {}
    for number, segment in enumerate(batch.segments):
        inside = (places >= segment.start) & (places < segment.end)
        if segment.role in ("chosen", "rejected"):
            sign = 1.0 if segment.role == "chosen" else -1.0
            value = sign * columns["scale"][number] * logprobs[inside].sum()
            sums[segment.group] = sums.get(segment.group, torch.zeros(())) + value
    values = torch.stack([total - columns["margin"][group] for group, total in sums.items()])
    weighted = (columns["advantage"][places] * logprobs).sum()
    return [
        Term("pair", -torch.nn.functional.logsigmoid(0.05 * values).sum(), "groups"),
        Term("token", -weighted, "weight", 0.1),
    ]


METHOD = Method("pairs", _pair_terms, columns=COLUMNS)


def _rows(shared: bool) -> tuple[list[list[Sample]], list[list[dict[str, object]]]]:
    """Three pairs, with the prompt once for both branches or repeated in each. A branch begins with its last token."""
    random = np.random.default_rng(1)
    rows, values = [], []
    for number, (num_prompt, *nums) in enumerate([(6, 4, 7), (9, 3, 3), (2, 5, 4)]):
        prompt = random.integers(3, VOCAB, num_prompt).astype(np.int32)
        row, declared = [], []
        if shared:
            row.append(Sample(prompt[:-1], np.zeros(num_prompt - 1, np.float32), role="prefix"))
            declared.append({"margin": 0.3 * number, "scale": 1.0, "advantage": np.zeros(num_prompt - 1, np.float32)})
        for role, num in zip(("chosen", "rejected"), nums, strict=True):
            answer = random.integers(3, VOCAB, num).astype(np.int32)
            before = prompt[-1:] if shared else prompt
            tokens = np.concatenate([before, answer])
            weights = np.concatenate([np.zeros(len(before)), np.ones(num)]).astype(np.float32)
            advantage = np.concatenate([np.zeros(len(before)), np.arange(num) - 1.5]).astype(np.float32)
            row.append(Sample(tokens, weights, role=role, prefix=0 if shared else -1))
            declared.append({"margin": 0.3 * number, "scale": 0.5 + number, "advantage": advantage})
        rows.append(row)
        values.append(declared)
    return rows, values


def _gradients(name: str, folder: Path, shared: bool, packs_each: int) -> tuple[float, dict[str, torch.Tensor]]:
    model = with_exact_norms(tiny_model(name))
    rows, values = _rows(shared)
    store = write_store(folder / f"{shared}{packs_each}", rows, COLUMNS, values)
    plan, mixture = planned(store, 34)
    packs = range(plan.num_packs)
    batches = [make_batch(plan, mixture, packs[begin : begin + packs_each]) for begin in packs[::packs_each]]
    totals, total = count(batches), 0.0
    assert totals["groups"] == 3
    for batch in batches:
        share = micro_batch_objective(model, batch, METHOD, totals)
        share.backward()
        total += float(share.detach())
    return total, gradients(model)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_shared_prefix_changes_no_gradient(name: str, tmp_path: Path) -> None:
    expected_loss, expected = _gradients(name, tmp_path, shared=False, packs_each=99)
    for packs_each in (99, 1):
        loss, found = _gradients(name, tmp_path, shared=True, packs_each=packs_each)
        # Gemma's norms and the router's softmax run in fp32 inside transformers, and sharing sums before they round.
        tolerance = 1e-12 if name in ("llama", "qwen3") else 1e-6
        assert loss == pytest.approx(expected_loss, rel=tolerance)
        assert relative_error(found, expected) <= tolerance


def test_positions_go_on_from_the_prefix(tmp_path: Path) -> None:
    rows, values = _rows(shared=True)
    plan, mixture = planned(write_store(tmp_path / "s", rows, COLUMNS, values), 200)
    batch = make_batch(plan, mixture, [0])
    for segment in batch.segments:
        first = 0 if segment.prefix < 0 else batch.segments[segment.prefix].end - batch.segments[segment.prefix].start
        assert batch.positions[segment.start] == first
        assert batch.target_weight[segment.end - 1] == 0.0
        assert segment.prefix < 0 or batch.segments[segment.prefix].group == segment.group
    assert len(batch.columns["margin"]) == 3
    assert len(batch.columns["scale"]) == 9
    assert batch.kinds == {"margin": "group", "scale": "segment", "advantage": "token"}


@given(
    groups=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=30),
    packs_per_step=st.integers(1, 5),
    world=st.integers(1, 4),
    weight=st.sampled_from([0.5, 1.0, 2.0]),
    window=st.sampled_from([None, 3]),
)
def test_a_group_is_never_split(
    tmp_path_factory: pytest.TempPathFactory,
    groups: list[list[int]],
    packs_per_step: int,
    world: int,
    weight: float,
    window: int | None,
) -> None:
    """Not across packs, so not across micro-batches, steps or ranks; each is seen as often as its weight says."""
    rows = [
        [
            Sample(np.full(length, 5, np.int32), np.zeros(length, np.float32), role=f"r{place}")
            for place, length in enumerate(g)
        ]
        for g in groups
    ]
    store = write_store(tmp_path_factory.mktemp("groups") / "s", rows)
    mixture = Mixture([store], [weight])
    group_of, seen = store.whole_column("group"), np.zeros(len(groups), dtype=int)
    for epoch in range(2):
        plan = make_plan(mixture, Layout(36, packs_per_step, window=window), seed=3, epoch=epoch)
        for first in range(0, plan.num_packs, packs_per_step):
            packs = plan.step_packs(first)
            ranks = [rank_packs(packs, rank, world) for rank in range(world)]
            assert sorted(pack for rank in ranks for pack in rank if pack is not None) == list(packs)
            assert len({len(rank) for rank in ranks}) == 1
        for pack in range(plan.num_packs):
            members = [int(group_of[segment.sample]) for segment in plan.segments(pack)]
            assert sum(segment.end - segment.start for segment in plan.segments(pack)) <= 36
            for group in set(members):
                assert members.count(group) % len(groups[group]) == 0
                seen[group] += members.count(group) // len(groups[group])
    assert seen.sum() == round(len(groups) * weight * 2)
    assert seen.max() - seen.min() <= 1
