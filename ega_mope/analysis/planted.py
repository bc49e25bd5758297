"""Held against the planted text, whose answers are known: do gates find its markers, scales its distances?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import rankdata

DRAWS = 1000


@dataclass(frozen=True)
class MarkerAuc:
    """How well each head's gate tells marked tokens from others.

    `auc` [layer, head] is the chance that a marked token has the larger gate than another (a half: no
    better than a coin; ties count a half), `p` [layer, head] the share of shuffled labels that do as well, `best`
    the head with the highest AUC (layer, head, from 0), `best_p` that share for the best of all heads at once:
    how often shuffled labels give any head as high an AUC.
    """

    auc: Float[np.ndarray, "layer head"]
    p: Float[np.ndarray, "layer head"]
    best: tuple[int, int]
    best_p: float

    @property
    def best_auc(self) -> float:
        return float(self.auc[self.best])


def marker_auc(
    gate: Float[np.ndarray, "layer head token"],
    marker: Bool[np.ndarray, " token"],
    draws: int = DRAWS,
    seed: int = 0,
) -> MarkerAuc:
    """Area under the ROC curve of each head's gate against the marker label, tested by `draws` shuffles of it.

    By ranks (Mann and Whitney); the observed labels count as one of the draws, so no p is below
    1/(draws + 1). Raises ValueError where no token is marked, or all are.
    """
    shuffled = np.random.default_rng(seed).permuted(np.tile(marker, (draws, 1)), axis=1)
    areas = _areas(gate, np.vstack([marker, shuffled]))
    reached = areas >= areas[0] - 1e-12
    auc = areas[0].reshape(gate.shape[:2])
    layer, head = np.unravel_index(int(auc.argmax()), auc.shape)
    best_p = float((areas.max(axis=1) >= areas[0].max() - 1e-12).mean())
    return MarkerAuc(auc, reached.mean(axis=0).reshape(auc.shape), (int(layer), int(head)), best_p)


def best_auc(gate: Float[np.ndarray, "layer head token"], marker: Bool[np.ndarray, " token"]) -> float:
    """The highest `auc` of `marker_auc`, without its test."""
    return float(_areas(gate, marker[None]).max())


def _areas(
    gate: Float[np.ndarray, "layer head token"], labels: Bool[np.ndarray, "draw token"]
) -> Float[np.ndarray, "draw layer*head"]:
    """Area under the ROC curve of each head's gate against each row of labels, which mark equally many tokens."""
    count, marked = labels.shape[1], int(labels[0].sum())
    if not 0 < marked < count:
        raise ValueError(
            f"marker: expected some of {count} tokens marked and some not, got {marked} marked; take a longer text"
        )
    ranks = rankdata(gate.reshape(-1, count), axis=-1)
    sums = labels.astype(float) @ ranks.T
    return (sums - marked * (marked + 1) / 2) / (marked * (count - marked))


def nearest_scale(
    sigma: Float[np.ndarray, "*draws pair"], distances: Sequence[int | float]
) -> Float[np.ndarray, "*draws"]:
    """Median over the distances D of |log(σ/D)| of the nearest σ: 0 where every distance has a σ of its own."""
    apart = np.abs(np.log(sigma[..., None]) - np.log(np.asarray(distances, dtype=float)))
    return np.asarray(np.median(apart.min(axis=-2), axis=-1))


@dataclass(frozen=True)
class ScaleFit:
    """How near σ come to given distances: `found` as `nearest_scale`, `by_chance` its median over draws of as many
    σ from the start's distribution, `p` the share of draws that come as near."""

    found: float
    by_chance: float
    p: float


def scale_fit(
    sigma: Float[np.ndarray, " pair"],
    distances: Sequence[int | float],
    start: tuple[float, float],
    draws: int = DRAWS,
    seed: int = 0,
) -> ScaleFit:
    """Held against `draws` sets of as many σ, log-uniform between the bounds of `start`, in tokens."""
    low, high = np.log(start)
    drawn = np.exp(np.random.default_rng(seed).uniform(low, high, (draws, len(sigma))))
    found, chance = float(nearest_scale(sigma, distances)), nearest_scale(drawn, distances)
    p = (1 + int((chance <= found + 1e-12).sum())) / (draws + 1)
    return ScaleFit(found, float(np.median(chance)), p)


def out_of_reach(largest_start: float, most_log_move: float, distances: Sequence[int]) -> tuple[int, ...]:
    """The distances that no σ can have come to: above the largest start times exp(the most it can move)."""
    return tuple(distance for distance in distances if distance > largest_start * math.exp(most_log_move))
