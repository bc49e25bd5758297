"""Attention with linear biases (Press, Smith and Lewis 2022, arXiv 2108.12409)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ega_mope.config import ModelConfig
from ega_mope.positions.base import ActsOn, Memory, Position


def alibi_slopes(n_heads: int) -> Float[Tensor, " head"]:
    """Slope m_h of each head in nats per token, float64: 2^(−8(h + 1)/n) for n heads, n a power of two.

    For another count the authors' code takes the slopes of the largest power of two below it, then
    every second slope of twice that power.
    """

    def geometric(n: int) -> Tensor:
        return torch.exp2(-8.0 * torch.arange(1, n + 1, dtype=torch.float64) / n)

    power = 1 << (n_heads.bit_length() - 1)
    return torch.cat([geometric(power), geometric(2 * power)[0::2][: n_heads - power]])


class LinearBiasPosition(Position):
    """score_ij loses m_h·(i − j): each head attends less the further back, at its own fixed rate.

    Nothing is learned, nothing is added to the embeddings, and any length can be read. As the authors
    have it, the slopes are rounded nowhere: the bias is carried in float32 or better.
    Limit: slope 0 is no positions at all.
    """

    def __init__(self, model: ModelConfig, settings: Any) -> None:
        super().__init__(model, settings)
        self.register_buffer("slope", alibi_slopes(model.n_heads), persistent=False)
        self.slope: Tensor

    @classmethod
    def acts_on(cls, settings: Any) -> frozenset[ActsOn]:
        return frozenset({"scores"})

    @classmethod
    def memory(cls, settings: Any) -> Memory:
        return "quadratic"

    def bias(self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]) -> Float[Tensor, "head query key"]:
        lag = (query[:, None] - key).to(self.slope.dtype)
        return -self.slope[:, None, None] * lag
