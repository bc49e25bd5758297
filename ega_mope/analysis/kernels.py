"""Correlation kernels of the learned Morlet pairs, and the Gram matrix of the table they make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int

from ega_mope.analysis.scales import Scales, scales
from ega_mope.config import Plain
from ega_mope.positions.mope import morlet_table
from ega_mope.runs import Run

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The kernel of every pair at the same lags, in tokens; a kernel is even, so lags run from 0."""

    run: str
    lags: Int[np.ndarray, " lag"]
    pairs: Float[np.ndarray, "pair lag"]

    @property
    def mean(self) -> Float[np.ndarray, " lag"]:
        """The mean over the pairs."""
        return self.pairs.mean(axis=0)

    def to_json(self) -> Plain:
        """The answer of `ega-mope kernels --json`."""
        return {
            "run": self.run,
            "lags": self.lags.tolist(),
            "pairs": self.pairs.tolist(),
            "mean": self.mean.tolist(),
        }


def kernels(run: Run, lags: int | None = None) -> Kernels:
    """The kernels of a run at lags 0 … `lags` tokens; up to the context length − 1 unless given.

    Raises ValueError for a run without learned scales.
    """
    return kernels_of(scales(run), run.config.model.context_length - 1 if lags is None else lags)


def kernels_of(found: Scales, lags: int) -> Kernels:
    """The kernels of these scales at lags 0 … `lags` tokens."""
    if lags < 0:
        raise ValueError(f"lags: expected 0 or more tokens, got {lags}; choose a larger number")
    at = np.arange(lags + 1)
    return Kernels(run=found.run, lags=at, pairs=kernel(found.omega, found.sigma, at))


def kernel(
    omega: Float[np.ndarray, " pair"], sigma: Float[np.ndarray, " pair"], lags: Int[np.ndarray, " lag"]
) -> Float[np.ndarray, "pair lag"]:
    """C_i(τ) = exp(−τ²/4σ_i²)·cos(ω_i τ), C_i(0) = 1 (arXiv 2605.26355, section 3).

    The autocorrelation of Morlet pair i over all positions from −∞ to ∞, divided by σ_i√π. Limits: σ = ∞
    gives cos(ω τ), the sinusoidal encoding's; ω = 0 a pure window. Between two real positions the
    table's product also decays with the position: see `gram`.
    """
    tau = lags[None, :]
    return np.exp(-(tau**2) / (4 * sigma[:, None] ** 2)) * np.cos(omega[:, None] * tau)


LIMITS = {"σ → ∞": "sinusoidal", "ω = 0": "window"}
"""Names of the limits on screen, and what they are."""


def kernels_table(found: Scales, lags: int, pairs: Sequence[int]) -> pd.DataFrame:
    """A row a lag: the mean kernel of all pairs, each of `pairs`, the mean of those, and that mean's two limits.

    With no `pairs` the limits are those of all pairs.
    """
    import pandas as pd

    every = kernels_of(found, lags)
    chosen = list(pairs) or list(range(len(found.pairs)))
    columns = {"lag": every.lags, "mean of all": every.mean}
    if pairs:
        columns |= {f"pair {i}": every.pairs[i] for i in pairs}
        columns["mean of chosen"] = every.pairs[chosen].mean(axis=0)
    omega, sigma = found.omega[chosen], found.sigma[chosen]
    columns["σ → ∞"] = kernel(omega, np.full_like(sigma, math.inf), every.lags).mean(axis=0)
    columns["ω = 0"] = kernel(np.zeros_like(omega), sigma, every.lags).mean(axis=0)
    return pd.DataFrame(columns)


def across(found: Scales, count: int = 4) -> list[int]:
    """So many pairs from the narrowest to the widest, evenly over their order by σ."""
    order = np.argsort(found.sigma, kind="stable")
    places = np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)
    return order[places].tolist()


def cluster_table(found: Scales, lags: int) -> pd.DataFrame:
    """A row a lag: the mean kernel of each cluster of pairs, counted from 1 by rising σ."""
    import pandas as pd

    every = kernels_of(found, lags)
    labels = np.array(found.clusters.labels)
    means = {f"cluster {label}": every.pairs[labels == label].mean(axis=0) for label in np.unique(labels)}
    return pd.DataFrame({"lag": every.lags, **means})


def gram(found: Scales, context_length: int) -> Float[np.ndarray, "time time"]:
    """MoPE(b)·MoPE(b′) of the real table, for all b, b′ of the context.

    Σ_i exp(−(b² + b′²)/2σ_i²)·cos(ω_i (b − b′)): unlike the kernel it also falls with b itself.
    """
    table = morlet_table(
        torch.arange(context_length), torch.from_numpy(found.omega), torch.from_numpy(found.sigma)
    )
    return (table @ table.T).numpy()


def gram_table(values: Float[np.ndarray, "time time"]) -> pd.DataFrame:
    """The Gram matrix with the position b in the first column, and a column for each b′."""
    import pandas as pd

    table = pd.DataFrame(values, columns=[str(b) for b in range(values.shape[1])])
    table.insert(0, "b", range(len(values)))
    return table
