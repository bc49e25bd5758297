"""What is computed the fast way equals the equation, value and gradient; dropout's masks are what they claim."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from ega_mope.attention.base import fused_attention, softmax_weights
from ega_mope.attention.gated import gated_attention, gated_shares
from ega_mope.dropout import Dropout, dropout, keep_factors

TIME = 150
"""More than two blocks of queries, and no multiple of one."""


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def heads(channels: int = 8) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v as the model lays them out, [batch, time, head, channel] turned, and a gate's logit."""
    q, k, v = (numbers(2, TIME, 3, channels, seed=seed).transpose(1, 2) for seed in range(3))
    return q, k, v, numbers(2, 3, TIME, seed=3)


def same(ours: Tensor, theirs: Tensor, inputs: tuple[Tensor, ...]) -> None:
    """Equal values and equal gradients for each input."""
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    weights = torch.randn(ours.shape, dtype=ours.dtype, generator=torch.Generator().manual_seed(9))
    for mine, other in zip(
        torch.autograd.grad((ours * weights).sum(), inputs, retain_graph=True),
        torch.autograd.grad((theirs * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("shift", [0.0, -400.0], ids=["open and shut", "all but shut"])
def test_gated_attention_is_the_equation_with_its_gradients(shift: float) -> None:
    q, k, v, logit = heads()
    y = gated_attention(q, k, v, logit + shift, None, 0.0)
    # Σ A g v / Σ A g does not change when every gate is scaled: e^400 times a gate that is e^logit to rounding.
    gate = logit.sigmoid() if not shift else logit.exp()
    same(y, gated_shares(softmax_weights(q, k, None), gate) @ v, (q, k, v, logit))


def test_gated_attention_with_a_position_bias_is_the_equation_with_its_gradients() -> None:
    q, k, v, logit = heads()
    bias = numbers(3, TIME, TIME, seed=4)
    y = gated_attention(q, k, v, logit, lambda rows: bias[:, rows], 0.0)
    weights = softmax_weights(q, k, lambda rows: bias[:, rows])
    same(y, gated_shares(weights, logit.sigmoid()) @ v, (q, k, v, logit, bias))


def test_values_may_be_wider_than_queries() -> None:
    q, k, _, _ = heads()
    v = numbers(2, 3, TIME, 13)
    y = fused_attention(q, k, v, None, d_head=8, dropout=0.0)
    same(y, softmax_weights(q, k, None) @ v, (q, k, v))


def dropped_weights(rate: float, bias: Callable[[slice], Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """A as it is and as it was dropped: with the identity for values attention gives its weights."""
    q, k, _, _ = heads()
    v = torch.eye(TIME, dtype=torch.float64).expand(2, 3, TIME, TIME)
    return softmax_weights(q, k, bias), fused_attention(q, k, v, bias, d_head=8, dropout=rate)


@pytest.mark.parametrize("biased", [False, True])
def test_attention_weights_are_dropped_or_scaled_up(biased: bool) -> None:
    table = numbers(3, TIME, TIME, seed=4)
    whole, dropped = dropped_weights(0.25, (lambda rows: table[:, rows]) if biased else None)
    kept = dropped != 0
    torch.testing.assert_close(dropped, whole * kept / 0.75)
    visible = 2 * 3 * TIME * (TIME + 1) / 2
    assert abs(float(kept.sum()) / visible - 0.75) < 4 * np.sqrt(0.25 * 0.75 / visible)


def test_gates_are_renormalised_after_dropout() -> None:
    q, k, _, logit = heads()
    v = torch.eye(TIME, dtype=torch.float64).expand(2, 3, TIME, TIME)
    shares = gated_attention(q, k, v, logit, None, 0.25)
    kept = shares != 0
    gated = softmax_weights(q, k, None) * logit.sigmoid()[..., None, :] * kept
    torch.testing.assert_close(shares, gated / gated.sum(-1, keepdim=True).clamp(min=1e-8))
    assert 0.7 < float(kept.sum()) / (2 * 3 * TIME * (TIME + 1) / 2) < 0.8


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.5, 0.97])
def test_a_dropout_mask_has_its_rate_its_mean_and_no_memory(rate: float) -> None:
    torch.manual_seed(3)
    factors = keep_factors(torch.Size([1000, 1001]), rate, torch.float64).numpy()
    kept = factors > 0
    error = np.sqrt(rate * (1 - rate) / factors.size)
    assert abs(1 - kept.mean() - rate) < 4 * error + 1 / 2**17
    assert len(np.unique(factors)) == 2
    assert factors[kept] == pytest.approx(1 / (1 - rate), rel=1 / 2**17 / (1 - rate) + 1e-12)
    assert abs(factors.mean() - 1) < 4 * error / (1 - rate) + 1e-4
    # Neighbours share a random word of four, rows do not: neither may know of the other.
    flat = kept.ravel() - kept.mean()
    for lag in (1, 2, 3, 4, 8, 1001):
        correlation = (flat[lag:] * flat[:-lag]).mean() / flat.var()
        assert abs(correlation) < 4.5 / np.sqrt(flat.size), lag
    again = keep_factors(torch.Size([1000, 1001]), rate, torch.float64).numpy()
    assert abs(np.corrcoef(kept.ravel(), (again > 0).ravel())[0, 1]) < 4.5 / np.sqrt(flat.size)


def test_dropout_repeats_with_torchs_seed_and_rests_in_evaluation() -> None:
    x = numbers(7, 9)
    layer = Dropout(0.4)
    torch.manual_seed(1)
    first = layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first)
    assert not torch.equal(layer(x), first)
    assert layer.eval()(x) is x
    assert dropout(x, 0.0) is x
    torch.testing.assert_close(torch.autograd.grad(first.sum(), x)[0], (first / x).detach())
