"""Promise: sources are mixed as their weights say, to within a visit, at any place and over any number of passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlive.data import visit_limit
from outlive.data.mixing import Mixing, Size, Stretch, interleaved
from outlive.data.plan import Layout, Mixture, make_plan
from outlive.data.store import Store
from outlive.run.errors import InputError
from tests.stores import random_samples, write_store

NUMBERS = st.lists(st.integers(0, 300), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(NUMBERS)
def test_every_beginning_has_each_source_in_its_share(numbers: list[int]) -> None:
    """The bound of `interleaved`: half a visit, and half a visit for each source in its share."""
    sources, visits = interleaved(numbers)
    total = sum(numbers)
    assert len(sources) == total
    for source, number in enumerate(numbers):
        assert visits[sources == source].tolist() == list(range(number))
        counts = np.cumsum(sources == source)
        share = number / max(1, total)
        wanted = share * np.arange(1, total + 1)
        assert (np.abs(counts - wanted) <= (1 + len(numbers) * share) / 2 + 1e-9).all()


@settings(max_examples=200, deadline=None)
@given(NUMBERS, st.data())
def test_any_stretch_is_found_without_those_before_it(numbers: list[int], data: Any) -> None:
    begin = data.draw(st.integers(0, sum(numbers)))
    end = data.draw(st.integers(begin, sum(numbers)))
    whole, there = interleaved(numbers), interleaved(numbers, begin, end)
    assert all((one[begin:end] == other).all() for one, other in zip(whole, there, strict=True))


def test_the_weights_of_a_known_fault() -> None:
    """0.001 and 0.999 (Megatron-LM #705): the rare source comes when it is due, and not past its end."""
    sources, visits = interleaved([1, 999])
    assert np.flatnonzero(sources == 0).tolist() == [499]
    assert visits.max() == 998


SIZES = st.lists(st.builds(Size, st.integers(1, 500), st.integers(500, 9000)), min_size=1, max_size=5)
WEIGHTS = st.floats(0.01, 20)


@settings(max_examples=200, deadline=None)
@given(SIZES, st.data())
def test_over_passes_every_unit_comes_equally_often(sizes: list[Size], data: Any) -> None:
    weights = [data.draw(WEIGHTS) for _ in sizes]
    by = data.draw(st.sampled_from(["passes", "rows", "tokens"]))
    mixing = Mixing(weights, by, data.draw(st.sampled_from(["all", "first"])))
    place = [0] * len(sizes)
    for epoch in range(5):
        for source, stretch in enumerate(mixing.visits(sizes, epoch)):
            assert stretch.begin == place[source]  # goes on where the pass before ended
            place[source] = stretch.end
    per_pass = mixing.per_pass(sizes)
    assert all(abs(end - 5 * number) <= 0.5 for end, number in zip(place, per_pass, strict=True))


def test_weights_count_what_is_said() -> None:
    sizes = [Size(100, 1000), Size(300, 30_000)]  # samples of 10 tokens, and of 100
    assert Mixing([1.0, 0.5]).per_pass(sizes) == [100, 150]
    assert Mixing([1.0, 1.0], "rows").per_pass(sizes) == [300, 300]
    assert Mixing([1.0, 1.0], "rows", "first").per_pass(sizes) == [100, 100]
    assert Mixing([1.0, 1.0], "tokens").per_pass(sizes) == [3000, 300]
    assert Mixing([3.0, 1.0], "tokens", "first").per_pass(sizes) == pytest.approx([100, 100 / 30])


@settings(max_examples=150, deadline=None)
@given(SIZES, st.data())
def test_a_source_is_never_seen_more_often_than_its_epochs(sizes: list[Size], data: Any) -> None:
    caps = [data.draw(st.none() | st.floats(0.1, 4)) for _ in sizes]
    mixing = Mixing(
        [data.draw(st.floats(0.1, 3)) for _ in sizes],
        "passes",
        "all",
        caps,
        data.draw(st.sampled_from(["drop", "stop"])),
    )
    seen = [0] * len(sizes)
    over = False
    for epoch in range(60):
        visits = mixing.visits(sizes, epoch)
        assert not over or not any(stretch.number for stretch in visits)  # once over, over for good
        over = mixing.is_over(sizes, epoch)
        for source, stretch in enumerate(visits):
            assert stretch.begin <= stretch.end
            seen[source] = max(seen[source], stretch.end)
    for size, cap, number in zip(sizes, caps, seen, strict=True):
        assert cap is None or number <= round(size.units * cap)
    if mixing.used_up == "drop":
        assert all(
            cap is None or number == round(size.units * cap)
            for size, cap, number in zip(sizes, caps, seen, strict=True)
            if cap is not None and cap < 5
        )


def test_when_a_source_is_used_up_the_others_go_on_or_all_ends() -> None:
    sizes = [Size(10, 100), Size(40, 400)]
    drop = Mixing([1.0, 1.0], epochs=[1.5, None])
    assert [drop.visits(sizes, epoch) for epoch in (1, 2)] == [
        [Stretch(10, 15), Stretch(40, 80)],
        [Stretch(15, 15), Stretch(80, 120)],
    ]
    assert not drop.is_over(sizes, 100)
    stop = Mixing([1.0, 1.0], epochs=[1.5, None], used_up="stop")
    assert stop.visits(sizes, 1) == [Stretch(10, 15), Stretch(40, 60)]  # half of the second pass
    assert stop.is_over(sizes, 2)
    all_used = Mixing([1.0, 1.0], epochs=[2.0, 1.0])
    assert [all_used.is_over(sizes, epoch) for epoch in range(3)] == [False, False, True]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Store]:
    folder: Path = tmp_path_factory.mktemp("stores")
    random = np.random.default_rng(0)
    sizes = {"a": 300, "b": 40, "c": 7}
    return [
        write_store(folder / name, [[s] for s in random_samples(random.integers(2, 30, size).tolist(), size)])
        for name, size in sizes.items()
    ]


