"""Invariants 2 and 3: 1×32 = 4×8 = 32×1 micro-batches in every gradient; a micro-batch without targets gives 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from outlive.data.batch import Batch, make_batch
from outlive.learn.loss_rule import Term, count, objective
from outlive.learn.methods import METHODS, Method
from outlive.learn.objective import Router, micro_batch_objective
from outlive.learn.router import router_term
from outlive.modeling.causal import CausalModel
from tests.stores import planned, random_samples, write_store
from tests.tiny import CONFIGS, gradients, relative_error, tiny_model

LENGTHS = tuple(3 + (7 * place) % 23 for place in range(32))


def _micro_batches(folder: Path, packs_each: int) -> list[Batch]:
    samples = random_samples(LENGTHS)
    samples[3].weights[:] = 0.0  # one sample without any target
    store = write_store(folder / str(packs_each), [[sample] for sample in samples])
    plan, mixture = planned(store, 32, packing="none")
    packs = range(plan.num_packs)
    return [make_batch(plan, mixture, packs[begin : begin + packs_each]) for begin in range(0, len(packs), packs_each)]


def _step(model: CausalModel, batches: Sequence[Batch], method: Method) -> tuple[float, dict[str, torch.Tensor]]:
    totals, total = count(batches), 0.0
    for batch in batches:
        share = micro_batch_objective(model, batch, method, totals, Router.of(model.config))
        share.backward()
        total += float(share.detach())
    return total, gradients(model)


def _segment_means(batch: Batch, logprobs: torch.Tensor, columns: object) -> list[Term]:
    """A loss of another kind: the mean of each segment's mean, with a constant beside it."""
    places = torch.from_numpy(batch.target_weight).nonzero().squeeze(1)
    means = [
        logprobs[(places >= segment.start) & (places < segment.end)].mean()
        for segment in batch.segments
        if batch.target_weight[segment.start : segment.end].any()
    ]
    total = torch.stack(means).sum() if means else logprobs.sum()
    return [Term("mean", -total, "segments"), Term("size", (logprobs**2).sum(), "constant", 0.01)]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("method", [METHODS["sft"], Method("means", _segment_means)], ids=lambda method: method.name)
def test_accumulation_changes_nothing(name: str, method: Method, tmp_path: Path) -> None:
    model = tiny_model(name)
    expected_loss, expected = _step(model, _micro_batches(tmp_path, 32), method)
    for packs_each in (8, 1):
        batches = _micro_batches(tmp_path, packs_each)
        assert len(batches) == 32 // packs_each
        loss, found = _step(model, batches, method)
        tolerance = 1e-6 if name == "gemma3" else 1e-12
        assert loss == pytest.approx(expected_loss, rel=tolerance)
        assert relative_error(found, expected) <= tolerance


def test_a_micro_batch_without_targets_gives_zero(tmp_path: Path) -> None:
    model = tiny_model("llama")
    batches = _micro_batches(tmp_path, 1)
    empty = next(batch for batch in batches if not batch.num_targets)
    share = micro_batch_objective(model, empty, METHODS["sft"], count(batches))
    share.backward()
    assert float(share.detach()) == 0.0
    assert all(float(gradient.abs().sum()) == 0.0 for gradient in gradients(model).values())


def test_a_rank_without_a_pack_gives_zero(tmp_path: Path) -> None:
    model = tiny_model("qwen3_moe")
    store = write_store(tmp_path / "s", [[sample] for sample in random_samples((5, 7))])
    plan, mixture = planned(store, 16)
    real, empty = (make_batch(plan, mixture, packs) for packs in ([0], [None]))
    assert count([real, empty]) == count([real])
    share = micro_batch_objective(model, empty, METHODS["sft"], count([real, empty]), Router.of(model.config))
    share.backward()
    assert float(share.detach()) == 0.0
    assert all(float(gradient.abs().sum()) == 0.0 for gradient in gradients(model).values())


def test_a_term_without_its_denominator_is_refused() -> None:
    with pytest.raises(ValueError, match="groups"):
        objective([Term("pairs", torch.ones(()), "groups")], {"groups": 0.0})


def test_router_term_of_one_sequence_is_transformers_own() -> None:
    generator = torch.Generator().manual_seed(0)
    layers = tuple(torch.randn(11, 4, dtype=torch.float64, generator=generator) for _ in range(3))
    term = router_term(layers, [(0, 11)], top_k=2, coefficient=1.0)
    assert term.denominator == "tokens"
    expected = load_balancing_loss_func(layers, num_experts=4, top_k=2).double()  # its mask is fp32
    torch.testing.assert_close(term.sum / 11, expected)
    whole = router_term(layers, [(0, 5), (5, 11)], top_k=2, coefficient=1.0, mode="micro_batch")
    torch.testing.assert_close(whole.sum, expected)
