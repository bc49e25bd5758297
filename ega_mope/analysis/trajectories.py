"""The way of every Morlet pair through training, beside the most that it could have moved by then."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from ega_mope.analysis.scales import scale_records, why_no_scales
from ega_mope.runs import Run

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """ω (rad/token) and σ (tokens), as used, at every recorded step; the first is step 0.

    `most` is the most that log ω or log σ can have moved by each step: the sum of the learning rates so
    far × multiplier × Adam's largest update; None where Adam's settings give no bound.
    """

    steps: tuple[int, ...]
    omega: Float[np.ndarray, "step pair"]
    sigma: Float[np.ndarray, "step pair"]
    most: Float[np.ndarray, " step"] | None

    def moves(self, quantity: str) -> Float[np.ndarray, "step pair"]:
        """log(value / value at step 0) of "omega" or "sigma"."""
        values = getattr(self, quantity)
        return np.log(values / values[0])

    def table(self) -> pd.DataFrame:
        """One row a step and pair: values, moves in log units, and the most possible by then (NaN: no bound)."""
        import pandas as pd

        steps, pairs = self.sigma.shape
        most = np.full(steps, math.nan) if self.most is None else self.most
        return pd.DataFrame(
            {
                "step": np.repeat(self.steps, pairs),
                "pair": np.tile(np.arange(pairs), steps),
                "omega": self.omega.ravel(),
                "sigma": self.sigma.ravel(),
                "moved_omega": self.moves("omega").ravel(),
                "moved_sigma": self.moves("sigma").ravel(),
                "most": np.repeat(most, pairs),
            }
        )

    def by_step(self) -> pd.DataFrame:
        """One row a step: the median and the largest |log move| of all ω and σ, and the most possible."""
        import pandas as pd

        moved = np.abs(np.concatenate([self.moves("omega"), self.moves("sigma")], axis=1))
        most = np.full(len(self.steps), math.nan) if self.most is None else self.most
        return pd.DataFrame(
            {
                "step": self.steps,
                "median": np.median(moved, axis=1),
                "largest": moved.max(axis=1),
                "most": most,
            }
        )


def trajectories(run: Run) -> Trajectories:
    """Every recorded step of a run's scales; ValueError where fewer than two steps, or not the first, are recorded."""
    records = scale_records(run)
    training = run.config.training
    if why_no_scales(run) or len(records) < 2 or 0 not in records or training is None:
        raise ValueError(
            f"{run.name}: expected scales recorded from step 0 on, got {len(records)} such records; "
            "choose a run with position mope that was trained here"
        )
    multiplier = run.config.model.position["rate_multiplier"]
    most = np.array([training.most_log_move(multiplier, step) for step in records])
    return Trajectories(
        steps=tuple(records),
        omega=np.array([values["position.omega"] for values in records.values()]),
        sigma=np.array([values["position.sigma"] for values in records.values()]),
        most=most if np.isfinite(most).all() else None,
    )