def taken(mixture: Mixture, layout: Layout, epoch: int, seed: int = 3) -> list[tuple[int, int]]:
    plan = make_plan(mixture, layout, seed, epoch)
    return list(zip(plan.store.tolist(), plan.sample.tolist(), strict=True))


def test_a_plan_holds_the_shares_of_tokens(stores: list[Store]) -> None:
    mixture = Mixture(stores, [2.0, 1.0, 1.0], Mixing([2.0, 1.0, 1.0], "tokens"))
    plan = make_plan(mixture, Layout(64, 4), 0, 0)
    tokens = np.bincount(plan.store, plan.end - plan.start)
    assert tokens / tokens.sum() == pytest.approx([0.5, 0.25, 0.25], abs=0.01)
    assert {sample for store, sample in zip(plan.store, plan.sample, strict=True) if store == 0} == set(range(300))


def test_a_windowed_plan_reads_the_sources_in_order_mixed_evenly(stores: list[Store]) -> None:
    mixture, layout = Mixture(stores, [1.0, 1.0, 1.0]), Layout(64, 4, window=50)
    sources, visits = interleaved([300, 40, 7])
    plan = make_plan(mixture, layout, 3, 0)
    order = list(zip(plan.store.tolist(), plan.sample.tolist(), strict=True))
    for begin in range(0, 347, 50):
        expected = zip(sources[begin : begin + 50].tolist(), visits[begin : begin + 50].tolist(), strict=True)
        window = order[begin : begin + 50]
        assert sorted(window) == sorted(expected)
        assert window != sorted(window)  # shuffled inside
    assert sorted(taken(mixture, layout, 1)) == sorted(order)
    assert taken(mixture, layout, 1)[:50] != order[:50]


def test_packs_of_a_window_do_not_depend_on_what_follows(stores: list[Store], tmp_path: Path) -> None:
    """A store that has only the beginning gives the same packs as far as it goes."""
    layout = Layout(64, 4, window=50)
    begin = write_store(tmp_path / "begin", [[s] for s in _samples(stores[0])[:150]])
    whole, part = (make_plan(Mixture([store], [1.0]), layout, 3, 0) for store in (stores[0], begin))
    for name in ("store", "sample", "start", "end", "part"):
        assert (getattr(whole, name)[: len(part.store)] == getattr(part, name)).all()
    assert (whole.pack_start[: part.num_packs + 1] == part.pack_start).all()


def _samples(store: Store) -> list[Any]:
    from outlive.data.sample import Sample

    return [Sample(store.tokens(index), store.weights(index)) for index in range(len(store))]


