"""Convolutional, multi-quantity and scale-initialised attention, held against answers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mechanism_models import (
    WIDTH,
    dot,
    gap,
    ids_of,
    model_of,
    numbers,
    with_parameters,
)

from ega_mope.attention.conv import lagged_keys
from ega_mope.attention.gate_norms import GATE_NORMS
from ega_mope.config import ModelConfig
from ega_mope.gate_signals import GATE_SIGNALS
from ega_mope.model import build_model


def test_lagged_keys_are_a_sum_over_the_past() -> None:
    k, w = numbers(2, 3, 10, 4), numbers(3, 5, seed=1)
    expected = np.zeros(k.shape)
    for lag in range(5):
        for j in range(lag, 10):
            expected[:, :, j] += w.numpy()[:, lag, None] * k.numpy()[:, :, j - lag]
    np.testing.assert_allclose(lagged_keys(k, w).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(lagged_keys(k[:, :, :2], w).numpy(), expected[:, :, :2], atol=1e-12)


@pytest.mark.parametrize("lags", [0, 4, 8])
def test_lag_weights_start_near_lag_zero(lags: int) -> None:
    weight = model_of({"name": "conv", "lags": lags}).learned()["attention.lag_weight"]
    assert weight.shape == (2, 4, lags + 1)
    torch.testing.assert_close(weight.sum(-1), torch.ones(2, 4, dtype=torch.float64))
    assert (weight[..., 0] > 0.8).all()


def test_no_lags_are_dot_product_attention() -> None:
    assert gap(model_of({"name": "conv", "lags": 0}), dot()) == 0.0


@pytest.mark.parametrize("gate_norm", sorted(GATE_NORMS))
def test_quantities_are_added_to_the_scores(gate_norm: str) -> None:
    model = model_of({"name": "multi_quantity", "gate_norm": gate_norm}, n_layers=1)
    strengths = {"energy": 0.5, "phase": -0.7, "flux": 0.3}
    for name, value in strengths.items():
        with_parameters(model, f"strength.{name}", value)
    with torch.no_grad():
        _, trace = model.trace(ids_of(), ("energy", "weight", "share", "residual", "output"))
    energy = trace["energy"][:, 0]
    flux = torch.cat([torch.zeros(2, 4, 1), energy.diff(dim=-1).abs()], dim=-1)
    phase = GATE_SIGNALS["phase"](model.config).double()(trace["residual"][:, 0], trace["residual"][:, 0])
    z = GATE_NORMS[gate_norm].z
    added = 0.5 * z(energy) + 0.3 * z(flux) - 0.7 * (phase if z(energy).ndim == 3 else phase[:, :, None])
    gated = trace["weight"][:, 0] * (added if added.ndim == 4 else added[:, :, None]).exp()
    share = gated / gated.sum(-1, keepdim=True)
    torch.testing.assert_close(trace["share"][:, 0], share)
    assert (share - trace["weight"][:, 0]).abs().max() > 0.05
    with torch.no_grad():
        x = model.blocks[0].norm_attention(trace["residual"][:, 0])
        v = model.attentions[0].qkv(x)[..., 2 * WIDTH :].unflatten(-1, (4, -1)).transpose(1, 2)
    torch.testing.assert_close(trace["output"][:, 0], share @ v)


def test_quantities_can_be_switched_off() -> None:
    off = {"name": "multi_quantity", "energy": False, "phase": False, "flux": False}
    assert gap(model_of(off), dot()) < 1e-12
    assert model_of(off).learned() == {}
    shown = model_of({**off, "flux": True}).learned()
    assert {name: value.tolist() for name, value in shown.items()} == {
        "attention.lambda_flux": [pytest.approx([0.01] * 4)] * 2
    }


def test_louder_heads_by_level() -> None:
    ours, plain = (
        build_model(ModelConfig(n_heads=8, d_model=32, n_layers=1, attention={"name": name}))
        .attentions[0]
        .qkv.weight
        for name in ("scale_heads", "dot")
    )
    ratio = (ours / plain).detach().view(3, 8, -1)
    for head in range(8):
        assert ratio[:2, head].flatten().tolist() == pytest.approx(
            [1 + head % 4 / 4] * ratio[:2, head].numel()
        )
    assert (ratio[2] == 1).all()


def test_heads_on_bands_of_frequency() -> None:
    attention = {"name": "scale_heads", "start": "frequency"}
    model = build_model(ModelConfig(n_heads=8, d_model=32, n_layers=1, attention=attention))
    plain = build_model(ModelConfig(n_heads=8, d_model=32, n_layers=1))
    ours, theirs = (m.attentions[0].qkv.weight.detach().view(3, 8, 4, 32) for m in (model, plain))
    for head in range(8):
        band = slice(8 * (head % 4), 8 * (head % 4) + 8)
        assert (ours[:2, head, :, band] == theirs[:2, head, :, band]).all()
        assert (ours[:2, head] != 0).sum() == 2 * 4 * 8
    assert (ours[2] == theirs[2]).all()
    assert model.parameter_counts() == plain.parameter_counts()


def test_too_few_pairs_for_four_bands_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        build_model(
            ModelConfig(n_heads=2, d_model=4, attention={"name": "scale_heads", "start": "frequency"})
        )
