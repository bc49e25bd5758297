"""Convolutional attention: scores at lags other than zero (arXiv 2605.26355, ablations)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ega_mope.attention.base import ScoreBias
from ega_mope.attention.dot import DotAttention
from ega_mope.attention.past import Past
from ega_mope.attention.trace import Trace
from ega_mope.config import ModelConfig, setting
from ega_mope.positions.base import GeneratorFor

FIRST_LOGIT = 4.0
"""The logit of lag 0 at the start, the others at 0: 93 % of the weight with 4 lags, 87 % with 8."""


def lagged_keys(
    k: Float[Tensor, "batch head time d_head"], weight: Float[Tensor, "head lag"]
) -> Float[Tensor, "batch head time d_head"]:
    """k̃_j = Σ_ℓ w_ℓ k_{j−ℓ}, terms with j − ℓ < 0 dropped: a causal filter of the keys along time."""
    time, w = k.shape[-2], weight.to(k.dtype)[:, :, None, None]
    filtered = w[:, 0] * k
    for lag in range(1, min(weight.shape[-1], time)):
        shifted = w[:, lag] * k[..., : time - lag, :]
        filtered = filtered + nn.functional.pad(shifted, (0, 0, lag, 0))
    return filtered


class ConvolutionalAttention(DotAttention):
    """score_ij = Σ_ℓ w_ℓ · q_i·k_{j−ℓ}/√d_head, ℓ = 0 … `lags`, j ≤ i, w = softmax of learned logits.

    Computed exactly, and in linear memory, as q_i·k̃_j with the filtered keys k̃_j = Σ_ℓ w_ℓ k_{j−ℓ}. Rotary
    positions turn each key by its own place before the filter. A head has lags + 1 parameters more than
    dot-product attention.
    Departures from the published script: there w gets no gradient (it is read out as Python numbers), and
    the shifted blocks land back on the lag-0 scores; here every lag counts, w is learned, one for each
    head, and starts near lag 0. Only lags into the past: k_{j+ℓ} with j + ℓ > i would leak.
    Limit: w = (1, 0, …) is dot-product attention.
    """

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Settings of convolutional attention."""

        lags: int = setting(
            4, "largest lag, in tokens; the paper tried 4 and 8; 0 is dot product", minimum=0, maximum=64
        )

    def __init__(self, model: ModelConfig, settings: Settings) -> None:
        super().__init__(model, settings)
        self.settings: ConvolutionalAttention.Settings
        # One-dimensional, so that weight decay on matrices leaves it alone.
        self.lag_logit = nn.Parameter(torch.zeros(model.n_heads * (settings.lags + 1)))

    def initialise(self, generator_for: GeneratorFor) -> None:
        with torch.no_grad():
            self.lag_logit.zero_()
            self.lag_logit.view(self.model.n_heads, -1)[:, 0] = FIRST_LOGIT

    def lag_weight(self) -> Float[Tensor, "head lag"]:
        """w of each head, in float32 or better; a head's weights sum to 1."""
        return self.lag_logit.view(self.model.n_heads, -1).softmax(dim=-1)

    def learned(self) -> dict[str, Tensor]:
        """`lag_weight`: the share of each lag, [head, lag], without unit; a head's shares sum to 1."""
        return {"lag_weight": self.lag_weight().detach()}

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: ScoreBias | None, x: Tensor, stream: Tensor, trace: Trace
    ) -> Tensor:
        return super().attend(q, lagged_keys(k, self.lag_weight()), v, bias, x, stream, trace)

    def attend_next(
        self, q: Tensor, keys: Tensor, v: Tensor, bias: Tensor | None, x: Tensor, stream: Tensor, past: Past
    ) -> Tensor:
        return super().attend_next(q, lagged_keys(keys, self.lag_weight()), v, bias, x, stream, past)
