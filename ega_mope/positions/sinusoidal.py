"""Fixed sinusoids (Vaswani et al. 2017, section 3.5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ega_mope.config import ModelConfig, setting
from ega_mope.positions.base import ActsOn, Position


def inverse_frequencies(channels: int, base: float) -> Float[Tensor, " pair"]:
    """ω_i = base^(−2i/channels) in rad/token, float64; shared by sinusoidal and rotary encodings."""
    return torch.exp(-math.log(base) * torch.arange(0, channels, 2, dtype=torch.float64) / channels)


class SinusoidalPosition(Position):
    """p(b, 2i) = sin(ω_i b), p(b, 2i + 1) = cos(ω_i b), ω_i = 10000^(−2i/d); nothing is learned.

    Added a-fold: the amplitude a decides whether the tokens are heard beside their positions. Vaswani et al. multiply the
    embeddings by √d first, so that both are of one size; here tokens start at N(0, 0.02), and a = 0.03 makes
    the sinusoids as large (0.02 root mean square). The published script adds a = 1 to such embeddings: then
    the first hundred updates go into the embeddings growing.
    Computed in float64 and rounded once, where the published script's table went through float32.
    """

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Settings of sinusoidal positions."""

        amplitude: float = setting(
            0.03,
            "size of the sinusoids: 0.03 as large as a new token's embedding; 1 as published",
            minimum=0.0,
        )

    def __init__(self, model: ModelConfig, settings: Settings) -> None:
        super().__init__(model, settings)
        self.settings: SinusoidalPosition.Settings
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
        return self.settings.amplitude * torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
