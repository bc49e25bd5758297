"""Energy in a bank of causal Morlet filters as the gate's signal (arXiv 2605.26355, structured priors)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from ega_mope.config import ModelConfig
from ega_mope.gate_signals.base import GateSignal
from ega_mope.gate_signals.filters import FILTER_LENGTHS, bank_scales, channel_mean, morlet_bank


class MorletSignal(GateSignal):
    """e_j = mean over scales of |Σ_ℓ ψ_n(ℓ) s_{j−ℓ}|², ψ_n fixed Morlet filters of n = 3, 7, 15, 31 taps.

    No parameters. s is the channel mean of the residual stream before the LayerNorm; ω = π/n, σ = 5/ω,
    each filter of unit energy. Cut to n taps the wavelets span about half a period, so that they pass
    slow signals too. One signal for all heads: thresholds and sharpness make them differ.
    Limit: one impulse in a silent text gives |ψ(ℓ)|² ℓ tokens later.
    """

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        omega, sigma = bank_scales()
        self.register_buffer("omega", omega, persistent=False)
        self.register_buffer("sigma", sigma, persistent=False)
        self.omega: Tensor
        self.sigma: Tensor

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
    ) -> Float[Tensor, "batch head time"]:
        real, imaginary = morlet_bank(channel_mean(stream), self.omega, self.sigma)
        energy = (real.square() + imaginary.square()).mean(dim=-2)
        return energy[:, None].expand(-1, self.model.n_heads, -1)


class ParametricMorletSignal(GateSignal):
    """As `morlet`, with ω and σ learned: 8 parameters a head, four ω and four σ, kept as logarithms.

    Filter lengths stay 3, 7, 15 and 31 taps. ω starts at π/n and σ at 5/ω in every head.
    Limit: at the start it is `morlet`.
    """

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        omega, sigma = bank_scales()
        # One-dimensional, so that weight decay on matrices leaves them alone.
        self.log_omega = nn.Parameter(omega.log().float().repeat(model.n_heads))
        self.log_sigma = nn.Parameter(sigma.log().float().repeat(model.n_heads))

    def scales(self) -> tuple[Float[Tensor, "head scale"], Float[Tensor, "head scale"]]:
        """ω in rad/token and σ in tokens."""
        shape = (self.model.n_heads, len(FILTER_LENGTHS))
        return self.log_omega.exp().view(shape), self.log_sigma.exp().view(shape)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
    ) -> Float[Tensor, "batch head time"]:
        real, imaginary = morlet_bank(channel_mean(stream), *self.scales())
        return (real.square() + imaginary.square()).mean(dim=-2)

    def learned(self) -> dict[str, Tensor]:
        """`filter_omega` (rad/token) and `filter_sigma` (tokens), [head, scale]."""
        omega, sigma = self.scales()
        return {"filter_omega": omega.detach(), "filter_sigma": sigma.detach()}
