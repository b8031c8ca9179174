"""Invariant 1: packed = unpacked, in every per-token loss and every parameter's gradient; no document sees another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from outlive.data.batch import Batch, make_batch
from outlive.learn.loss_rule import count
from outlive.learn.methods import METHODS
from outlive.learn.objective import Router, micro_batch_objective
from outlive.modeling.causal import CausalModel
from outlive.modeling.proof import prove_isolation
from tests.stores import planned, random_samples, write_store
from tests.tiny import CONFIGS, gradients, relative_error, tiny_model

LENGTHS = (17, 5, 9, 30, 2, 9, 24, 12)
# transformers computes Gemma 3's norms and rotary positions in fp32 whatever the model's dtype.
TOLERANCE = {
    torch.float64: dict.fromkeys(CONFIGS, 1e-12) | {"gemma3": 1e-6},
    torch.float32: dict.fromkeys(CONFIGS, 1e-5),
}


def _batches(folder: Path, packing: str) -> list[Batch]:
    store = write_store(folder / packing, [[sample] for sample in random_samples(LENGTHS)])
    plan, mixture = planned(store, 64, packing=packing)
    return [make_batch(plan, mixture, [pack]) for pack in range(plan.num_packs)]


def _losses(model: CausalModel, batches: list[Batch]) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        for batch in batches:
            tensors = model.tensors(batch)
            values = model.score(model.hidden(tensors), tensors, "logprobs")
            for segment in batch.segments:
                inside = (tensors.targets >= segment.start) & (tensors.targets < segment.end)
                found[segment.sample_id] = values[inside]
    return found


def _step(model: CausalModel, batches: list[Batch]) -> tuple[float, dict[str, torch.Tensor]]:
    totals, total = count(batches), 0.0
    router = Router.of(model.config)
    for batch in batches:
        share = micro_batch_objective(model, batch, METHODS["sft"], totals, router)
        share.backward()
        total += float(share.detach())
    return total, gradients(model)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_packed_equals_unpacked(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny_model(name, dtype)
    assert model.per_document
    assert (Router.of(model.config).coefficient > 0) == (name == "qwen3_moe")
    packed, alone = _batches(tmp_path, "best_fit"), _batches(tmp_path, "none")
    assert len(packed) < len(alone) == len(LENGTHS)
    tolerance = TOLERANCE[dtype][name]
    expected, got = _losses(model, alone), _losses(model, packed)
    assert set(expected) == set(got)
    for sample, values in expected.items():
        torch.testing.assert_close(got[sample], values, rtol=tolerance * 10, atol=tolerance * 10)
    loss_packed, gradients_packed = _step(model, packed)
    loss_alone, gradients_alone = _step(model, alone)
    assert loss_packed == pytest.approx(loss_alone, rel=tolerance * 10)
    assert relative_error(gradients_packed, gradients_alone) <= tolerance


@pytest.mark.parametrize("name", CONFIGS)
def test_our_forward_is_transformers_own(name: str, tmp_path: Path) -> None:
    """Each document alone through transformers' own attention and head gives the same log-probabilities."""
    model = tiny_model(name)
    (pack, *_) = _batches(tmp_path, "best_fit")
    proof = prove_isolation(model, pack)
    assert proof.num_documents > 1
    assert proof.holds, proof


def test_the_proof_fails_where_documents_see_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout that joins all documents is what a wrong mask does: the proof must not hold."""
    model = tiny_model("llama", torch.float32)
    (pack, *_) = _batches(tmp_path, "best_fit")
    tensors_of = CausalModel.tensors

    def joined(self: CausalModel, batch: Batch) -> object:
        tensors = tensors_of(self, batch)
        return type(tensors)(**{**vars(tensors), "bounds": [(0, len(batch.tokens), -1)]})

    monkeypatch.setattr(CausalModel, "tensors", joined)
    assert not prove_isolation(model, pack).holds


def test_one_document_cannot_change_another(tmp_path: Path) -> None:
    model = tiny_model("gemma3")
    (pack, *_) = _batches(tmp_path, "best_fit")
    with torch.no_grad():
        before = model.hidden(model.tensors(pack)).states
        first = pack.segments[0]
        pack.tokens[first.start : first.end] = 3
        after = model.hidden(model.tensors(pack)).states
    assert not torch.equal(before[: first.end], after[: first.end])
    assert torch.equal(before[first.end :], after[first.end :])
