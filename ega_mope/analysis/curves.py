"""Loss curves: smoothed, put on a common axis, averaged over the runs of a configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy import signal, special

from ega_mope.analysis.intervals import LEVEL
from ega_mope.analysis.losses import Curve, curve
from ega_mope.runs import Run

AXES: dict[str, str] = {"step": "step", "tokens": "tokens", "seconds": "training time (seconds)"}

BANDS: dict[str, str] = {
    "range": "lowest to highest run",
    "t": "95 % t interval of the mean",
    "none": "no band",
}


def how_to_read(band: str, leave_out: float) -> str:
    """The sentence under loss curves drawn with this band, the first `leave_out` of them not stretching the axis."""
    start = (
        f" The first {leave_out:.0%} do not stretch the loss axis; “whole range” shows them."
        if leave_out
        else ""
    )
    return (
        "Thick line: mean over a configuration's runs, where all of them have a finite loss. "
        f"Band: {BANDS[band]}. Thin lines: each run, never smoothed. ×: the run diverged after this.{start}"
    )


Convert = Callable[[np.ndarray], np.ndarray]


def smooth(values: Float[np.ndarray, " n"], weight: float) -> Float[np.ndarray, " n"]:
    """TensorBoard's smoothing: an exponential moving average with its bias towards 0 divided out.

    y_k = w·y_(k−1) + (1 − w)·x_k from y_0 = 0, over 1 − w^k, k counting finite values; what is not
    finite stays as it is and is passed over. `weight` 0 changes nothing. ValueError outside 0 to 0.999.
    """
    if not 0 <= weight <= 0.999:
        raise ValueError(f"smoothing: expected 0 to 0.999, got {weight}; choose a value in that range")
    finite = np.isfinite(values)
    smoothed = values.astype(float)
    if weight and finite.any():
        averaged = signal.lfilter([1 - weight], [1, -weight], values[finite])
        smoothed[finite] = averaged / (1 - weight ** np.arange(1, finite.sum() + 1))
    return smoothed


def member_table(
    runs: Sequence[Run], split: str, axis: str = "step", convert: Convert = np.asarray, smoothing: float = 0.0
) -> pd.DataFrame:
    """One row a run and record: run, seed, step, tokens, seconds, x, loss (NaN where not finite), smoothed."""
    found = [curve(run, split) for run in runs]
    counts = [len(one.step) for one in found]
    columns: dict[str, np.ndarray] = {
        "run": np.repeat(np.array([run.name for run in runs], dtype=object), counts),
        "seed": np.repeat(np.array([run.seed for run in runs], dtype=object), counts),
        "step": _joined(found, "step"),
        "tokens": _joined(found, "tokens"),
        "seconds": _joined(found, "seconds"),
    }
    columns["x"] = columns[axis].astype(float)
    columns["loss"] = convert(_joined(found, "loss_nats"))
    ends = np.cumsum(counts)[:-1]
    smoothed = [smooth(part, smoothing) for part in np.split(columns["loss"], ends)] if found else []
    columns["smoothed"] = np.concatenate([np.empty(0), *smoothed])
    return pd.DataFrame(columns)


def _joined(found: Sequence[Curve], column: str) -> np.ndarray:
    return np.concatenate([np.empty(0), *(getattr(one, column) for one in found)])


def mean_table(members: pd.DataFrame, band: str = "range") -> pd.DataFrame:
    """Mean and band over the runs of a `member_table`, step by step: step, x, n, raw, mean, low, high.

    A step counts only where every run with any record here has a finite loss: a mean over those that are
    still there would jump where one ends or diverges. `raw` is the mean before smoothing; low and high
    are NaN for one run. x is the runs' mean, which for seconds differs between them.
    """
    there = members["smoothed"].notna().to_numpy()
    steps, step = np.unique(members["step"].to_numpy()[there], return_inverse=True)
    raw, smoothed, x = (members[name].to_numpy(dtype=float)[there] for name in ("loss", "smoothed", "x"))
    n, size = members["run"].nunique(), np.bincount(step)
    mean = np.bincount(step, smoothed) / size
    low, high = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    if band == "t":
        squares = np.bincount(step, (smoothed - mean[step]) ** 2)
        sd = np.sqrt(squares / np.maximum(size - 1, 1))
        reach = float(special.stdtrit(max(n - 1, 1), 0.5 + LEVEL / 2)) / math.sqrt(max(n, 1)) * sd
        low, high = mean - reach, mean + reach
    else:
        np.minimum.at(low, step, smoothed)
        np.maximum.at(high, step, smoothed)
    if n < 2 or band == "none":
        low, high = np.full((2, len(steps)), np.nan)
    columns = {
        "step": steps,
        "x": np.bincount(step, x) / size,
        "n": size,
        "raw": np.bincount(step, raw) / size,
        "mean": mean,
        "low": low,
        "high": high,
    }
    return pd.DataFrame({name: values[size == n] for name, values in columns.items()})
