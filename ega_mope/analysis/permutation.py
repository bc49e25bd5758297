"""Do two clouds of points come from one distribution? Energy distance with a permutation test."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

One = Float[np.ndarray, "point axis"]
Other = Float[np.ndarray, "other_point axis"]


def energy_distance(first: One, second: Other) -> float:
    """2 E|X − Y| − E|X − X'| − E|Y − Y'| of two samples, in the unit of their axes (Székely and Rizzo 2004).

    0 for two equal samples, never below.
    """
    apart = _distances(np.concatenate([first, second]))
    mask = np.arange(len(apart)) < len(first)
    return float(_energy(apart, mask[None])[0])


def permutation_p(first: One, second: Other, draws: int = 999, seed: int = 0) -> float:
    """Share of random regroupings of all points (the observed one counted) with at least this energy distance."""
    apart = _distances(np.concatenate([first, second]))
    observed = np.arange(len(apart)) < len(first)
    rng = np.random.default_rng(seed)
    masks = rng.permuted(np.tile(observed, (draws, 1)), axis=1)
    found = _energy(apart, np.vstack([observed, masks]))
    # Regroupings that are equal on paper differ by rounding here.
    return float((found >= found[0] - 1e-12).mean())


def _distances(points: One) -> Float[np.ndarray, "point point"]:
    return np.linalg.norm(points[:, None] - points, axis=-1)


def _energy(apart: Float[np.ndarray, "point point"], masks: np.ndarray) -> Float[np.ndarray, " draw"]:
    """The energy distance for each row of `masks`: True marks the first cloud."""
    one, other = masks.astype(float), (~masks).astype(float)
    n, m = one.sum(axis=1), other.sum(axis=1)
    to_one = one @ apart
    across, within_one = (to_one * other).sum(axis=1), (to_one * one).sum(axis=1)
    within_other = ((other @ apart) * other).sum(axis=1)
    return 2 * across / (n * m) - within_one / n**2 - within_other / m**2
