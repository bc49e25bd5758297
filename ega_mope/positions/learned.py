"""A learned vector for each position: the paper's baseline, as in GPT-2."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from ega_mope.config import ModelConfig
from ega_mope.positions.base import ActsOn, Position


class LearnedPosition(Position):
    """p(b) = row b of a table [context_length, d_model], N(0, 0.02) at the start.

    Knows no position beyond the context length it was trained at.
    """

    def __init__(self, model: ModelConfig, settings: Any) -> None:
        super().__init__(model, settings)
        self.table = nn.Embedding(model.context_length, model.d_model)

    @classmethod
    def acts_on(cls, settings: Any) -> frozenset[ActsOn]:
        return frozenset({"input"})

    def longest(self) -> int | None:
        return self.model.context_length

    def encode(self, positions: Int[Tensor, " time"]) -> Float[Tensor, "time d_model"]:
        return self.table(positions)
