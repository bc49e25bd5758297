"""Dot-product attention whose heads start at different scales (arXiv 2605.26355, ablations)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ega_mope.attention.dot import DotAttention
from ega_mope.config import ModelConfig, setting
from ega_mope.positions.base import GeneratorFor

LEVELS = 4
"""Scales: head h starts at level h mod 4."""

HeadWeights = Float[Tensor, "two head d_head d_model"]


def louder_by_level(weights: HeadWeights) -> HeadWeights:
    """The published script's start: W_q and W_k of head h with standard deviation 0.02·(1 + level/4)."""
    level = torch.arange(weights.shape[1], device=weights.device) % LEVELS
    return weights * (1 + level / LEVELS).to(weights.dtype)[:, None, None]


def within_band(weights: HeadWeights) -> HeadWeights:
    """What the paper's text says: W_q and W_k of head h read only the position pairs of band h mod 4.

    Pair i is the channels 2i and 2i + 1, where sinusoidal and Morlet positions carry ω_i. Both order the
    pairs by ω, spaced evenly in log ω, so that the bands are quarters of the pairs.
    """
    pairs = weights.shape[-1] // 2
    band = torch.arange(weights.shape[-1], device=weights.device) // 2 * LEVELS // pairs
    level = torch.arange(weights.shape[1], device=weights.device) % LEVELS
    return weights * (band == level[:, None])[:, None]


STARTS: dict[str, Callable[[Tensor], Tensor]] = {"script": louder_by_level, "frequency": within_band}


class ScaleInitialisedAttention(DotAttention):
    """Dot-product attention, of the baseline's function class: only W_q and W_k start otherwise.

    `script`, what the published script does: head h at level h mod 4, standard deviation 0.02·(1 + level/4).
    `frequency`, what the text says: head h starts on the position pairs whose ω lies in band h mod 4, band 0
    being the first quarter of the pairs (sinusoidal: the fastest; Morlet from the paper's start: the slowest).
    The text does not give the bands' borders; quarters in log ω are the lab's. No parameter is added, and
    where a start leaves a weight alone it is the baseline's at the same seed.
    Limit: with one head, `script` is the baseline.
    """

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Settings of scale-initialised heads."""

        start: Literal["script", "frequency"] = setting(
            "script", "script: louder heads, as published; frequency: heads on bands of ω, as the text says"
        )

    def __init__(self, model: ModelConfig, settings: Settings) -> None:
        super().__init__(model, settings)
        if settings.start == "frequency" and (model.d_model % 2 or model.d_model < 2 * LEVELS):
            raise ValueError(
                f"attention scale_heads: expected an even d_model of at least {2 * LEVELS} for start=frequency, "
                f"got {model.d_model}; choose a larger one, or start=script"
            )
        self.settings: ScaleInitialisedAttention.Settings

    def initialise(self, generator_for: GeneratorFor) -> None:
        heads = (3, self.model.n_heads, self.model.d_head, self.model.d_model)
        with torch.no_grad():
            query_key = self.qkv.weight.view(heads)[:2]
            query_key.copy_(STARTS[self.settings.start](query_key))
