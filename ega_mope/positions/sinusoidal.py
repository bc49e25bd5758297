"""Fixed sinusoids (Vaswani et al. 2017, section 3.5)."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ega_mope.config import ModelConfig
from ega_mope.positions.base import ActsOn, Position


def inverse_frequencies(channels: int, base: float) -> Float[Tensor, " pair"]:
    """ω_i = base^(−2i/channels) in rad/token, float64; shared by sinusoidal and rotary encodings."""
    return torch.exp(-math.log(base) * torch.arange(0, channels, 2, dtype=torch.float64) / channels)


class SinusoidalPosition(Position):
    """p(b, 2i) = sin(ω_i b), p(b, 2i + 1) = cos(ω_i b), ω_i = 10000^(−2i/d); nothing is learned.

    Computed in float64 and rounded once, where the published script's table went through float32.
    """

    def __init__(self, model: ModelConfig, settings: Any) -> None:
        super().__init__(model, settings)
        if model.d_model % 2:
            raise ValueError(
                f"position sinusoidal: expected an even d_model, got {model.d_model}; choose an even one"
            )
        self.register_buffer("omega", inverse_frequencies(model.d_model, 10000.0), persistent=False)
        self.omega: Tensor

    @classmethod
    def acts_on(cls, settings: Any) -> frozenset[ActsOn]:
        return frozenset({"input"})

    def encode(self, positions: Int[Tensor, " time"]) -> Float[Tensor, "time d_model"]:
        angle = positions.double()[:, None] * self.omega.double()  # (time, pair)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
