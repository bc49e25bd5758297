"""Energy in a Daubechies wavelet filter as the gate's signal (arXiv 2605.26355, structured priors)."""

from __future__ import annotations

from typing import ClassVar

import pywt
import torch
from jaxtyping import Float
from torch import Tensor

from ega_mope.config import ModelConfig
from ega_mope.gate_signals.base import GateSignal
from ega_mope.gate_signals.filters import causal_filter, channel_mean


class _DaubechiesSignal(GateSignal):
    """e_j = (Σ_ℓ h_ℓ s_{j−ℓ})², h the wavelet's high-pass decomposition taps, at every token.

    s is the channel mean of the residual stream before the LayerNorm. Departure from a discrete wavelet
    transform: no second token is dropped; at odd positions the filtered signal is the transform's.
    """

    wavelet: ClassVar[str]

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        taps = torch.tensor(pywt.Wavelet(self.wavelet).dec_hi, dtype=torch.float64)
        self.register_buffer("taps", taps, persistent=False)
        self.taps: Tensor

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
    ) -> Float[Tensor, "batch head time"]:
        detail = causal_filter(channel_mean(stream), self.taps[None])
        return detail.square().expand(-1, self.model.n_heads, -1)


class Daubechies2Signal(_DaubechiesSignal):
    """Energy of the Daubechies-2 filter: 4 taps, two vanishing moments; no parameters.

    Limit: where s is a straight line over 4 tokens, e_j = 0.
    """

    wavelet = "db2"


class Daubechies4Signal(_DaubechiesSignal):
    """Energy of the Daubechies-4 filter: 8 taps, four vanishing moments; no parameters.

    Limit: where s is a cubic over 8 tokens, e_j = 0.
    """

    wavelet = "db4"
