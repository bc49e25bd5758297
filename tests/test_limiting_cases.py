"""Each mechanism's limiting case, one for every registry entry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mechanism_models import (
    TIME,
    dot,
    gap,
    ids_of,
    model_of,
    morlet_by_hand,
    numbers,
    position_of,
    signal_of,
    with_parameters,
    with_position,
)

from ega_mope.attention import ATTENTIONS
from ega_mope.attention.base import fused_attention
from ega_mope.gate_signals import GATE_SIGNALS
from ega_mope.gate_signals.filters import FILTER_LENGTHS
from ega_mope.positions import POSITIONS


def limit_dot() -> float:
    """All keys alike: every query takes the mean of the values so far."""
    v = numbers(1, 1, 5, 4)
    y = fused_attention(numbers(1, 1, 5, 4), torch.ones_like(v), v, None, d_head=4, dropout=0.0)
    means = v.cumsum(2) / torch.arange(1, 6, dtype=torch.float64)[:, None]
    return float((y - means).abs().max())


def limit_ega() -> float:
    return gap(with_parameters(model_of({"name": "ega"}), "threshold", -1e9), dot())


def limit_conv() -> float:
    model = model_of({"name": "conv"})
    assert gap(model, dot()) > 1e-3
    with torch.no_grad():
        for attention in model.attentions:
            attention.lag_logit.view(4, -1)[:, 0] = 1e9
    return gap(model, dot())


def limit_multi_quantity() -> float:
    model = model_of({"name": "multi_quantity"})
    assert gap(model, dot()) > 1e-6
    return gap(with_parameters(model, "strength", 0.0), dot())


def limit_scale_heads() -> float:
    return gap(model_of({"name": "scale_heads"}, n_heads=1), model_of({"name": "dot"}, n_heads=1))


def limit_learned() -> float:
    return gap(with_parameters(with_position("learned"), "position", 0.0), with_position("none"))


def limit_none() -> float:
    """Without positions one layer's last logits do not know the order of the tokens before."""
    model = model_of({"name": "dot"}, {"name": "none"}, n_layers=1)
    ids = ids_of()
    turned = torch.cat([ids[:, :-1].flip(1), ids[:, -1:]], dim=1)
    return float((model(ids) - model(turned))[:, -1].abs().max())


def limit_sinusoidal() -> float:
    """MoPE at the same ω with σ → ∞ has the same sines and cosines, cosine first."""
    sinusoidal, mope = position_of("sinusoidal", amplitude=1.0), position_of("mope", admissibility="free")
    mope.log_omega.copy_(sinusoidal.omega.log())
    mope.log_sigma.fill_(30.0)
    at = torch.arange(TIME)
    pairs = sinusoidal.encode(at).unflatten(1, (-1, 2)).flip(-1).flatten(1)
    return float((pairs - mope.encode(at)).abs().max())


def limit_rope() -> float:
    """Turning all positions by the same step changes no score."""
    rope, q, k = position_of("rope"), numbers(1, 4, 6, 4), numbers(1, 4, 6, 4, seed=1)
    scores = [rope.rotate(q, at) @ rope.rotate(k, at).mT for at in (torch.arange(6), torch.arange(6) + 100)]
    return float((scores[0] - scores[1]).abs().max())


def limit_mope_relative() -> float:
    model = with_position("mope_relative")
    assert gap(model, with_position("rope")) > 1e-3
    return gap(with_parameters(model, "log_sigma", 30.0), with_position("rope"))


def limit_alibi() -> float:
    model = with_position("alibi")
    assert gap(model, with_position("none")) > 1e-3
    model.position.slope.zero_()
    return gap(model, with_position("none"))


def limit_linear() -> float:
    x = numbers(1, 7, 4)
    return float((signal_of("linear", torch.zeros(7), x) - x[0, :, :2].mT).abs().max())


def limit_flux() -> float:
    rising = torch.arange(10) * -0.25
    expected = torch.tensor([0.0] + [0.25] * 9, dtype=torch.float64)
    return float((signal_of("flux", rising) - expected).abs().max())


def limit_constant(name: str) -> float:
    return float((signal_of(name, torch.ones(50))[:, 30:] - 1).abs().max())


def limit_impulse(name: str) -> float:
    expected = np.zeros(50)
    for n in FILTER_LENGTHS:
        omega = math.pi / n
        expected[5 : 5 + n] += np.abs(morlet_by_hand(n, omega, 5 / omega)) ** 2 / 4
    impulse = torch.zeros(50)
    impulse[5] = 1.0
    return float(np.abs(signal_of(name, impulse).numpy() - expected).max())


def limit_vanishing(name: str, moments: int) -> float:
    """A polynomial below the vanishing moments has no detail, one more degree has some."""
    t = torch.linspace(-1, 1, 30)
    assert signal_of(name, t**moments)[:, 8:].abs().max() > 1e-9
    return float(signal_of(name, t.double() ** (moments - 1))[:, 8:].abs().max())


LIMITS: dict[str, dict[str, Callable[[], float]]] = {
    "attention": {
        "dot": limit_dot,
        "ega": limit_ega,
        "conv": limit_conv,
        "multi_quantity": limit_multi_quantity,
        "scale_heads": limit_scale_heads,
    },
    "signal": {
        "linear": limit_linear,
        "flux": limit_flux,
        "phase": lambda: limit_constant("phase"),
        "phase_coherence": lambda: limit_constant("phase_coherence"),
        "morlet": lambda: limit_impulse("morlet"),
        "morlet_parametric": lambda: limit_impulse("morlet_parametric"),
        "daubechies2": lambda: limit_vanishing("daubechies2", 2),
        "daubechies4": lambda: limit_vanishing("daubechies4", 4),
    },
    "position": {
        "learned": limit_learned,
        "sinusoidal": limit_sinusoidal,
        "rope": limit_rope,
        "mope": limit_sinusoidal,
        "mope_relative": limit_mope_relative,
        "alibi": limit_alibi,
        "none": limit_none,
    },
}


REGISTRIES: dict[str, dict[str, Any]] = {
    "attention": ATTENTIONS,
    "signal": GATE_SIGNALS,
    "position": POSITIONS,
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, registry in REGISTRIES.items() for name in registry]
)
def test_limiting_case(kind: str, name: str) -> None:
    # Logarithms of ω and σ are kept in float32.
    tolerance = 1e-6 if name in ("morlet_parametric", "mope_relative", "sinusoidal", "mope") else 1e-12
    with torch.no_grad():
        assert LIMITS[kind][name]() < tolerance
