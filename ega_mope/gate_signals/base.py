"""What a gate can listen to; a new signal is a file beside this and one line in the registry."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from ega_mope.config import ModelConfig


class GateSignal(nn.Module):
    """Turns the key tokens into one energy a head and token, from tokens up to that one only."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
    ) -> Float[Tensor, "batch head time"]:
        """Energy from `x`, what enters the attention after its LayerNorm, and `stream`, the same before it."""
        raise NotImplementedError

    def learned(self) -> dict[str, Tensor]:
        """The learned scalars by name, detached; units in the subclass."""
        return {}
