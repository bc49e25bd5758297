"""Phases of the filter bank as gate signals (arXiv 2605.26355, ablations: phase coherence)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ega_mope.config import ModelConfig
from ega_mope.gate_signals.base import GateSignal
from ega_mope.gate_signals.filters import bank_scales, channel_mean, morlet_bank, unit_phasors


class _PhaseSignal(GateSignal):
    """Holds the fixed filter bank; the same signal for every head."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        omega, sigma = bank_scales()
        self.register_buffer("omega", omega, persistent=False)
        self.register_buffer("sigma", sigma, persistent=False)
        self.omega: Tensor
        self.sigma: Tensor

    def phasors(self, stream: Tensor) -> tuple[Tensor, Tensor]:
        """cos φ and sin φ, each [batch, scale, time]."""
        return unit_phasors(*morlet_bank(channel_mean(stream), self.omega, self.sigma))

    def for_every_head(self, signal: Float[Tensor, "batch time"]) -> Float[Tensor, "batch head time"]:
        """The one signal, once a head: thresholds and sharpness make the heads differ."""
        return signal[:, None].expand(-1, self.model.n_heads, -1)


class PhaseSignal(_PhaseSignal):
    """e_j = mean over scales of cos φ_n(j), φ_n the phase of the causal Morlet filter of n taps.

    No parameters. The filters run over the channel mean of the residual stream before the LayerNorm.
    Limit: a constant text has phase 0, and e_j = 1 once the longest filter is filled.
    """

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
    ) -> Float[Tensor, "batch head time"]:
        cos, _ = self.phasors(stream)
        return self.for_every_head(cos.mean(dim=1))


class PhaseCoherenceSignal(_PhaseSignal):
    """e_j = |mean over scales of exp(iφ_n(j))|: 1 where all scales are in phase, near 0 where they disagree.

    No parameters. The filters run over the channel mean of the residual stream before the LayerNorm.
    Limit: a constant text is coherent, e_j = 1 once the longest filter is filled.
    """

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
    ) -> Float[Tensor, "batch head time"]:
        cos, sin = self.phasors(stream)
        power = cos.mean(dim=1).square() + sin.mean(dim=1).square()
        cancelled = power <= torch.finfo(power.dtype).tiny
        return self.for_every_head(torch.where(cancelled, 0.0, torch.where(cancelled, 1.0, power).sqrt()))
