"""Positions that act on the scores, and how far each position reaches."""

from __future__ import annotations

import pytest
import torch
from mechanism_models import (
    TIME,
    ids_of,
    model_of,
    numbers,
    with_position,
)
from torch import Tensor

from ega_mope.attention.base import QUERY_BLOCK, fused_attention, softmax_weights
from ega_mope.attention.key_bias import key_biased_attention
from ega_mope.config import Plain
from ega_mope.positions.alibi import alibi_slopes


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [2**-8]),
        (4, [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
        (3, [1 / 16, 1 / 256, 1 / 4]),
        (6, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]),
    ],
)
def test_alibi_slopes(heads: int, slopes: list[float]) -> None:
    torch.testing.assert_close(alibi_slopes(heads), torch.tensor(slopes, dtype=torch.float64))


def test_alibi_takes_its_slope_off_for_each_token_back() -> None:
    bias = with_position("alibi").position.bias(torch.tensor([7, 9]), torch.tensor([0, 7, 9]))
    assert bias.shape == (4, 2, 3)
    assert bias[0].tolist() == [[-7 / 4, 0, 2 / 4], [-9 / 4, -2 / 4, 0]]


def attention_by_hand(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return softmax_weights(q.double(), k.double(), lambda rows: bias[..., rows, :]) @ v.double()


def half(*shape: int, seed: int) -> Tensor:
    return numbers(*shape, seed=seed).bfloat16()


def test_a_bias_keeps_its_digits_in_half_precision() -> None:
    q, k, v = half(1, 2, 9, 16, seed=1), half(1, 2, 9, 16, seed=2), half(1, 2, 9, 16, seed=3)
    bias = numbers(2, 9, 9, seed=4) + 300.0
    y = fused_attention(q, k, v, lambda rows: bias[:, rows], d_head=16, dropout=0.0)
    assert (y.double() - attention_by_hand(q, k, v, bias)).abs().max() < 0.02


def test_a_key_bias_keeps_its_digits_in_half_precision() -> None:
    q, k, v = half(1, 2, 9, 8, seed=1), half(1, 2, 9, 8, seed=2), half(1, 2, 9, 8, seed=3)
    key_bias = numbers(1, 2, 9, seed=4).float() + 300.0
    y = key_biased_attention(q, k, v, key_bias, None, 0.0)
    by_hand = attention_by_hand(q, k, v, key_bias.double()[:, :, None].expand(-1, -1, 9, -1))
    assert (y.double() - by_hand).abs().max() < 0.02


@pytest.mark.parametrize("position", ["alibi", "mope_relative"])
@pytest.mark.parametrize("attention", ["dot", "ega", "multi_quantity"])
def test_long_texts_are_read_in_query_blocks(attention: str, position: str) -> None:
    model = model_of({"name": attention}, {"name": position}, n_layers=1)
    ids = ids_of(QUERY_BLOCK + 40)[:1]
    whole = model(ids).detach()
    with torch.no_grad():
        assert (model(ids) - whole).abs().max() < 1e-12


def test_mope_relative_weighs_by_its_kernel() -> None:
    model = with_position("mope_relative")
    with torch.no_grad():
        for attention in model.attentions:
            attention.qkv.weight.view(3, -1)[:2] = 0.0
        _, trace = model.trace(ids_of(), ("weight",))
    sigma = model.position.learned()["head_sigma"]
    assert sigma.tolist() == pytest.approx([2 * 20 ** (h / 4) for h in (1, 2, 3, 4)])
    lag = torch.arange(TIME, dtype=torch.float64)
    kernel = torch.exp(-(lag**2) / (4 * sigma[:, None] ** 2)).flip(-1)
    torch.testing.assert_close(trace["weight"][0, 0, :, -1], kernel / kernel.sum(-1, keepdim=True))


@pytest.mark.parametrize(
    ("position", "longest"),
    [
        ({"name": "learned"}, TIME),
        ({"name": "rope", "learned_table": True}, TIME),
        ({"name": "rope"}, None),
        ({"name": "mope_relative"}, None),
        ({"name": "alibi"}, None),
        ({"name": "none"}, None),
    ],
)
def test_positions_say_how_far_they_reach(position: Plain, longest: int | None) -> None:
    model = model_of({"name": "dot"}, position)
    assert model.position.longest() == longest
    if longest is None:
        assert model(ids_of(4 * TIME)).isfinite().all()
