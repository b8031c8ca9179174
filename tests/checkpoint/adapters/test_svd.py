"""Promise: an adapter keeps the largest singular values of a difference, with signs that the matrix decides."""

from __future__ import annotations

import numpy as np
import pytest

from outlive.checkpoint.adapters.extract import truncated_svd


@pytest.mark.parametrize(("rows", "columns"), [(7, 19), (19, 7), (9, 9)])
@pytest.mark.parametrize("rank", [1, 4, 7])
def test_the_largest_singular_values(rows: int, columns: int, rank: int) -> None:
    matrix = np.random.default_rng(0).normal(size=(rows, columns))
    left, values, right = truncated_svd(matrix, rank)
    whole = np.linalg.svd(matrix)
    assert values == pytest.approx(whole[1][:rank], abs=1e-12)
    nearest = whole[0][:, :rank] @ np.diag(whole[1][:rank]) @ whole[2][:rank]
    assert np.abs((left * values) @ right - nearest).max() < 1e-12
    assert (left[np.abs(left).argmax(axis=0), np.arange(rank)] > 0).all()


def test_a_matrix_of_less_rank() -> None:
    rng = np.random.default_rng(1)
    matrix = rng.normal(size=(20, 3)) @ rng.normal(size=(3, 30))
    left, values, right = truncated_svd(matrix, 6)
    assert values[3:] == pytest.approx(np.zeros(3), abs=1e-7)
    assert np.abs((left * values) @ right - matrix).max() < 1e-12
