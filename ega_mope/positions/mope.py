"""Morlet Positional Encoding (arXiv 2605.26355, section 2.2; companion 2606.01258)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ega_mope.config import ModelConfig, setting
from ega_mope.positions.base import ActsOn, GeneratorFor, Position, Prior, from_run_setting

ADMISSIBLE = 5.0
"""The least ω·σ of an admissible Morlet wavelet: below it the wavelet's mean is no longer about zero."""
LARGEST_OMEGA = 0.95 * math.pi
SMALLEST_SIGMA = 1e-3


def morlet_table(
    positions: Int[Tensor, " time"], omega: Float[Tensor, " pair"], sigma: Float[Tensor, " pair"]
) -> Float[Tensor, "time d_model"]:
    """p(b, 2i) = cos(ω_i b)·exp(−b²/2σ_i²), p(b, 2i + 1) = sin(ω_i b)·exp(−b²/2σ_i²).

    omega in rad/token, sigma in tokens. σ → ∞ is the sinusoidal encoding at the same ω (cosine
    first); ω = 0 a pure window around position 0.
    """
    b = positions.to(omega.dtype)[:, None]
    envelope = torch.exp(-(b**2) / (2 * sigma**2))  # (time, pair)
    return torch.stack([torch.cos(omega * b) * envelope, torch.sin(omega * b) * envelope], dim=-1).flatten(1)


def project(
    omega: Float[Tensor, " pair"], sigma: Float[Tensor, " pair"]
) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
    """The published script's admissible ω and σ: ω ≤ 0.95π and σ ≥ 1e-3 first, then ω := 5/σ where ω·σ < 5.

    The last step may lift ω above 0.95π again. A projected pair sits on ω·σ = 5 and its own ω gets
    no gradient.
    """
    omega, sigma = omega.clamp(max=LARGEST_OMEGA), sigma.clamp(min=SMALLEST_SIGMA)
    return torch.where(omega * sigma < ADMISSIBLE, ADMISSIBLE / sigma, omega), sigma


def _paper_start(pairs: int, context_length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    omega = torch.logspace(0.0, math.log10(0.99 * math.pi), pairs, dtype=torch.float64)
    return omega, ADMISSIBLE / omega


def _multiscale_start(pairs: int, context_length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    sigma = torch.logspace(math.log10(2.0), math.log10(max(2, context_length)), pairs, dtype=torch.float64)
    return (ADMISSIBLE / sigma).clamp(max=LARGEST_OMEGA), sigma


def _random_start(pairs: int, context_length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    u = torch.rand(2, pairs, generator=generator, dtype=torch.float64)
    longest = max(2.0, float(context_length))
    low, high = min(ADMISSIBLE / longest, LARGEST_OMEGA), min(ADMISSIBLE / 2.0, LARGEST_OMEGA)
    return low * (high / low) ** u[0], 2.0 * (longest / 2.0) ** u[1]


STARTS = {"paper": _paper_start, "multiscale": _multiscale_start, "random": _random_start}


class MorletPosition(Position):
    """Learned wavelets added to the token embeddings; d_model/2 pairs (ω_i, σ_i), kept as logarithms.

    The envelope is centred at position 0 of the window, not at the query, as in the paper: positions
    beyond a few σ carry no position at all.

    Starts: `paper`, ω log-spaced from 1 to 0.99π and σ = 5/ω; `multiscale`, σ log-spaced from 2 to the
    context length and ω = 5/σ, at most 0.95π; `random`, ω and σ drawn log-uniformly and independently
    from the ranges of `multiscale`; or the ω and σ that another run learned. Frozen scales stay there; under
    `project` a frozen ω is still lifted to 5/σ where σ falls below 5/ω.
    """

    prior = Prior(("log_omega", "log_sigma"), sizes=("d_model",), settings=("admissibility",))

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Settings of Morlet positions."""

        init: Literal["paper", "multiscale", "random"] = setting("paper", "where ω and σ start")
        admissibility: Literal["project", "free"] = setting(
            "project", "project: ω·σ kept at 5 or more, as the script does; free: ω and σ as learned"
        )
        rate_multiplier: float = setting(
            1.0, "learning rate of ω and σ, as a multiple of the model's", minimum=0.0
        )
        freeze: Literal["nothing", "omega", "sigma", "both"] = setting(
            "nothing", "which scales stay at their start: a fixed prior to hold learned ones against"
        )
        from_run: str | None = from_run_setting("run whose best weights give ω and σ their start, not `init`")

    def __init__(self, model: ModelConfig, settings: Settings) -> None:
        super().__init__(model, settings)
        if model.d_model % 2:
            raise ValueError(
                f"position mope: expected an even d_model, got {model.d_model}; choose an even one"
            )
        self.settings: MorletPosition.Settings
        self.log_omega = nn.Parameter(torch.zeros(model.d_model // 2))
        self.log_sigma = nn.Parameter(torch.zeros(model.d_model // 2))
        self.log_omega.requires_grad_(settings.freeze not in ("omega", "both"))
        self.log_sigma.requires_grad_(settings.freeze not in ("sigma", "both"))

    @classmethod
    def acts_on(cls, settings: Any) -> frozenset[ActsOn]:
        return frozenset({"input"})

    def scales(self) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
        """ω in rad/token and σ in tokens, as the encoding uses them."""
        omega, sigma = self.log_omega.exp(), self.log_sigma.exp()
        return project(omega, sigma) if self.settings.admissibility == "project" else (omega, sigma)

    def encode(self, positions: Int[Tensor, " time"]) -> Float[Tensor, "time d_model"]:
        return morlet_table(positions, *self.scales())

    def learned(self) -> dict[str, Tensor]:
        """`omega` (rad/token) and `sigma` (tokens) as used, `omega_free` as learned, before any projection."""
        omega, sigma = self.scales()
        return {
            "omega": omega.detach(),
            "sigma": sigma.detach(),
            "omega_free": self.log_omega.exp().detach(),
        }

    def rate_multipliers(self) -> dict[str, float]:
        return dict.fromkeys(("log_omega", "log_sigma"), self.settings.rate_multiplier)

    def initialise(self, generator_for: GeneratorFor) -> None:
        start = STARTS[self.settings.init]
        omega, sigma = start(self.model.d_model // 2, self.model.context_length, generator_for("log_omega"))
        with torch.no_grad():
            self.log_omega.copy_(omega.log())
            self.log_sigma.copy_(sigma.log())
