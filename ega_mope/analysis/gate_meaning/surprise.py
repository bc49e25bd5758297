"""Gate and surprisal of a text side by side, on the one scale they share: the rank within this text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import stats

from ega_mope.analysis.gate_meaning.surprisal import surprisal
from ega_mope.analysis.gates import GateReading, PerCharacter, gates
from ega_mope.model import CharLM
from ega_mope.text import Tokenizer


@dataclass(frozen=True, kw_only=True)
class SurpriseReading(GateReading):
    """A reading of gates with each character's surprisal in nats, NaN where unknown.

    A gate is between 0 and 1 and surprisal is in nats, so they are compared by rank: the share of the text's
    characters below, those equal counted half, over the characters that have both. Arrays are [layer, head,
    character]; surprisal is the same in every head. `difference` is gate rank − surprisal rank, −1 to 1.
    """

    surprisal: Float[np.ndarray, " character"]

    @cached_property
    def gate_rank(self) -> PerCharacter:
        """Rank of each gate in its head."""
        return _ranks(np.where(np.isfinite(self.surprisal), self.gate.astype(np.float64), np.nan))

    @cached_property
    def surprisal_rank(self) -> PerCharacter:
        """Rank of the surprisal."""
        rank = _ranks(np.where(np.isfinite(self.gate[0, 0]), self.surprisal, np.nan))
        return np.broadcast_to(rank, self.gate.shape)

    @cached_property
    def difference(self) -> PerCharacter:
        """Above 0 the gate is wider open than the character is surprising, below 0 the other way round."""
        return self.gate_rank - self.surprisal_rank

    def surprise_table(self, layer: int, head: int) -> pd.DataFrame:
        """One head's row a character; layer and head from 0, written from 1."""
        return pd.DataFrame(
            {
                "position": np.arange(len(self.characters)),
                "text": list(self.characters),
                "layer": layer + 1,
                "head": head + 1,
                "gate": self.gate[layer, head],
                "surprisal (nats)": self.surprisal,
                "gate rank": self.gate_rank[layer, head],
                "surprisal rank": self.surprisal_rank[layer, head],
                "difference": self.difference[layer, head],
            }
        )


def surprise(model: CharLM, text: str, tokenizer: Tokenizer) -> SurpriseReading:
    """Gates and surprisal of `text`; raises ValueError as `gates` does."""
    return beside_surprisal(model, gates(model, text, tokenizer=tokenizer))


def beside_surprisal(model: CharLM, reading: GateReading) -> SurpriseReading:
    """A reading of gates by this model with the model's own surprisal beside it."""
    fields = {field.name: getattr(reading, field.name) for field in dataclasses.fields(GateReading)}
    return SurpriseReading(**fields, surprisal=surprisal(model, reading.reading))


def _ranks(values: Float[np.ndarray, "*heads character"]) -> Float[np.ndarray, "*heads character"]:
    """(mid-rank − ½)/n along the characters, NaN left out."""
    known = np.isfinite(values).all(axis=tuple(range(values.ndim - 1)))
    ranks = np.full(values.shape, np.nan)
    if known.any():
        ranks[..., known] = (stats.rankdata(values[..., known], axis=-1) - 0.5) / known.sum()
    return ranks
