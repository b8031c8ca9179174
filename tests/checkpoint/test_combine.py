"""Promise: models are combined by the formulas of the papers, alike whatever box is read and however often, and models
that don't belong together are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from peft.utils import merge_utils

from outlive.checkpoint.combine import average, dare, task_arithmetic, ties
from outlive.checkpoint.tensors.dtypes import cast, to_float32
from outlive.checkpoint.tensors.tensor import Tensor
from outlive.checkpoint.tensors.views import Given
from outlive.run.errors import InputError

Model = Mapping[str, Tensor]
MADE = np.random.default_rng(0)
BASE, *OTHERS = (MADE.normal(size=(37, 53)).astype(np.float32) for _ in range(4))


def _model(values: np.ndarray[Any, Any]) -> dict[str, Tensor]:
    return {"w": Given(values), "places": Given(np.arange(5))}


MODELS = [_model(other) for other in OTHERS]
DIFFERENCES = [torch.from_numpy(other - BASE) for other in OTHERS]


def test_average() -> None:
    assert average(MODELS)["w"].array() == pytest.approx(np.mean(OTHERS, axis=0), abs=1e-6)
    weighted = average(MODELS, [1, 2, 5])["w"].array()
    assert weighted == pytest.approx(np.average(OTHERS, axis=0, weights=[1, 2, 5]), abs=1e-6)
    assert (average(MODELS)["places"].array() == np.arange(5)).all()


def test_task_arithmetic() -> None:
    weights = [0.5, -0.25, 1.5]
    found = task_arithmetic(_model(BASE), MODELS, weights, scale=0.7)["w"].array()
    wanted = BASE + 0.7 * merge_utils.task_arithmetic(DIFFERENCES, torch.tensor(weights)).numpy()
    assert found == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("density", [0.05, 0.2, 0.7, 1.0])
def test_ties_is_that_of_peft(density: float) -> None:
    found = ties(_model(BASE), MODELS, density=density, scale=0.9)["w"].array()
    exact = 37 * 53 * density
    wanted = merge_utils.ties(DIFFERENCES, torch.ones(3), round(exact) / (37 * 53) + 1e-9).numpy()
    assert found == pytest.approx(BASE + 0.9 * wanted, abs=1e-6)


def test_dare_keeps_a_share_and_its_expectation() -> None:
    found = dare(_model(BASE), MODELS[:1], density=0.25, seed=3)["w"].array()
    difference = OTHERS[0] - BASE
    kept = np.abs(found - BASE) > 1e-7
    assert 0.2 < kept.mean() < 0.3
    assert (found - BASE)[kept] == pytest.approx(difference[kept] / 0.25, abs=1e-5)


def test_dare_is_a_function_of_its_seed() -> None:
    one, again, other = (dare(_model(BASE), MODELS, seed=seed)["w"].array() for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).mean() > 0.3
    whole = dare({**_model(BASE), "v": Given(BASE)}, [{**model, "v": model["w"]} for model in MODELS], seed=1)
    assert (whole["w"].array() == one).all()
    assert (whole["v"].array() != one).mean() > 0.3


def _task(base: Model, models: Sequence[Model]) -> dict[str, Tensor]:
    return task_arithmetic(base, models)


METHODS: list[Callable[[Model, Sequence[Model]], dict[str, Tensor]]] = [
    lambda _, models: average(models), _task, ties, dare,
]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_any_box_is_that_of_the_whole(method: Any) -> None:
    tensor = method(_model(BASE), MODELS)["w"]
    whole = tensor.array()
    for box in (((0, 3), (5, 9)), ((36, 37), (0, 53)), ((4, 4), (0, 3))):
        assert (tensor.read(box) == whole[tuple(slice(*ends) for ends in box)]).all()


def test_bfloat16_is_rounded_once() -> None:
    models = [{"w": Given(cast(other, "float32", "bfloat16"), "bfloat16")} for other in OTHERS]
    found = average(models)["w"]
    exact = np.mean([to_float32(model["w"].array(), "bfloat16").astype(np.float64) for model in models], axis=0)
    assert found.dtype == "bfloat16"
    assert (found.array() == cast(exact.astype(np.float32), "float32", "bfloat16")).mean() > 0.99


def test_models_that_do_not_belong_together() -> None:
    with pytest.raises(InputError, match=r"only the 2\. of the models has lm_head"):
        average([MODELS[0], {**MODELS[1], "lm_head": Given(BASE)}])
    with pytest.raises(InputError, match=r"\(37, 53\) in the first model and \(37, 52\) in the 2\."):
        average([MODELS[0], _model(BASE[:, 1:])])
    with pytest.raises(InputError, match="weights"):
        average(MODELS, [1.0])
    with pytest.raises(InputError, match="sum to 0"):
        average(MODELS[:2], [1.0, -1.0])
    with pytest.raises(InputError, match="density is 0"):
        ties(MODELS[0], MODELS[1:], density=0.0)
    with pytest.raises(InputError, match=r"density is 1\.5"):
        dare(MODELS[0], MODELS[1:], density=1.5)
    with pytest.raises(InputError, match="two models"):
        average(MODELS[:1])
