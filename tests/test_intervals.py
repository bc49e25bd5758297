"""Intervals and tests over seeds, against statsmodels, brute force, hand-worked numbers and simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.formula.api import ols

from ega_mope.analysis.intervals import (
    BCA_COVERAGE,
    Interval,
    bca_coverage,
    bca_interval,
    sign_flip_floor,
    sign_flip_p,
    t_interval,
    welch,
)

CONTRAST = {"00": -1, "10": 1, "01": 1, "11": -1}


def long_table(cells: dict[str, np.ndarray]) -> pd.DataFrame:
    """One row a run: L, and whether A (the gate) and B (MoPE) are in it."""
    rows = [(loss, int(cell[0]), int(cell[1])) for cell, losses in cells.items() for loss in losses]
    return pd.DataFrame(rows, columns=["L", "A", "B"])


def interaction_of(cells: dict[str, np.ndarray]) -> np.ndarray:
    return cells["10"] + cells["01"] - cells["00"] - cells["11"]


def draw_cells(sizes: tuple[int, int, int, int], seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {cell: 1.6 + 0.05 * rng.standard_normal(size) for cell, size in zip(CONTRAST, sizes, strict=True)}


def test_t_interval_by_hand() -> None:
    # mean 2, sd 1, n 3: 2 ± 4.302653 / √3
    interval = t_interval([1.0, 2.0, 3.0])
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((-0.484138, 4.484138), abs=1e-6)


def test_an_interval_ends_where_no_value_can_lie() -> None:
    free = t_interval([0.2, 0.9])
    assert free is not None and free.low < 0 and free.high > 1
    assert t_interval([0.2, 0.9], least=0.0, most=1.0) == Interval(0.0, 1.0)
    assert t_interval([0.4, 0.5, 0.6], least=0.0, most=1.0) == t_interval([0.4, 0.5, 0.6])


def test_one_value_has_no_interval_and_no_p() -> None:
    assert t_interval([1.0]) is None
    assert sign_flip_p([1.0]) is None
    assert bca_interval([1.0]) is None
    assert welch([[1.0], [1.0, 2.0]], [1.0, -1.0]) is None


def test_unpaired_interaction_is_the_product_term_with_hc2_errors() -> None:
    cells = draw_cells((5, 4, 6, 3))
    found = welch([cells[cell] for cell in CONTRAST], [float(weight) for weight in CONTRAST.values()])
    fit = ols("L ~ A * B", long_table(cells)).fit(cov_type="HC2")
    assert found is not None
    assert found.mean == pytest.approx(-fit.params["A:B"], abs=1e-12)
    assert found.standard_error == pytest.approx(fit.bse["A:B"], rel=1e-9)


def test_paired_interaction_is_the_intercept_of_ols_on_i() -> None:
    cells = draw_cells((6, 6, 6, 6))
    per_seed = interaction_of(cells)
    fit = ols("I ~ 1", pd.DataFrame({"I": per_seed})).fit()
    interval = t_interval(per_seed)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx(tuple(fit.conf_int().loc["Intercept"]), rel=1e-9)
    assert per_seed.mean() == pytest.approx(
        -ols("L ~ A * B", long_table(cells)).fit().params["A:B"], abs=1e-12
    )


def test_welch_is_scipys_welch_test_for_two_groups() -> None:
    a, b, *_ = draw_cells((5, 9, 2, 2)).values()
    found = welch([a, b], [1.0, -1.0])
    theirs = stats.ttest_ind(a, b, equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert found is not None
    assert found.degrees_of_freedom == pytest.approx(theirs.df)
    assert (found.interval.low, found.interval.high) == pytest.approx((interval.low, interval.high))


@given(
    st.lists(st.floats(-3, 3).map(lambda x: round(x, 2)), min_size=2, max_size=9),
)
@settings(max_examples=60, deadline=None)
def test_sign_flip_equals_brute_force(values: list[float]) -> None:
    observed = abs(sum(values))
    flips = [abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in _signs(len(values))]
    expected = np.mean([flip >= observed - 1e-9 for flip in flips])
    assert sign_flip_p(values) == pytest.approx(expected, abs=1e-12)


def _signs(count: int) -> list[tuple[int, ...]]:
    return list(itertools.product((-1, 1), repeat=count))


def test_sign_flip_reaches_its_floor_and_no_less() -> None:
    assert sign_flip_floor(6) == 0.03125
    assert sign_flip_p([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) == 0.03125
    assert sign_flip_p(np.linspace(1, 2, 40)) == pytest.approx(2 / 2**40)
    assert sign_flip_p(np.linspace(1, 2, 45)) is None


def test_bca_needs_six_different_values() -> None:
    values = [0.01, 0.02, 0.05, 0.04, 0.03, 0.06]
    assert bca_interval(values[:5]) is None
    assert bca_interval([0.02] * 6) is None
    interval = bca_interval(values)
    assert interval is not None
    assert min(values) < interval.low < np.mean(values) < interval.high < max(values)
    assert interval == bca_interval(values), "the same data give the same interval"


def test_bca_coverage_is_read_at_the_nearest_n_below() -> None:
    assert bca_coverage(5) is None
    assert bca_coverage(7) == BCA_COVERAGE[6]
    assert bca_coverage(100) == BCA_COVERAGE[16]


def test_t_interval_covers_the_true_interaction_95_percent_of_the_time() -> None:
    """20,000 simulated 2×2 tables with 6 seeds, a seed's noise shared by its four cells."""
    rng = np.random.default_rng(7)
    draws, seeds, truth = 20_000, 6, 0.04
    means = {"00": 1.65, "10": 1.64, "01": 1.73, "11": 1.68}
    shared = 0.02 * rng.standard_normal((draws, seeds))
    cells = {cell: mean + shared + 0.01 * rng.standard_normal((draws, seeds)) for cell, mean in means.items()}
    held = 0
    for row in interaction_of(cells):
        interval = t_interval(row)
        assert interval is not None
        held += interval.low <= truth <= interval.high
    assert 0.945 <= held / draws <= 0.955


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, 16])
def test_bca_covers_what_the_app_says_it_covers(count: int) -> None:
    rng = np.random.default_rng(count)
    draws = 1_500
    held = 0
    for row in rng.standard_normal((draws, count)):
        interval = bca_interval(row)
        assert interval is not None
        held += interval.low <= 0 <= interval.high
    print(f"BCa at N = {count}: {held / draws:.3f} of {draws}")
    # Three standard errors of this simulation, and those of the stated number.
    assert held / draws == pytest.approx(BCA_COVERAGE[count], abs=0.03)
