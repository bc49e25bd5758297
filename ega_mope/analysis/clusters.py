"""Are there groups among the learned scales? Gaussian mixtures on (log ω, log σ), "one group" included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

MOST_GROUPS = 8
SMALLEST_SPREAD = 0.05
"""The least standard deviation of a group, in log units (5 %): pairs on the line ω·σ = 5 have no width
across it, and without a floor their likelihood has no bound."""
WORTH_MENTION = 2.0
"""A BIC lower by less than this is "not worth more than a bare mention" (Kass and Raftery 1995)."""
STARTS = 5
"""k-means runs behind each fit; the tightest is kept."""
CLEAR_GAP = 4.5
"""Centres this many standard deviations apart leave a valley of a sixth of the peaks' height; an evenly
filled line cut into pieces has centres √12 = 3.5 apart and no valley at all, a bent one up to about 4.2."""
CONVERGED = 1e-5
"""A fit ends when a round gains less than this, in nats a pair."""


@dataclass(frozen=True)
class Clusters:
    """How many groups a set of pairs falls into.

    `bic[k]` is the Bayesian information criterion of k groups (lower is better), `chosen` the fewest
    groups whose BIC is within WORTH_MENTION of the lowest, `labels` each pair's group, counted from 1 by
    rising σ. `separation` is how far apart the two closest centres are, in standard deviations of a group
    along the line between them; None for one group.
    """

    chosen: int
    bic: dict[int, float]
    labels: tuple[int, ...]
    separation: float | None = None

    @property
    def touch(self) -> bool:
        """Whether two groups have no clear gap between them."""
        return self.separation is not None and self.separation < CLEAR_GAP


@dataclass(frozen=True)
class Fit:
    """A mixture of k groups: its BIC, the likeliest group of each pair, the closest centres' distance."""

    bic: float
    labels: Int[np.ndarray, " pair"]
    separation: float | None


Points = Float[np.ndarray, "pair 2"]
Covariance = Float[np.ndarray, "2 2"]


def round_groups(scatter: Covariance) -> Covariance:
    """All groups are equally wide in every direction: one number."""
    return np.trace(scatter) / 2 * np.eye(2)


def long_groups(scatter: Covariance) -> Covariance:
    """All groups are ellipses of one shape and direction: three numbers."""
    return scatter


SHAPES: dict[Callable[[Covariance], Covariance], int] = {round_groups: 1, long_groups: 3}
"""What the groups may look like, and how many numbers say so."""


def clusters(points: Points, most: int = MOST_GROUPS) -> Clusters:
    """Fit 1 to `most` Gaussian groups to rows of (log ω, log σ) and choose between them by BIC.

    The groups of a fit share one covariance, round or long, whichever has the lower BIC: so a further
    group costs three numbers, and pairs along a line are one long group rather than a chain of round
    ones. Nothing is standardised: both columns are in log units already, and stretching the narrower one
    would turn noise into distance. The same points always give the same answer.

    Raises ValueError for fewer than two pairs, or values that are not finite.
    """
    if len(points) < 2 or not np.isfinite(points).all():
        flaw = "" if np.isfinite(points).all() else ", some not finite"
        raise ValueError(
            f"clusters: expected at least 2 pairs with finite ω and σ, got {len(points)}{flaw}; choose another run"
        )
    fits = all_fits(points, most)
    chosen = fewest_good(fits)
    labels = _by_rising_sigma(fits[chosen].labels, points[:, 1])
    bic = {k: one.bic for k, one in fits.items()}
    return Clusters(chosen, bic, labels, fits[chosen].separation)


def all_fits(points: Points, most: int = MOST_GROUPS) -> dict[int, Fit]:
    """The fit of every number of groups from 1 that these points can carry, `most` at the most."""
    largest = min(most, len(np.unique(points, axis=0)), len(points) - 1)
    return {k: fit(points, k) for k in range(1, largest + 1)}


