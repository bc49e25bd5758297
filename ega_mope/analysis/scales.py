"""The scales that a run's Morlet positions learned: where they started, moved and might have moved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ega_mope.analysis.clusters import Clusters, clusters
from ega_mope.analysis.learned import learned_at_best
from ega_mope.config import Plain
from ega_mope.runs import BrokenRun, Run, list_runs

if TYPE_CHECKING:
    import pandas as pd

BANDS = (("character", 0.0, 6.0), ("word", 6.0, 20.0), ("clause", 20.0, 55.0), ("sentence", 55.0, math.inf))
"""The paper's bands by σ in tokens, chosen beforehand: from the first bound, up to but not including the
second. The paper's first one begins at 1; a narrower pair is called character too."""

REACH_ENVELOPE = 0.01
"""What is left of the envelope at a pair's reach."""


@dataclass(frozen=True, kw_only=True)
class PairScale:
    """One Morlet pair. omega in rad/token, sigma, period and reaches in tokens; pairs count from 0.

    `omega_free` is ω as learned, `omega` as used; where they differ (`projected`) the pair was put onto
    ω·σ = 5 or below 0.95π, and its own ω got no gradient. `cluster` counts from 1. The start is None
    where the run has no record of it.
    """

    pair: int
    omega: float
    omega_free: float
    sigma: float
    cluster: int
    omega_start: float | None
    sigma_start: float | None

    @property
    def projected(self) -> bool:
        return self.omega != self.omega_free

    @property
    def period(self) -> float:
        """2π/ω, the wavelength in tokens."""
        return 2 * math.pi / self.omega

    @property
    def reach_1e_tokens(self) -> float:
        """Position where the envelope exp(−b²/2σ²) is down to 1/e."""
        return self.sigma * math.sqrt(2.0)

    @property
    def reach_tokens(self) -> float:
        """Position where the envelope is down to 1 %: about 3.03 σ."""
        return self.sigma * math.sqrt(-2.0 * math.log(REACH_ENVELOPE))

    @property
    def band(self) -> str:
        return band(self.sigma)

    @property
    def moved_omega(self) -> float | None:
        """log(ω/ω at the start): 0.05 is about 5 % more."""
        return None if self.omega_start is None else math.log(self.omega / self.omega_start)

    @property
    def moved_sigma(self) -> float | None:
        """log(σ/σ at the start)."""
        return None if self.sigma_start is None else math.log(self.sigma / self.sigma_start)


@dataclass(frozen=True, kw_only=True)
class Scales:
    """All pairs of a run at one step.

    `most_log_move` bounds |log ω/ω start| and |log σ/σ start| over the whole training; it is None where
    Adam's settings give no bound or are not known. `start_clusters` is None where the start is not recorded.
    """

    run: str
    step: int | None
    pairs: tuple[PairScale, ...]
    clusters: Clusters
    start_clusters: Clusters | None
    most_log_move: float | None

    @cached_property
    def omega(self) -> Float[np.ndarray, " pair"]:
        """ω as used, rad/token."""
        return np.array([pair.omega for pair in self.pairs])

    @cached_property
    def sigma(self) -> Float[np.ndarray, " pair"]:
        """σ in tokens."""
        return np.array([pair.sigma for pair in self.pairs])

    @property
    def points(self) -> Float[np.ndarray, "pair 2"]:
        """(log ω, log σ) of each pair now."""
        return np.log(np.stack([self.omega, self.sigma], axis=1))

    @property
    def start_points(self) -> Float[np.ndarray, "pair 2"] | None:
        """(log ω, log σ) of each pair at the start; None where it is not recorded."""
        return _points([(pair.omega_start, pair.sigma_start) for pair in self.pairs])

    @cached_property
    def largest_log_move(self) -> float | None:
        """The largest |log| that any ω or σ moved; None where the start is not recorded."""
        moves = [
            abs(move)
            for pair in self.pairs
            for move in (pair.moved_omega, pair.moved_sigma)
            if move is not None
        ]
        return max(moves, default=None)

    def to_json(self) -> Plain:
        """The answer of `ega-mope scales --json`. `reach_tokens` is the reach at 1 % of the envelope;
        `most_log_move` is null where there is no bound."""
        keys = (
            "pair", "omega", "omega_free", "projected", "sigma", "period", "reach_tokens", "band", "cluster",
            "omega_start", "sigma_start",
        )  # fmt: skip
        return {
            "run": self.run,
            "pairs": [{key: getattr(pair, key) for key in keys} for pair in self.pairs],
            "clusters": {
                "chosen": self.clusters.chosen,
                "bic": {str(k): value for k, value in self.clusters.bic.items()},
            },
            "most_log_move": self.most_log_move,
        }


