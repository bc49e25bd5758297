"""Rotary positions (Su et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ega_mope.config import ModelConfig, setting
from ega_mope.positions.base import ActsOn, Position
from ega_mope.positions.sinusoidal import inverse_frequencies


def rotate_pairs(
    x: Float[Tensor, "batch head time d_head"], angle: Float[Tensor, "time pair"]
) -> Float[Tensor, "batch head time d_head"]:
    """Turn each neighbouring pair of channels (2i, 2i + 1) of x by its angle, in radians."""
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class RotaryPosition(Position):
    """q and k turned by ω_i × position, so that their product depends on i − j only.

    ω_i = base^(−2i/d_head). With `learned_table` a learned table is added to the embeddings as well:
    the published comparison ran rotations on top of one.
    """

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Settings of rotary positions."""

        base: float = setting(10000.0, "longest wavelength is about 2π × base tokens", minimum=1.0)
        learned_table: bool = setting(False, "add a learned position table too, as the paper's script did")

    def __init__(self, model: ModelConfig, settings: Settings) -> None:
        super().__init__(model, settings)
        if model.d_head % 2:
            raise ValueError(
                f"position rope: expected an even number of channels per head, got {model.d_head}; "
                "change d_model or n_heads"
            )
        self.register_buffer("omega", inverse_frequencies(model.d_head, settings.base), persistent=False)
        self.omega: Tensor
        if settings.learned_table:
            self.table = nn.Embedding(model.context_length, model.d_model)

    @classmethod
    def acts_on(cls, settings: Any) -> frozenset[ActsOn]:
        return frozenset({"query_key", "input"} if settings.learned_table else {"query_key"})

    def longest(self) -> int | None:
        return self.model.context_length if self.settings.learned_table else None

    def encode(self, positions: Int[Tensor, " time"]) -> Float[Tensor, "time d_model"]:
        return self.table(positions)

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], positions: Int[Tensor, " time"]
    ) -> Float[Tensor, "batch head time d_head"]:
        # Angles in float64: at position 8,192 a float32 product is off by 5e-4 rad.
        return rotate_pairs(x, positions.double()[:, None] * self.omega.double())
