"""Spearman and partial Spearman correlations along a text, with block-bootstrap intervals.

Characters next to each other are alike, so an interval that takes them for independent is far too narrow:
contiguous blocks are drawn instead (Künsch 1989; circular, Politis and Romano 1992).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from ega_mope.analysis.intervals import LEVEL

DRAWS = 200
MOST_INFLATION = 100.0
"""A feature whose variance inflation factor is above this cannot be told from the others on this text."""
NEARLY_ONE = 1 - 1e-9
RIDGE = 1e-9
"""Added to the features' correlation matrix: two equal features leave it without an inverse."""

Progress = Callable[[int, int], None]
"""Called with the draws done and the draws in all."""

Pairs = Float[np.ndarray, "feature outcome"]


@dataclass(frozen=True, kw_only=True)
class Associations:
    """Rank correlations of features with outcomes, NaN where one is constant or not to be told from the others.

    `partial` holds all other features. `rho_error` and `partial_error` are bootstrap standard errors on
    Fisher's scale, atanh ρ. `pointwise` and `simultaneous` are what they are multiplied by for a 95 % interval:
    one pair alone, or all pairs of `partial` at once (Bonferroni, over features and outcomes). Both are
    Student's, with as many degrees of freedom as there are blocks, less one.
    """

    rho: Pairs
    partial: Pairs
    rho_error: Pairs
    partial_error: Pairs
    pointwise: float
    simultaneous: float
    block: int
    draws: int

    def rho_interval(self) -> tuple[Pairs, Pairs]:
        """Lower and upper ends for `rho`, pair by pair."""
        return _around(self.rho, self.rho_error * self.pointwise)

    def partial_interval(self) -> tuple[Pairs, Pairs]:
        """Lower and upper ends for `partial`, pair by pair."""
        return _around(self.partial, self.partial_error * self.pointwise)

    def partial_at_once(self) -> tuple[Pairs, Pairs]:
        """Lower and upper ends for `partial` that hold for all pairs at once."""
        return _around(self.partial, self.partial_error * self.simultaneous)


def associate(
    features: Float[np.ndarray, "feature character"],
    outcomes: Float[np.ndarray, "outcome character"],
    *,
    draws: int = DRAWS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Associations:
    """Correlate along the text; no value may be NaN. Ranks are taken anew in every draw.

    Blocks are √n characters long, so that there are as many blocks as characters in one. Raises ValueError
    below two draws, and for fewer characters than 4 times the features.
    """
    count, characters = features.shape
    if draws < 2:
        raise ValueError(f"draws: expected at least 2, got {draws}; 200 is the default")
    if characters < 4 * (count + 1):
        raise ValueError(
            f"text: expected at least {4 * (count + 1)} characters that can be measured, got {characters}; "
            "choose a longer text"
        )
    values = [_Ranked(column) for column in (*features, *outcomes)]
    rho, partial = _correlate(values, count, np.ones(characters))
    block = max(1, round(math.sqrt(characters)))
    drawn_rho, drawn = np.empty((draws, *rho.shape)), np.empty((draws, *rho.shape))
    random = np.random.default_rng(seed)
    for number in range(draws):
        drawn_rho[number], drawn[number] = _correlate(values, count, block_counts(characters, block, random))
        if progress:
            progress(number + 1, draws)
    freedom = max(1, characters // block - 1)
    pairs = max(1, int(np.isfinite(partial).sum()))
    return Associations(
        rho=rho,
        partial=partial,
        rho_error=_spread(drawn_rho),
        partial_error=_spread(drawn),
        pointwise=float(special.stdtrit(freedom, 1 - (1 - LEVEL) / 2)),
        simultaneous=float(special.stdtrit(freedom, 1 - (1 - LEVEL) / (2 * pairs))),
        block=block,
        draws=draws,
    )


def block_counts(characters: int, block: int, random: np.random.Generator) -> Int[np.ndarray, " character"]:
    """How often each character is drawn when circular blocks are drawn until there are enough characters."""
    starts = random.integers(0, characters, -(-characters // block))
    edges = np.zeros(2 * characters + 1, np.int64)
    np.add.at(edges, starts, 1)
    np.add.at(edges, starts + block, -1)
    twice = edges[:-1].cumsum()
    return twice[:characters] + twice[characters:]


class _Ranked:
    """One column, sorted once, so that its mid-ranks under any weights cost a running sum."""

    def __init__(self, values: Float[np.ndarray, " character"]) -> None:
        _, self.group = np.unique(values, return_inverse=True)

    def ranks(self, weights: Float[np.ndarray, " character"] | Int[np.ndarray, " character"]) -> np.ndarray:
        """Mid-ranks, up to a constant, when each character counts `weights` times."""
        amount = np.bincount(self.group, weights)
        return (amount.cumsum() - amount / 2)[self.group]


def _correlate(
    values: list[_Ranked], count: int, weights: Float[np.ndarray, " n"] | Int[np.ndarray, " n"]
) -> tuple[Pairs, Pairs]:
    ranks = np.stack([column.ranks(weights) for column in values])
    total = weights.sum()
    ranks -= (ranks @ weights / total)[:, None]
    weighted = ranks * weights
    deviation = np.sqrt(np.einsum("vc,vc->v", weighted, ranks))
    constant = deviation <= 1e-9 * total
    ranks /= np.where(constant, np.inf, deviation)[:, None]
    weighted /= np.where(constant, np.inf, deviation)[:, None]
    among = weighted[:count] @ ranks[:count].T
    among[np.diag_indices(count)] = 1.0
    rho = weighted[:count] @ ranks[count:].T
    partial = partial_correlations(among, rho)
    unknown = constant[:count, None] | constant[None, count:]
    return np.where(unknown, np.nan, rho), np.where(unknown, np.nan, partial)


def partial_correlations(among: Float[np.ndarray, "feature feature"], rho: Pairs) -> Pairs:
    """Correlation of each feature with each outcome, all other features held, from plain correlations.

    With S the features' correlation matrix and b = S⁻¹ρ the coefficients, b_k/√(b_k² + (1 − R²)·(S⁻¹)_kk).
    NaN for a feature whose variance inflation (S⁻¹)_kk is above MOST_INFLATION.
    """
    inverse = np.linalg.inv(among + RIDGE * np.eye(len(among)))
    coefficient = inverse @ rho
    left = np.maximum(1.0 - (coefficient * rho).sum(axis=0), 1.0 - NEARLY_ONE)
    inflation = np.diag(inverse)[:, None]
    partial = coefficient / np.sqrt(coefficient**2 + left * inflation)
    return np.where(inflation > MOST_INFLATION, np.nan, partial)


def _fisher(rho: np.ndarray) -> np.ndarray:
    return np.arctanh(np.clip(rho, -NEARLY_ONE, NEARLY_ONE))


def _around(rho: Pairs, reach: Pairs) -> tuple[Pairs, Pairs]:
    centre = _fisher(rho)
    return np.tanh(centre - reach), np.tanh(centre + reach)


def _spread(drawn: Float[np.ndarray, "draw feature outcome"]) -> Pairs:
    """Standard deviation over the draws on Fisher's scale; NaN with fewer than half of them known."""
    known = np.isfinite(drawn)
    count = known.sum(axis=0)
    z = np.where(known, _fisher(np.where(known, drawn, 0.0)), 0.0)
    some = np.maximum(count, 2)
    mean = z.sum(axis=0) / some
    square = (np.where(known, z - mean, 0.0) ** 2).sum(axis=0) / (some - 1)
    return np.where(2 * count >= len(drawn), np.sqrt(square), np.nan)