def scales(run: Run, step: int | None = None) -> Scales:
    """The scales at the run's best weights, or as recorded at a training step.

    Raises ValueError for a run without learned scales, and for a step that has no record.
    """
    reason = why_no_scales(run)
    if reason:
        raise ValueError(
            f"{run.name}: expected a run with position mope, got one where {reason}{_instead(run)}"
        )
    records = scale_records(run)
    if step is None:
        step = _step_of_weights(run, records)
        now = learned_at_best(run)
    else:
        now = _at(run, records, step)
    training = run.config.training
    if training is None:  # trained elsewhere: neither the start nor the rates are known
        return _assemble(run.name, step, now, None, None)
    position = run.config.model.position
    most = 0.0 if position["freeze"] == "both" else training.most_log_move(position["rate_multiplier"])
    return _assemble(run.name, step, now, records.get(0), most if math.isfinite(most) else None)


def _step_of_weights(run: Run, records: dict[int, Mapping[str, Any]]) -> int | None:
    if run.config.training is None:
        return max(records, default=None)
    best = run.best()
    return best.step if best else None


def recorded_steps(run: Run) -> list[int]:
    """The training steps whose scales are recorded, from the first to the last."""
    return list(scale_records(run))


def why_no_scales(run: Run) -> str | None:
    """None, or why this run has no learned scales to look at."""
    from ega_mope.positions import POSITIONS
    from ega_mope.positions.mope import MorletPosition

    name = run.config.model.position["name"]
    return (
        None
        if issubclass(POSITIONS[name], MorletPosition)
        else f"position {name} has no learned scales (pairs of ω and σ)"
    )


def band(sigma: float) -> str:
    """The paper's name for a scale of σ tokens; see BANDS."""
    return next(name for name, low, high in BANDS if low <= sigma < high)


def limit_area(found: Scales) -> Float[np.ndarray, "corner 2"] | None:
    """Corners (σ, ω) of an area that no pair can have left: the convex hull, in log units, of the
    squares of half side `most_log_move` around the starts.

    None where the start is not recorded or the move has no bound.
    """
    from scipy.spatial import ConvexHull

    starts = found.start_points
    if starts is None or not found.most_log_move:
        return None
    corners = found.most_log_move * np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]])
    squares = (starts[:, None] + corners).reshape(-1, 2)
    return np.exp(squares[ConvexHull(squares).vertices][:, ::-1])


def scale_records(run: Run) -> dict[int, Mapping[str, Any]]:
    """The learned scalars of every recorded step that has scales, in step order."""
    return {
        record["step"]: record["values"] for record in run.learned() if "position.sigma" in record["values"]
    }


def _at(run: Run, records: dict[int, Mapping[str, Any]], step: int) -> Mapping[str, Any]:
    if step not in records:
        steps = ", ".join(map(str, records)) or "none: it has no learned.jsonl"
        raise ValueError(f"{run.name}: expected a recorded step ({steps}), got {step}; choose one of them")
    return records[step]


def _assemble(
    run: str, step: int | None, now: Mapping[str, Any], start: Mapping[str, Any] | None, most: float | None
) -> Scales:
    omega, sigma = now["position.omega"], now["position.sigma"]
    unknown = [None] * len(sigma)
    omega_start = start["position.omega"] if start else unknown
    sigma_start = start["position.sigma"] if start else unknown
    points = _points(list(zip(omega, sigma, strict=True)))
    starts = _points(list(zip(omega_start, sigma_start, strict=True)))
    assert points is not None
    groups = clusters(points)
    pairs = tuple(
        PairScale(
            pair=i,
            omega=omega[i],
            omega_free=now["position.omega_free"][i],
            sigma=sigma[i],
            cluster=groups.labels[i],
            omega_start=omega_start[i],
            sigma_start=sigma_start[i],
        )
        for i in range(len(sigma))
    )
    start_groups = None if starts is None else clusters(starts)
    return Scales(
        run=run, step=step, pairs=pairs, clusters=groups, start_clusters=start_groups, most_log_move=most
    )


