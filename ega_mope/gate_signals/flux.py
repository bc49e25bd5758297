"""How fast the energy changes (arXiv 2605.26355, ablations: spectral flux)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ega_mope.gate_signals.linear import LinearSignal


def flux(energy: Float[Tensor, "batch head time"]) -> Float[Tensor, "batch head time"]:
    """F_j = |E_j − E_{j−1}|, F_0 = 0."""
    first = torch.zeros_like(energy[..., :1])
    return torch.cat([first, energy.diff(dim=-1).abs()], dim=-1)


class FluxSignal(LinearSignal):
    """F_j = |E_j − E_{j−1}| of the learned energy E_j = w·x_j, F_0 = 0.

    d_model parameters a head, w, as the linear signal has. It looks one token back.
    Limit: where the energy rises steadily, the flux is its slope.
    """

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
    ) -> Float[Tensor, "batch head time"]:
        return flux(super().forward(x, stream))
