"""Is a projection spectral? A sinusoid is, weights in no particular order are in at most one of twenty cases."""

from __future__ import annotations

import numpy as np
import pytest

import ega_mope as em
from ega_mope.analysis.gate_meaning.spectral import projections, spectral, spectral_test, spectrum

CHANNELS = 64


def test_energy_is_the_sum_over_frequencies():
    random = np.random.default_rng(0)
    w, x = random.standard_normal((2, CHANNELS))
    w_hat, x_hat = np.fft.fft(w), np.fft.fft(x)

    assert (w_hat.conj() * x_hat).sum() / CHANNELS == pytest.approx(w @ x)
    raw = np.abs(w_hat[1 : CHANNELS // 2 + 1]) ** 2
    np.testing.assert_allclose(spectrum(w), raw / raw.mean())


def test_a_sinusoid_is_spectral_at_its_frequency_also_under_noise():
    channel, random = np.arange(CHANNELS), np.random.default_rng(1)
    waves = np.stack([np.cos(2 * np.pi * k * channel / CHANNELS) for k in (3, 17, 32)])
    w = (waves + 0.7 * random.standard_normal(waves.shape))[None]

    found = spectral_test(w)

    assert found.spectral.all()
    assert found.heads_table()["peak at k"].tolist() == [3, 17, 32]
    assert set(found.heads_table()["verdict"]) == {"spectral"}
    assert (found.p_family == 1 / 201).all()


def false_alarms(draw, heads, seeds):
    random = np.random.default_rng(7)
    rates, families = [], []
    for seed in range(seeds):
        found = spectral_test(draw(random, (1, heads, CHANNELS)), seed=seed)
        rates.append(found.spectral.mean())
        families.append(bool((found.p_family <= 0.05).any()))
        np.testing.assert_array_equal(found.spectral, found.power.max(-1) > found.bound)
    return np.mean(rates), np.mean(families)


DRAWS = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "a few large ones": lambda random, shape: random.standard_t(2, shape),
    "one-sided": lambda random, shape: random.exponential(size=shape),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_weights_in_no_order_are_seldom_called_spectral(kind):
    rate, _ = false_alarms(DRAWS[kind], 16, 30)
    assert rate <= 0.075  # 480 heads at 5 %: two standard errors above


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWS)
def test_the_false_alarm_rate_over_many_runs(kind):
    rate, family = false_alarms(DRAWS[kind], 16, 400)
    assert 0.04 <= rate <= 0.056
    assert family <= 0.075


def test_the_order_of_the_channels_is_all_that_counts():
    wave = np.cos(2 * np.pi * 5 * np.arange(CHANNELS) / CHANNELS)
    mixed = np.random.default_rng(3).permutation(wave)
    found = spectral_test(np.stack([wave, mixed])[None])
    assert found.spectral.tolist() == [[True, False]]
    np.testing.assert_array_equal(np.sort(wave), np.sort(mixed))


def test_a_run_is_tested_by_its_own_projections(tiny_runs, monkeypatch):
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))
    run = em.open_run("ega-causal-mope-s0")
    weights = [attention.signal.weight.double().numpy() for attention in run.model("cpu").attentions]

    np.testing.assert_array_equal(projections(run.model("cpu")), np.stack(weights))
    found = spectral(run)
    assert found.power.shape == (2, 2, 8) and len(found.heads_table()) == 4
    assert found.sentence().startswith(f"{int(found.spectral.sum())} of 4 heads are outside")
    with pytest.raises(ValueError, match="dot-mope-s0: expected a run with a learned projection"):
        spectral(em.open_run("dot-mope-s0"))
    with pytest.raises(ValueError, match="permutations: expected at least 19"):
        spectral(run, permutations=5)
