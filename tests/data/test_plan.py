"""The plan: a pure function; no segment twice or never; steps never cross an epoch; weights are kept over epochs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from outlive.data.batch import make_batch
from outlive.data.plan import Layout, Mixture, Plan, make_plan
from outlive.data.store import Store
from outlive.run.errors import InputError
from tests.stores import random_samples, write_store

LENGTHS = tuple(2 + (11 * place) % 29 for place in range(100))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return write_store(tmp_path / "s", [[sample] for sample in random_samples(LENGTHS)])


def _visits(plan: Plan) -> list[tuple[int, int, int]]:
    return sorted(zip(plan.sample.tolist(), plan.start.tolist(), plan.end.tolist(), strict=True))


@pytest.mark.parametrize("packing", ["best_fit", "none"])
@pytest.mark.parametrize("window", [None, 16])
def test_every_sample_once_an_epoch_in_another_order(store: Store, packing: str, window: int | None) -> None:
    mixture, layout = Mixture([store], [1.0]), Layout(32, 3, packing, window)
    plans = [make_plan(mixture, layout, seed=5, epoch=epoch) for epoch in range(3)]
    whole = [(place, 0, length) for place, length in enumerate(LENGTHS)]
    assert all(_visits(plan) == whole for plan in plans)
    assert plans[0].sample.tolist() != plans[1].sample.tolist()
    again = make_plan(mixture, layout, seed=5, epoch=1)
    assert again.sample.tolist() == plans[1].sample.tolist()
    assert make_plan(mixture, layout, seed=6, epoch=1).sample.tolist() != again.sample.tolist()


def test_steps_never_cross_an_epoch(store: Store) -> None:
    plan = make_plan(Mixture([store], [1.0]), Layout(32, 7), seed=0, epoch=0)
    steps = [plan.step_packs(first) for first in range(0, plan.num_packs, 7)]
    assert [pack for step in steps for pack in step] == list(range(plan.num_packs))
    assert len(steps) == plan.num_steps
    assert all(len(step) == 7 for step in steps[:-1])


def test_packs_are_shuffled_after_packing(store: Store) -> None:
    """Best fit makes the longest packs first: their lengths must not fall in training order."""
    correlations = []
    for seed in range(20):
        plan = make_plan(Mixture([store], [1.0]), Layout(64, 1), seed, epoch=0)
        longest = [max(segment.end for segment in plan.segments(pack)) for pack in range(plan.num_packs)]
        correlations.append(np.corrcoef(longest, np.arange(len(longest)))[0, 1])
    assert abs(np.mean(correlations)) < 0.2  # unshuffled: about -0.9


@pytest.mark.parametrize("packing", ["best_fit", "none", "concatenate"])
def test_no_target_is_lost_or_doubled(store: Store, packing: str) -> None:
    mixture = Mixture([store], [1.0])
    plan = make_plan(mixture, Layout(33, 4, packing), seed=0, epoch=0)
    batch = make_batch(plan, mixture, range(plan.num_packs))
    expected = sum(float(store.weights(index).sum(dtype=np.float64)) for index in range(len(store)))
    assert batch.denominators()["weight"] == pytest.approx(expected, rel=1e-9)
    for segment in batch.segments:
        assert batch.positions[segment.start : segment.end].tolist() == list(range(segment.end - segment.start))
        assert batch.target_weight[segment.end - 1] == 0
        inside = slice(segment.start, segment.end - 1)
        assert np.array_equal(batch.target_ids[inside], batch.tokens[segment.start + 1 : segment.end])


def test_a_cut_sample_goes_on_as_the_next_part(store: Store) -> None:
    plan = make_plan(Mixture([store], [1.0]), Layout(8, 4, "concatenate"), seed=0, epoch=0)
    longest = int(np.argmax(LENGTHS))
    parts = [(p, s, e) for n, p, s, e in zip(plan.sample, plan.part, plan.start, plan.end, strict=True) if n == longest]
    parts.sort()
    assert [part for part, _, _ in parts] == list(range(len(parts)))
    assert all(before[2] - 1 == after[1] for before, after in itertools.pairwise(parts))


def test_weights_are_kept_over_epochs(store: Store) -> None:
    """Weight 0.3: after 10 epochs each sample was seen 3 times, none twice before all were seen once."""
    mixture, seen = Mixture([store], [0.3]), np.zeros(100, dtype=int)
    for epoch in range(10):
        plan = make_plan(mixture, Layout(32, 3), seed=1, epoch=epoch)
        assert len(plan.sample) == 30
        np.add.at(seen, plan.sample, 1)
        assert seen.max() - seen.min() <= 1
    assert (seen == 3).all()


def test_two_sources_are_mixed_within_packs(store: Store, tmp_path: Path) -> None:
    other = write_store(tmp_path / "other", [[sample] for sample in random_samples((5,) * 40, seed=9)])
    mixture = Mixture([store, other], [1.0, 2.0])
    plan = make_plan(mixture, Layout(64, 3), seed=0, epoch=0)
    assert np.bincount(plan.store).tolist() == [100, 80]
    both = [len({segment.store for segment in plan.segments(pack)}) for pack in range(plan.num_packs)]
    assert max(both) == 2


def test_a_batch_smaller_than_a_pack_is_refused() -> None:
    with pytest.raises(InputError, match="no pack"):
        Layout.of(2048, tokens=1000)


def test_a_group_that_does_not_fit_is_refused(store: Store) -> None:
    with pytest.raises(InputError, match="does not fit"):
        make_plan(Mixture([store], [1.0]), Layout(16, 1), seed=0, epoch=0)