def _points(values: list[tuple[float | None, float | None]]) -> Float[np.ndarray, "pair 2"] | None:
    """(log ω, log σ) of each pair; None where any is missing."""
    if any(omega is None or sigma is None for omega, sigma in values):
        return None
    return np.log(np.array(values, dtype=np.float64))


def _instead(run: Run) -> str:
    """A way out: the run with scales that shares corpus, preset and seed with this one, as far as there is one."""
    able = [
        other for other in list_runs() if not isinstance(other, BrokenRun) and why_no_scales(other) is None
    ]
    if not able:
        return "; train one with `ega-mope train --position mope`"
    wanted = _likeness(run)
    best = max(able, key=lambda other: [a == b for a, b in zip(wanted, _likeness(other), strict=True)])
    return f"; choose for example {best.name}"


def _likeness(run: Run) -> tuple[object, ...]:
    return run.document["corpus"]["sha256"], run.config.tokenizer, run.config.preset, run.seed


def pairs_table(found: Scales) -> pd.DataFrame:
    """One row a pair, ω and σ with their start, reaches, band, cluster and moves, in full precision."""
    import pandas as pd

    columns = (
        "pair", "omega", "period", "sigma", "reach_1e_tokens", "reach_tokens", "band", "cluster", "projected",
        "omega_free", "omega_start", "sigma_start", "moved_omega", "moved_sigma",
    )  # fmt: skip
    return pd.DataFrame([{key: getattr(pair, key) for key in columns} for pair in found.pairs])


def bic_table(found: Scales) -> pd.DataFrame:
    """BIC by number of clusters, of the pairs now and at the start (NaN where the start is not recorded)."""
    import pandas as pd

    start = found.start_clusters.bic if found.start_clusters else {}
    rows = [
        {"clusters": k, "now": value, "start": start.get(k, math.nan)}
        for k, value in found.clusters.bic.items()
    ]
    return pd.DataFrame(rows)


BINS_PER_DECADE = 10


def spectrum_table(found: Scales) -> pd.DataFrame:
    """How many pairs lie in each tenth of a decade of σ and of ω, now and at the start."""
    import pandas as pd

    rows = []
    for quantity, start in (("sigma", "sigma_start"), ("omega", "omega_start")):
        now_bins = _bins([getattr(pair, quantity) for pair in found.pairs])
        starts = [getattr(pair, start) for pair in found.pairs]
        start_bins = None if None in starts else _bins(starts)
        filled = [*now_bins, *(start_bins or {})]
        for number in range(min(filled), max(filled) + 1):
            low, high = (10 ** (edge / BINS_PER_DECADE) for edge in (number, number + 1))
            then = math.nan if start_bins is None else start_bins.get(number, 0)
            row = {"quantity": quantity, "from": low, "to": high}
            rows.append(row | {"pairs now": now_bins.get(number, 0), "pairs at start": then})
    return pd.DataFrame(rows)


def _bins(values: list[float]) -> dict[int, int]:
    numbers, counts = np.unique(np.floor(BINS_PER_DECADE * np.log10(values)).astype(int), return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def movement(found: Scales) -> str:
    """How far the scales moved, in one sentence, against the most that was possible."""
    largest, most = found.largest_log_move, found.most_log_move
    if largest is None:
        return "How far the scales moved could not be computed because their start is not recorded."
    says = f"The largest move of any ω or σ is {largest:.3g} log units, a factor of {math.exp(largest):.3g}"
    if most == 0:
        return "No ω or σ could move: they were frozen, or trained at rate 0."
    if most is None:
        return f"{says}; the most that was possible has no bound, or is not known."
    return (
        f"{says}; the most that was possible over the whole training is {most:.3g}, of which it is "
        f"{largest / most:.0%}."
    )