def fewest_good(fits: Mapping[int, Fit]) -> int:
    """The fewest groups whose BIC is within WORTH_MENTION of the lowest."""
    lowest = min(one.bic for one in fits.values())
    return min(k for k, one in fits.items() if one.bic <= lowest + WORTH_MENTION)


def fit(points: Points, groups: int) -> Fit:
    """The better of the round and the long mixture of so many groups, from the tightest of some k-means runs."""
    from sklearn.cluster import KMeans

    start = KMeans(groups, n_init=STARTS, random_state=0).fit_predict(points)
    return min((_maximise(points, start, groups, shape) for shape in SHAPES), key=lambda one: one.bic)


def _maximise(
    points: Points, labels: Int[np.ndarray, " pair"], groups: int, shape: Callable[[Covariance], Covariance]
) -> Fit:
    """Expectation-maximisation with one covariance for all groups, from hard labels to convergence.

    scikit-learn's `tied` mixture is the long shape; it has no round one.
    """
    n = len(points)
    x = points - points.mean(axis=0)
    share = np.eye(groups)[labels]  # (pair, group)
    before, likelihood = -np.inf, -np.inf
    for _ in range(1000):
        size = share.sum(axis=0) + 10 * np.finfo(float).eps
        means = share.T @ x / size[:, None]
        scatter = (x.T @ x - (means.T * size) @ means) / n
        covariance = shape(scatter) + SMALLEST_SPREAD**2 * np.eye(2)
        white = np.linalg.cholesky(np.linalg.inv(covariance))
        distance = np.square((x @ white)[:, None] - means @ white).sum(axis=-1)  # (pair, group)
        joint = np.log(size / n) - 0.5 * distance - 0.5 * np.log(np.linalg.det(2 * np.pi * covariance))
        evidence = np.logaddexp.reduce(joint, axis=1)
        share = np.exp(joint - evidence[:, None])
        likelihood = float(evidence.sum())
        if likelihood - before < CONVERGED * n:
            break
        before = likelihood
    numbers = SHAPES[shape] + 2 * groups + groups - 1
    bic = numbers * float(np.log(n)) - 2 * likelihood
    return Fit(bic, share.argmax(axis=1), _closest(means @ white))


def _closest(centres: Float[np.ndarray, "group 2"]) -> float | None:
    """The smallest distance between two of these points; None for a single one."""
    if len(centres) == 1:
        return None
    apart = np.linalg.norm(centres[:, None] - centres, axis=-1)
    return float(apart[np.triu_indices(len(centres), 1)].min())


def _by_rising_sigma(
    labels: Int[np.ndarray, " pair"], log_sigma: Float[np.ndarray, " pair"]
) -> tuple[int, ...]:
    present = sorted(set(labels.tolist()), key=lambda label: log_sigma[labels == label].mean())
    rank = {label: place for place, label in enumerate(present, 1)}
    return tuple(rank[label] for label in labels.tolist())


def verdict(now: Clusters, start: Clusters | None) -> str:
    """What may be said about groups, with the answer that the starting values give beside it."""
    if now.chosen == 1:
        says = f"One group: more groups do not describe these pairs clearly better (BIC lower by over {WORTH_MENTION:g})."
    else:
        says = (
            f"{count_of_groups(now.chosen).capitalize()} describe these pairs clearly better than fewer do."
        )
        if now.touch:
            says += (
                f" But groups touch (the closest centres are {now.separation:.1f} standard deviations apart, a clear gap "
                f"takes {CLEAR_GAP:g}): a line that bends or is unevenly filled is cut into such pieces too."
            )
    if start is None:
        return f"{says} The start is not recorded, so what training had to do with it is unknown."
    if start.chosen == now.chosen:
        return (
            f"{says} The starting values give the same verdict, so it says nothing about what training did."
        )
    return f"{says} The starting values give {count_of_groups(start.chosen)}."


def count_of_groups(groups: int) -> str:
    """Such as "two groups"."""
    words = ("one", "two", "three", "four", "five", "six", "seven", "eight")
    return f"{words[groups - 1]} group{'s' if groups > 1 else ''}"