@pytest.mark.parametrize("window", [None, 50])
@pytest.mark.parametrize("by", ["passes", "rows", "tokens"])
def test_the_plan_is_a_function_of_its_settings(stores: list[Store], window: int | None, by: Any) -> None:
    mixing = Mixing([1.0, 2.0, 0.5], by)
    layout = Layout(64, 4, window=window)
    one = taken(Mixture(stores, [1.0, 2.0, 0.5], mixing), layout, 2)
    assert one == taken(Mixture(stores, [1.0, 2.0, 0.5], mixing), layout, 2)
    assert one != taken(Mixture(stores, [1.0, 2.0, 0.5], mixing), layout, 2, seed=4) or window


def test_a_run_ends_where_its_sources_are_used_up(stores: list[Store]) -> None:
    pytest.importorskip("torch")
    from outlive.engines.native.source import PlanSource
    from outlive.run.config import Stop

    mixture = Mixture(stores[:2], [1.0, 1.0], Mixing([1.0, 1.0], epochs=[1.0, 2.0]))
    for stop in (Stop(epochs=9), Stop(steps=10_000)):
        source = PlanSource(mixture, Layout(64, 4), 0, stop, 1)
        seen = [(s.sample_id) for step in source for batch in step.micro_batches for s in batch.segments]
        assert len(seen) == 300 + 2 * 40
        assert source.cursor.step == source.num_steps()
    keys = {PlanSource(Mixture(stores, [1.0] * 3, mixing), Layout(64, 4), 0, Stop(epochs=1), 1).plan_key for mixing in (
        None, Mixing([1.0] * 3, "rows"), Mixing([1.0] * 3, "tokens"), Mixing([1.0] * 3, "rows", "first"),
        Mixing([1.0] * 3, epochs=[1.0, None, None]), Mixing([1.0] * 3, epochs=[1.0, None, None], used_up="stop"),
    )}  # fmt: skip
    assert len(keys) == 6


def test_every_part_of_a_run_mixes_as_its_file_says(stores: list[Store]) -> None:
    """The one function that makes a mixture of a run file is used wherever stores are opened."""
    from outlive.data.prepare import mixture_of
    from outlive.run.config import Data, Source

    sources = [Source(path="a", weight=2.0, epochs=3.0), Source(path="b"), Source(path="c", epochs=1.0)]
    mixture = mixture_of(Data(train=sources, mix_by="tokens", pass_ends="first", used_up="stop"), stores)
    assert mixture.mixing == Mixing([2.0, 1.0, 1.0], "tokens", "first", [3.0, None, 1.0], "stop")
    assert mixture.visits(0) == Mixing([2.0, 1.0, 1.0], "tokens", "first", [3.0, None, 1.0], "stop").visits(
        mixture.sizes, 0
    )


@pytest.mark.parametrize("window", [None, 1000])
def test_many_visits_of_few_rows_take_no_longer_than_many_rows(stores: list[Store], window: int | None) -> None:
    """Each of the passes over a source that a pass over the data holds is found without looking at the others: with
    one look at the whole for each, this takes minutes."""
    few = Mixture(stores[2:], [300_000 / len(stores[2])])
    plan = make_plan(few, Layout(4096, 1, window=window), 0, 0)
    seen = np.bincount(plan.sample, minlength=len(stores[2]))
    assert int(seen.sum()) == 300_000
    assert int(seen.max() - seen.min()) <= 1


@pytest.mark.parametrize("by", ["passes", "rows", "tokens"])
@pytest.mark.parametrize("weights", [[1e6, 1.0], [1e6, 1e-6], [1.0, 1e-300]])
def test_weights_that_ask_for_too_many_visits_are_named(
    stores: list[Store], by: Any, weights: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit_limit, "available_memory", lambda: 1 << 20)
    mixture = Mixture(stores[:2], weights, Mixing(weights, by))
    if by == "passes" and weights[0] == 1.0:
        assert make_plan(mixture, Layout(4096, 1), 0, 0).num_packs
        return
    with pytest.raises(InputError, match="the weights of the sources ask for") as caught:
        make_plan(mixture, Layout(4096, 1), 0, 0)
    assert f"weight {weights[0]:g}" in caught.value.what
    assert "weight" in str(caught.value.fix)


def test_what_is_not_repeated_is_never_refused(stores: list[Store], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visit_limit, "available_memory", lambda: 1)
    assert make_plan(Mixture(stores, [1.0] * len(stores)), Layout(4096, 1), 0, 0).num_packs
