"""A reading of gates as tables: by head, character, word and line, and what is kept above a gate."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import regex
from jaxtyping import Float
from numpy.typing import NDArray

from ega_mope.analysis.gates import GateReading

WORD = regex.compile(r"[\p{L}\p{N}\p{M}_]+(?:['’\-][\p{L}\p{N}\p{M}_]+)*")
"""Letters, digits and marks, with apostrophes and hyphens inside."""


@dataclass(frozen=True)
class Kept:
    """How many of the characters that the model reads have a gate above a bound."""

    kept: int
    read: int

    def __str__(self) -> str:
        if not self.read:
            return "no character is read by this run"
        share = 100 * self.kept / self.read
        return f"{self.kept:,} of {self.read:,} characters kept ({share:.1f} %)"


def kept_above(gate: Float[np.ndarray, " character"], bound: float) -> Kept:
    """How many gates are above `bound`, among those that are not NaN (unknown characters)."""
    return Kept(int((gate > bound).sum()), int((~np.isnan(gate)).sum()))


def heads_table(reading: GateReading, bound: float = 0.0) -> pd.DataFrame:
    """One row a head: mean, spread (sd), least and largest gate, share kept above `bound`, θ and α.

    Layers and heads count from 1. Numbers are over the characters that the model reads, the spread
    over those with enough others to compare with; NaN where there are none.
    """
    spread = reading.spread()
    rows = []
    for layer, head in np.ndindex(*reading.gate.shape[:2]):
        gate = reading.gate[layer, head][reading.known].astype(np.float64)
        kept = kept_above(gate, bound)
        some = gate if len(gate) else np.array([np.nan])
        rows.append(
            {
                "layer": layer + 1,
                "head": head + 1,
                "spread": spread[layer, head],
                "mean gate": some.mean(),
                "least": some.min(),
                "largest": some.max(),
                f"kept above {bound:g} (%)": 100 * kept.kept / kept.read if kept.read else np.nan,
                "threshold θ (sd)": reading.threshold[layer, head],
                "sharpness α (1/sd)": reading.sharpness[layer, head],
            }
        )
    return pd.DataFrame(rows)


def characters_table(reading: GateReading, heads: Iterable[tuple[int, int]]) -> pd.DataFrame:
    """One row a character and head, heads given from 0, written from 1; empty where there is no value."""
    shared = {
        "position": np.arange(len(reading.characters)),
        "text": list(reading.characters),
        "code_point": [f"U+{ord(character):04X}" for character in reading.characters],
        "read_as": list(reading.read_as),
        "known": reading.known,
        "seen": reading.seen,
        "few_to_compare_with": reading.few,
    }
    none = np.full(len(reading.characters), np.nan)
    change = reading.weight_change
    parts = [
        pd.DataFrame(
            {
                **shared,
                "layer": layer + 1,
                "head": head + 1,
                "gate": reading.gate[layer, head],
                "z": reading.z[layer, head],
                "weight_change": none if change is None else change[layer, head],
            }
        )
        for layer, head in heads
    ]
    return pd.concat(parts, ignore_index=True)


def across_heads(reading: GateReading, position: int) -> pd.DataFrame:
    """Every head's gate, z and weight change for one character; layers and heads count from 1."""
    change = reading.weight_change
    rows = [
        {
            "layer": layer + 1,
            "head": head + 1,
            "gate": reading.gate[layer, head, position],
            "z (sd)": reading.z[layer, head, position],
            "weight change (×)": np.nan if change is None else change[layer, head, position],
        }
        for layer, head in np.ndindex(*reading.gate.shape[:2])
    ]
    return pd.DataFrame(rows)


def word_averages(reading: GateReading, layer: int, head: int) -> pd.DataFrame:
    """Each distinct word with its count, mean gate and mean weight change in one head, most open first.

    Means are over all characters of all its occurrences that the model reads; words with none are left out.
    """
    places: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    for found in WORD.finditer(reading.characters):
        places.setdefault(found[0], []).extend(range(*found.span()))
        counts[found[0]] = counts.get(found[0], 0) + 1
    rows = [
        {"word": word, "count": counts[word], **_means(reading, layer, head, np.array(positions))}
        for word, positions in places.items()
    ]
    table = pd.DataFrame(rows, columns=["word", "count", "mean gate", "mean weight change"])
    table = table.dropna(subset="mean gate").sort_values("mean gate", ascending=False, kind="stable")
    return table.reset_index(drop=True)


def line_averages(reading: GateReading, layer: int, head: int) -> pd.DataFrame:
    """Each line that is not blank, in order, with its mean gate and mean weight change in one head."""
    rows, start = [], 0
    for number, line in enumerate(reading.characters.split("\n"), start=1):
        if line.strip():
            means = _means(reading, layer, head, np.arange(start, start + len(line)))
            rows.append({"line": number, "text": line, **means})
        start += len(line) + 1
    return pd.DataFrame(rows, columns=["line", "text", "mean gate", "mean weight change"])


def unknown_table(reading: GateReading) -> pd.DataFrame:
    """The characters that the model is fed nothing for, the most frequent first."""
    rows = [
        {
            "character": text,
            "code point": f"U+{ord(text):04X}",
            "name": unicodedata.name(text, "no name"),
            "count": count,
        }
        for text, count in reading.reading.unknown()
    ]
    return pd.DataFrame(rows, columns=["character", "code point", "name", "count"])


def profile(values: Float[np.ndarray, "*heads character"], bins: int) -> Float[np.ndarray, "*heads bin"]:
    """Means over at most `bins` equal stretches of the text, NaN left out; NaN for a stretch of nothing."""
    characters = values.shape[-1]
    edges = np.unique(np.linspace(0, characters, min(bins, characters) + 1).astype(int))[:-1]
    known = ~np.isnan(values)
    sums = np.add.reduceat(np.where(known, values, 0.0).astype(np.float64), edges, axis=-1)
    counts = np.add.reduceat(known.astype(np.int64), edges, axis=-1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _means(reading: GateReading, layer: int, head: int, places: NDArray[np.int64]) -> dict[str, Any]:
    change = reading.weight_change
    return {
        "mean gate": _mean(reading.gate[layer, head, places]),
        "mean weight change": np.nan if change is None else _mean(change[layer, head, places]),
    }


def _mean(values: NDArray[Any]) -> float:
    there = values[~np.isnan(values)]
    return float(there.mean(dtype=np.float64)) if len(there) else float("nan")
