"""How sure a mean over seeds is: Student's t, exact sign flips, the BCa bootstrap, Welch's interval.

Every function answers None where the data cannot carry an answer, never a stand-in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special, stats

Values = Sequence[float] | Float[np.ndarray, " _"]

LEVEL = 0.95
"""Coverage asked of every interval."""

BCA_LEAST = 6
"""Fewest seeds for a BCa interval: below, it covers far less than it says."""

BCA_RESAMPLES = 9_999

BCA_COVERAGE: Mapping[int, float] = {6: 0.866, 8: 0.887, 10: 0.902, 12: 0.911, 16: 0.916}
"""Measured: the share of 10,000 samples of N normal values whose 95 % BCa interval held the true mean (±0.003)."""

SIGN_FLIP_MOST = 44
"""Most values for the exact sign-flip test: it keeps 2^(N/2) sums."""


@dataclass(frozen=True)
class Interval:
    """A two-sided interval of coverage LEVEL, in the unit of its values."""

    low: float
    high: float

    def excludes_zero(self) -> bool:
        """Whether all of it lies on one side of 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Estimate:
    """A sum of independent means with Welch's standard error and Satterthwaite's degrees of freedom."""

    mean: float
    standard_error: float
    degrees_of_freedom: float
    interval: Interval


def t_interval(values: Values, *, least: float = -math.inf, most: float = math.inf) -> Interval | None:
    """Student's interval for the mean of independent values; None below two of them.

    It ends at `least` and `most`, between which values and so their mean must lie, such as 0 and 1 for shares.
    """
    data = np.asarray(values, dtype=float)
    if len(data) < 2:
        return None
    error = float(data.std(ddof=1)) / math.sqrt(len(data))
    found = _student(float(data.mean()), error, float(len(data) - 1))
    return Interval(max(found.low, least), min(found.high, most))


def sign_flip_p(values: Values) -> float | None:
    """Two-sided p of the exact sign-flip test that the values are symmetric around 0.

    The share of all 2^N ways to choose their signs whose |sum| is at least the observed one. None below
    two values and above SIGN_FLIP_MOST. All sums come from the sorted sums of two halves, so that N = 44
    needs 2^22 numbers, not 2^44.
    """
    data = np.asarray(values, dtype=float)
    count = len(data)
    if not 2 <= count <= SIGN_FLIP_MOST:
        return None
    # Sums that are equal on paper differ by rounding here.
    least = abs(float(data.sum())) - 1e-12 * float(np.abs(data).sum())
    if least <= 0:
        return 1.0
    first, second = (np.sort(_signed_sums(half)) for half in (data[: count // 2], data[count // 2 :]))
    # Sums come in pairs ±s, so one tail is counted and doubled.
    reached = len(second) - np.searchsorted(second, least - first, side="left")
    return 2 * int(reached.sum()) / 2**count


def sign_flip_floor(count: int) -> float:
    """The smallest p that a sign-flip test of `count` values can reach: 2/2^N."""
    return 2.0 / 2.0**count


def bca_interval(values: Values, seed: int = 0) -> Interval | None:
    """Bias-corrected and accelerated bootstrap interval for the mean (Efron 1987), by scipy.

    None below BCA_LEAST values, and where all values are equal, which leaves nothing to resample.
    """
    data = np.asarray(values, dtype=float)
    if len(data) < BCA_LEAST or np.ptp(data) == 0:
        return None
    found = stats.bootstrap(
        (data,),
        np.mean,
        n_resamples=BCA_RESAMPLES,
        confidence_level=LEVEL,
        method="BCa",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


def bca_coverage(count: int) -> float | None:
    """The measured coverage at the nearest measured N not above `count`; None below BCA_LEAST."""
    return max(((n, share) for n, share in BCA_COVERAGE.items() if n <= count), default=(0, None))[1]


def welch(groups: Sequence[Values], coefficients: Sequence[float]) -> Estimate | None:
    """Σ c_k mean_k over independent groups: SE² = Σ c_k² s_k²/n_k, Satterthwaite's degrees of freedom.

    With coefficients 1 and −1 this is Welch's t interval. None where a group has fewer than two values,
    or where no group varies.
    """
    if min(map(len, groups)) < 2:
        return None
    data = [np.asarray(group, dtype=float) for group in groups]
    parts = np.array([c * c * x.var(ddof=1) / len(x) for c, x in zip(coefficients, data, strict=True)])
    if not parts.sum() > 0:
        return None
    freedom = parts.sum() ** 2 / sum(part**2 / (len(x) - 1) for part, x in zip(parts, data, strict=True))
    mean = sum(c * float(x.mean()) for c, x in zip(coefficients, data, strict=True))
    error = math.sqrt(parts.sum())
    return Estimate(mean, error, float(freedom), _student(mean, error, float(freedom)))


def _student(mean: float, error: float, freedom: float) -> Interval:
    reach = float(special.stdtrit(freedom, 0.5 + LEVEL / 2)) * error
    return Interval(mean - reach, mean + reach)


def _signed_sums(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " sums"]:
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums - value, sums + value])
    return sums
