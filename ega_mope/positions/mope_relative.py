"""Relative Morlet positions: the lab's own answer to an envelope that is centred at position 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ega_mope.config import ModelConfig, setting
from ega_mope.positions.base import ActsOn, GeneratorFor, Memory, Position, Prior, from_run_setting
from ega_mope.positions.rope import rotate_pairs
from ega_mope.positions.sinusoidal import inverse_frequencies

SHORTEST_SIGMA = 2.0


class RelativeMorletPosition(Position):
    """The correlation kernel exp(−τ²/4σ_h²)·cos(ω_i τ) at every lag τ = i − j, wherever the query stands.

    q and k are turned by learned ω_i × position as rotary positions do, and −τ²/4σ_h² is added to the
    scores, one learned σ a head. ω starts at RoPE's 10000^(−2i/d_head), σ log-spaced over the heads,
    the last at the context length. Parameters: d_head/2 + n_heads.
    Departure from MoPE: nothing is added to the embeddings, and the window moves with the query.
    Limits: σ → ∞ is RoPE with those frequencies; ω = 0 a Gaussian cousin of ALiBi.
    """

    prior = Prior(("log_omega", "log_sigma"), sizes=("d_model", "n_heads"))

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Settings of relative Morlet positions."""

        rate_multiplier: float = setting(
            1.0, "learning rate of ω and σ, as a multiple of the model's", minimum=0.0
        )
        freeze: Literal["nothing", "omega", "sigma", "both"] = setting(
            "nothing", "which scales stay at their start: a fixed prior to hold learned ones against"
        )
        from_run: str | None = from_run_setting("run whose best weights give ω and σ their start")

    def __init__(self, model: ModelConfig, settings: Settings) -> None:
        super().__init__(model, settings)
        if model.d_head % 2:
            raise ValueError(
                f"position mope_relative: expected an even number of channels per head, got {model.d_head}; "
                "change d_model or n_heads"
            )
        self.settings: RelativeMorletPosition.Settings
        self.log_omega = nn.Parameter(torch.zeros(model.d_head // 2))
        self.log_sigma = nn.Parameter(torch.zeros(model.n_heads))
        self.log_omega.requires_grad_(settings.freeze not in ("omega", "both"))
        self.log_sigma.requires_grad_(settings.freeze not in ("sigma", "both"))

    @classmethod
    def acts_on(cls, settings: Any) -> frozenset[ActsOn]:
        return frozenset({"query_key", "scores"})

    @classmethod
    def memory(cls, settings: Any) -> Memory:
        return "quadratic"

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], positions: Int[Tensor, " time"]
    ) -> Float[Tensor, "batch head time d_head"]:
        return rotate_pairs(x, positions.double()[:, None] * self.log_omega.double().exp())

    def bias(self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]) -> Float[Tensor, "head query key"]:
        lag = (query[:, None] - key).to(self.log_sigma.dtype)
        return -(lag**2) * (torch.exp(-2 * self.log_sigma) / 4)[:, None, None]

    def learned(self) -> dict[str, Tensor]:
        """`rotation_omega` (rad/token, a pair of head channels each) and `head_sigma` (tokens, a head each)."""
        return {
            "rotation_omega": self.log_omega.exp().detach(),
            "head_sigma": self.log_sigma.exp().detach(),
        }

    def rate_multipliers(self) -> dict[str, float]:
        return dict.fromkeys(("log_omega", "log_sigma"), self.settings.rate_multiplier)

    def initialise(self, generator_for: GeneratorFor) -> None:
        heads = self.model.n_heads
        longest = max(SHORTEST_SIGMA, float(self.model.context_length))
        reach = torch.arange(1, heads + 1, dtype=torch.float64) / heads
        with torch.no_grad():
            self.log_omega.copy_(inverse_frequencies(self.model.d_head, 10000.0).log())
            self.log_sigma.copy_(math.log(SHORTEST_SIGMA) + reach * math.log(longest / SHORTEST_SIGMA))
