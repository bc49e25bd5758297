"""What a gate listens to, held against numpy's sums and PyWavelets."""

from __future__ import annotations

import math

import numpy as np
import pytest
import pywt
import torch
from mechanism_models import (
    WIDTH,
    model_of,
    morlet_by_hand,
    numbers,
    signal_of,
)

from ega_mope.config import ModelConfig
from ega_mope.gate_signals import GATE_SIGNALS
from ega_mope.gate_signals.filters import FILTER_LENGTHS, causal_filter


def test_causal_filter_is_numpys_convolution() -> None:
    signal, taps = numbers(2, 20), numbers(3, 6, seed=1)
    filtered = causal_filter(signal, taps).numpy()
    for batch in range(2):
        for index in range(3):
            expected = np.convolve(signal[batch].numpy(), taps[index].numpy())[:20]
            np.testing.assert_allclose(filtered[batch, index], expected, atol=1e-12)


@pytest.mark.parametrize(("name", "wavelet"), [("daubechies2", "db2"), ("daubechies4", "db4")])
def test_daubechies_energy_is_pywavelets_detail(name: str, wavelet: str) -> None:
    stream = numbers(32)
    detail = pywt.dwt(stream.numpy(), wavelet, mode="zero")[1]
    np.testing.assert_allclose(signal_of(name, stream)[0, 1::2].numpy(), detail[:16] ** 2, atol=1e-12)


def test_morlet_signals_are_direct_sums() -> None:
    stream = numbers(60)
    filtered = []
    for n in FILTER_LENGTHS:
        omega = math.pi / n
        filtered.append(np.convolve(stream.numpy(), morlet_by_hand(n, omega, 5 / omega))[:60])
    phasors = np.array([part / np.abs(part) for part in filtered])
    expected = {
        "morlet": (np.abs(filtered) ** 2).mean(0),
        "phase": phasors.real.mean(0),
        "phase_coherence": np.abs(phasors.mean(0)),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(signal_of(name, stream)[1].numpy(), values, atol=1e-12, err_msg=name)


def test_parametric_morlet_follows_its_own_scales() -> None:
    signal = GATE_SIGNALS["morlet_parametric"](ModelConfig(n_heads=2, d_model=4)).double()
    stream = numbers(60)
    with torch.no_grad():
        signal.log_omega.view(2, 4)[1] = math.log(0.7)  # type: ignore[operator]
        signal.log_sigma.view(2, 4)[1] = math.log(3.0)  # type: ignore[operator]
    energy = signal(numbers(1, 60, 4), stream[None, :, None].expand(1, -1, 4))[0]
    by_hand = [np.convolve(stream.numpy(), morlet_by_hand(n, 0.7, 3.0))[:60] for n in FILTER_LENGTHS]
    np.testing.assert_allclose(energy[1].detach().numpy(), (np.abs(by_hand) ** 2).mean(0), atol=1e-6)
    assert signal.learned()["filter_sigma"][1].tolist() == pytest.approx([3.0] * 4)


@pytest.mark.parametrize("name", ["phase", "phase_coherence"])
def test_a_silent_stream_has_no_phase(name: str) -> None:
    assert (signal_of(name, torch.zeros(9)) == 0).all()


@pytest.mark.parametrize(
    ("signal", "parameters"),
    [
        ("linear", WIDTH),
        ("flux", WIDTH),
        ("phase", 0),
        ("phase_coherence", 0),
        ("morlet", 0),
        ("morlet_parametric", 8),
        ("daubechies2", 0),
        ("daubechies4", 0),
    ],
)
def test_parameters_of_a_signal_a_head(signal: str, parameters: int) -> None:
    counts = model_of({"name": "ega", "signal": signal}).parameter_counts()
    assert counts["attention_gate"] == 2 * 4 * (parameters + 2)
