"""Rank correlations along a text: held against scipy, against planted causes, and against no cause at all."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ega_mope.analysis.gate_meaning import features
from ega_mope.analysis.gate_meaning.rank_correlation import _Ranked, associate, block_counts
from ega_mope.text.samples import sample_text

TEXT = sample_text("verse")


def columns(seed=0):
    """Features as a text has them: marks, counts with ties, numbers."""
    random = np.random.default_rng(seed)
    return np.stack(
        [
            features.word_ends(TEXT),
            features.line_ends(TEXT),
            features.function_words(TEXT),
            features.earlier_repeat(TEXT),
            np.arange(len(TEXT)) % 64,
            random.exponential(size=len(TEXT)),
        ]
    ).astype(float)


def alike(count, phi, random):
    """Outcomes without a cause whose neighbours are alike: y_j = φ y_{j−1} + noise."""
    noise = random.standard_normal((count, len(TEXT) + 100))
    for place in range(1, noise.shape[1]):
        noise[:, place] += phi * noise[:, place - 1]
    return noise[:, 100:]


def test_rho_is_scipys_and_the_partial_one_what_is_left_after_regressing_ranks():
    x = columns()
    y = np.random.default_rng(1).standard_normal((2, x.shape[1])) + 0.5 * x[:1]

    found = associate(x, y, draws=2)

    ranks = stats.rankdata(np.concatenate([x, y]), axis=1)
    for feature in range(len(x)):
        rest = np.delete(np.arange(len(x)), feature)
        design = np.column_stack([np.ones(x.shape[1]), ranks[rest].T])
        for outcome in range(2):
            both = ranks[[feature, len(x) + outcome]].T
            left = both - design @ np.linalg.lstsq(design, both)[0]
            expected = stats.spearmanr(x[feature], y[outcome]).statistic
            assert found.rho[feature, outcome] == pytest.approx(expected)
            assert found.partial[feature, outcome] == pytest.approx(np.corrcoef(left.T)[0, 1], abs=1e-6)


def test_ranks_of_a_drawn_text_are_those_of_the_text_written_out():
    random = np.random.default_rng(0)
    values = random.integers(0, 6, 40).astype(float)
    counts = block_counts(40, 7, random)

    written = stats.rankdata(np.repeat(values, counts))
    found = np.repeat(_Ranked(values).ranks(counts), counts)
    np.testing.assert_allclose(found - found.mean(), written - written.mean())


def test_blocks_are_contiguous_and_round_the_end():
    for seed in range(20):
        counts = block_counts(10, 4, np.random.default_rng(seed))
        assert counts.sum() == 12
    one = block_counts(10, 10, np.random.default_rng(0))
    assert one.tolist() == [1] * 10


def test_a_gate_made_of_word_ends_follows_them_alone():
    x = columns()
    gate = np.where(x[0] > 0, 0.9, 0.2)

    found = associate(x, gate[None])

    assert found.rho[0, 0] == pytest.approx(1) and found.partial[0, 0] == pytest.approx(1, abs=1e-3)
    assert np.abs(found.rho[1:, 0]).max() > 0.2  # not held, other features go along with word ends
    np.testing.assert_allclose(found.partial[1:, 0], 0, atol=0.02)
    low, _ = found.partial_at_once()
    assert low[0, 0] > 0.99


def test_a_noisy_gate_of_known_strength_lies_in_its_interval():
    random = np.random.default_rng(5)
    x = columns()
    inside = 0
    for seed in range(20):
        cause = random.standard_normal(x.shape[1])
        gates = 0.75 * cause + np.sqrt(1 - 0.75**2) * random.standard_normal((4, x.shape[1]))
        low, high = associate(np.stack([cause, *x]), gates, draws=100, seed=seed).rho_interval()
        truth = 6 / np.pi * np.arcsin(0.75 / 2)  # Spearman's ρ of two normals (Pearson 1907)
        inside += int(((low[0] <= truth) & (truth <= high[0])).sum())
    assert inside >= 70  # of 80; 95 % would be 76


def coverage(draws_of_y, phi, seed=0):
    random = np.random.default_rng(seed)
    x, alone, at_once = columns(), [], []
    for number in range(draws_of_y):
        found = associate(x, alike(8, phi, random), seed=number)
        low, high = found.partial_interval()
        alone.append(((low <= 0) & (high >= 0)).mean())
        low, high = found.partial_at_once()
        at_once.append(bool(((low <= 0) & (high >= 0)).all()))
    return np.mean(alone), np.mean(at_once)


def test_where_nothing_is_the_cause_intervals_cover_zero():
    alone, at_once = coverage(12, 0.7)
    assert 0.90 <= alone <= 0.98  # 576 intervals
    assert at_once >= 9 / 12


@pytest.mark.slow
@pytest.mark.parametrize("phi", [0.0, 0.7, 0.9])
def test_coverage_over_many_texts(phi):
    alone, at_once = coverage(200, phi)
    assert 0.91 <= alone <= 0.97
    assert at_once >= 0.86


def test_neighbours_that_are_alike_widen_the_interval():
    x, random = columns(), np.random.default_rng(2)
    errors = [associate(x, alike(16, phi, random)).partial_error[4].mean() for phi in (0.0, 0.95)]
    assert errors[1] > 1.5 * errors[0]


def test_the_interval_for_all_at_once_is_bonferronis():
    random = np.random.default_rng(3)
    y = alike(16, 0.5, random)
    one, many = associate(columns()[:1], y[:1], draws=2), associate(columns(), y, draws=2)
    assert one.simultaneous == pytest.approx(one.pointwise)
    assert many.simultaneous == pytest.approx(stats.t.ppf(1 - 0.025 / 96, len(TEXT) // many.block - 1))


def test_equal_features_are_not_told_apart_and_a_constant_outcome_has_no_correlation():
    x, random = columns(), np.random.default_rng(4)
    twice = np.concatenate([x, x[:1]])
    y = np.stack([random.standard_normal(x.shape[1]) + x[2], np.ones(x.shape[1])])

    found = associate(twice, y, draws=20)

    assert np.isnan(found.partial[[0, -1], 0]).all()
    np.testing.assert_allclose(found.partial[2, 0], associate(x, y, draws=2).partial[2, 0], atol=1e-6)
    assert np.isnan(found.partial[:, 1]).all() and np.isnan(found.rho[:, 1]).all()


def test_too_short_a_text_and_too_few_draws_are_refused():
    with pytest.raises(ValueError, match="at least 12 characters that can be measured, got 8"):
        associate(np.ones((2, 8)), np.ones((1, 8)))
    with pytest.raises(ValueError, match="draws: expected at least 2, got 1"):
        associate(np.ones((2, 80)), np.ones((1, 80)), draws=1)
