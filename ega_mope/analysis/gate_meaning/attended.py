"""What one character attends to, without the gate and with it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from ega_mope.analysis.gates import GateReading, PerCharacter
from ega_mope.analysis.windows import windows_over
from ega_mope.model import CharLM
from ega_mope.text import Reading


@dataclass(frozen=True, kw_only=True)
class AttendedReading(GateReading):
    """A reading of gates with what the character at `query` attends to: characters `first` to `query`.

    `weight` is softmax attention before the gate, `share` what is used after it (both sum to 1 over the
    characters where gates are renormalised), `gating` = share/weight; NaN outside the characters it may see.
    """

    query: int
    first: int
    weight: PerCharacter
    share: PerCharacter

    @property
    def gating(self) -> PerCharacter:
        """What the gate does to each character's part for this query, ×; NaN where it had none before."""
        return np.where(self.weight > 0, self.share / np.where(self.weight > 0, self.weight, 1.0), np.nan)

    def table(self, layer: int, head: int) -> pd.DataFrame:
        """A row a character that the query may see in one head (from 0), the most attended to first."""
        places = np.flatnonzero(np.isfinite(self.weight[layer, head]))
        rows = pd.DataFrame(
            {
                "position": places,
                "text": [self.characters[place] for place in places],
                "without the gate": self.weight[layer, head, places],
                "with the gate": self.share[layer, head, places],
                "change (×)": self.gating[layer, head, places],
            }
        )
        return rows.sort_values("with the gate", ascending=False, kind="stable", ignore_index=True)


def attended(model: CharLM, reading: GateReading, query: int) -> AttendedReading:
    """What the character at position `query` of a reading by this model attends to, in every head.

    In the window where the character has most past. A query of several tokens is its last one, which has read
    all of it; a key has the sum over its tokens. Raises ValueError for a position without a character that is read.
    """
    text = reading.reading
    owned = np.flatnonzero(text.owner == query)
    if not len(owned):
        raise ValueError(
            f"position: expected that of a character this run reads, 0 to {len(text.characters) - 1}, got {query}; "
            "choose another"
        )
    token = int(owned[-1])
    window = next(
        w for w in windows_over(len(text.ids), model.config.context_length) if w.first <= token < w.stop
    )
    ids = torch.from_numpy(text.ids[None, window.start : window.stop])
    with torch.inference_mode():
        _, trace = model.trace(ids.to(next(model.parameters()).device), ("weight", "share"))
    keys = slice(window.start, token + 1)
    rows = {
        kind: trace[kind][0, :, :, token - window.start, : token + 1 - window.start].double().cpu().numpy()
        for kind in ("weight", "share")
    }
    fields = {field.name: getattr(reading, field.name) for field in dataclasses.fields(GateReading)}
    return AttendedReading(
        **fields,
        query=query,
        first=int(text.owner[window.start]),
        weight=_by_character(rows["weight"], text, keys),
        share=_by_character(rows["share"], text, keys),
    )


def _by_character(row: Float[np.ndarray, "layer head key"], text: Reading, keys: slice) -> PerCharacter:
    owner = text.owner[keys]
    found = np.full((*row.shape[:2], len(text.characters)), np.nan)
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    found[..., owner[begins]] = np.add.reduceat(row, begins, axis=-1)
    return found
