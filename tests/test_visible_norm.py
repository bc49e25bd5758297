"""The gate norm `visible`: a token is compared with the keys that its query may attend to."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mechanism_models import (
    TIME,
    WIDTH,
    ids_of,
    model_of,
    numbers,
)

from ega_mope.attention import Trace
from ega_mope.attention.gate_norms import causal_norm, sequence_norm, visible_norm


def test_visible_norm_compares_with_the_keys_a_query_sees() -> None:
    energy = numbers(2, 3, 12) * 4 + 7
    z = visible_norm(energy)
    for i in range(12):
        seen = energy[..., : i + 1].numpy()
        spread = seen.std(-1, keepdims=True)
        expected = np.divide(seen - seen.mean(-1, keepdims=True), spread, where=spread > 0, out=seen * 0)
        np.testing.assert_allclose(z[..., i, : i + 1].numpy(), expected, atol=1e-12)
    assert (z.triu(1) == 0).all()
    torch.testing.assert_close(z.diagonal(dim1=-2, dim2=-1), causal_norm(energy))
    torch.testing.assert_close(z[..., -1, :], sequence_norm(energy))


@pytest.mark.parametrize("value", [0.0, 5.3])
def test_visible_norm_of_constant_energies_is_zero(value: float) -> None:
    energy = torch.full((1, 2, 6), value, requires_grad=True)
    z = visible_norm(energy)
    z.sum().backward()
    assert (z == 0).all()
    assert energy.grad is not None
    assert energy.grad.isfinite().all()


@pytest.mark.parametrize("apply", ["renormalised", "plain"])
def test_visible_is_sequence_for_the_last_query_of_one_layer(apply: str) -> None:
    visible, sequence = (
        model_of({"name": "ega", "gate_norm": norm, "apply": apply}, n_layers=1)
        for norm in ("visible", "sequence")
    )
    apart = (visible(ids_of()) - sequence(ids_of())).abs()
    assert apart[:, -1].max() < 1e-12
    assert apart[:, :-1].max() > 1e-3


def test_visible_gates_are_traced_for_each_pair() -> None:
    model = model_of({"name": "ega", "gate_norm": "visible"})
    causal = model_of({"name": "ega", "gate_norm": "causal"})
    with torch.no_grad():
        _, trace = model.trace(ids_of(), ("gate", "weight", "share"))
        _, causal_trace = causal.trace(ids_of(), ("gate",))
    gate = trace["gate"]
    assert gate.shape == (2, 2, 4, TIME, TIME)
    own = gate.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(own[:, 0], causal_trace["gate"][:, 0])
    assert (gate.triu(1) == 0).all()
    gated = trace["weight"] * gate
    torch.testing.assert_close(trace["share"], gated / gated.sum(-1, keepdim=True))


def test_visible_drops_weights_before_it_renormalises() -> None:
    """So a query's shares still sum to 1: values that are all 1 come out as 1, or 0 where all were dropped."""
    model = model_of({"name": "ega", "gate_norm": "visible"}, dropout=0.4).train()
    attention, x = model.attentions[0], numbers(2, TIME, WIDTH)
    v = torch.ones(2, 4, TIME, 4, dtype=torch.float64)
    y = attention.attend(numbers(2, 4, TIME, 4), numbers(2, 4, TIME, 4, seed=1), v, None, x, x, Trace(()))
    kept = y[y > 0]
    assert len(kept) > 0.9 * y.numel()
    assert (kept - 1).abs().max() < 1e-6
