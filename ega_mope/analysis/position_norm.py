"""What does position still say at token b? The norm of what is added to the embeddings, by position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from ega_mope.analysis.scales import Scales
from ega_mope.model import CharLM
from ega_mope.positions.mope import morlet_table

if TYPE_CHECKING:
    import pandas as pd

CARRIES = 0.01
"""A position is carried where the norm is above this share of its value at position 0."""


@dataclass(frozen=True)
class PositionNorm:
    """‖p(b)‖ for b = 0 … context length − 1, the Euclidean norm over the channels."""

    norm: Float[np.ndarray, " time"]

    @property
    def carried(self) -> int:
        """At how many positions the norm is above CARRIES of its value at 0."""
        return int((self.norm > CARRIES * self.norm[0]).sum())

    @property
    def share(self) -> float:
        """The share of the context that carries any position."""
        return self.carried / len(self.norm)

    @property
    def in_words(self) -> str:
        """The share as a sentence."""
        return (
            f"Position is carried at {self.carried} of {len(self.norm)} positions ({self.share:.0%} of the context): "
            f"there the norm is above {CARRIES:.0%} of its value at 0."
        )

    def table(self) -> pd.DataFrame:
        """One row a position."""
        import pandas as pd

        relative = self.norm / self.norm[0] if self.norm[0] else np.full(len(self.norm), math.nan)
        return pd.DataFrame(
            {"position": range(len(self.norm)), "norm": self.norm, "of its value at 0": relative}
        )


def morlet_norm(found: Scales, context_length: int) -> PositionNorm:
    """The norm of the Morlet encoding with these scales: √Σ_i exp(−b²/σ_i²), whatever the ω."""
    omega, sigma = torch.from_numpy(found.omega), torch.from_numpy(found.sigma)
    return _norm(morlet_table(torch.arange(context_length), omega, sigma))


def position_norm(model: CharLM) -> PositionNorm:
    """The norm of any encoding that is added to the embeddings: Morlet, learned, sinusoidal.

    Raises ValueError for one that acts elsewhere: it has no norm by position.
    """
    position = model.position
    acts_on = position.acts_on(position.settings)
    if "input" not in acts_on:
        name = model.config.position["name"]
        where = " and ".join(sorted(acts_on)) or "nothing"
        raise ValueError(
            f"position norm: expected a position that is added to the embeddings, got {name}, which acts on {where}; "
            "choose a run with one among (mope, learned, sinusoidal)"
        )
    with torch.inference_mode():
        device = model.token_embedding.weight.device
        return _norm(position.encode(torch.arange(model.config.context_length, device=device)))


def embedding_norm(model: CharLM) -> float:
    """The mean norm of a token's embedding: what the norm of a position competes with."""
    return float(model.token_embedding.weight.detach().norm(dim=-1).mean())


def _norm(encoding: Float[torch.Tensor, "time d_model"]) -> PositionNorm:
    return PositionNorm(encoding.double().norm(dim=-1).cpu().numpy())
