"""The paper's signal: one learned projection a head (arXiv 2605.26355, section 2.1)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ega_mope.config import ModelConfig
from ega_mope.gate_signals.base import GateSignal


class LinearSignal(GateSignal):
    """e_j = w·x_j, one w of d_model channels a head.

    The published script has a bias on it as well, which the z-normalisation cancels; there is none here.
    """

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        self.weight = nn.Parameter(torch.empty(model.n_heads, model.d_model))

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
    ) -> Float[Tensor, "batch head time"]:
        return nn.functional.linear(x, self.weight).transpose(1, 2)
