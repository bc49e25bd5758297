"""Validation losses of runs: as columns, in the scale and at the point where runs are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ega_mope.runs import Curve, Run

TOKEN_NAMES = {"characters": "character", "bytes": "byte"}
"""What one token of a tokenizer is called."""


@dataclass(frozen=True)
class Metric:
    """A scale for losses; `convert` takes nats per token."""

    name: str
    convert: Callable[[np.ndarray], np.ndarray]

    def unit(self, tokenizer: str) -> str:
        """Such as "nats per character"."""
        return f"{self.name} per {TOKEN_NAMES.get(tokenizer, 'token')}"

    def value(self, loss_nats: float) -> float:
        """One loss in this scale."""
        return float(self.convert(np.asarray(loss_nats)))


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("nats", lambda nats: nats),
        Metric("bits", lambda nats: nats / math.log(2)),
        Metric("perplexity", np.exp),
    )
}


def metric_named(name: str) -> Metric:
    """The metric of that name; ValueError names the valid ones."""
    if name not in METRICS:
        raise ValueError(f"metric: expected one of ({', '.join(METRICS)}), got {name!r}; choose one of them")
    return METRICS[name]


COMPARE_POINTS: dict[str, str] = {
    "best": "lowest validation loss of each finished run",
    "final": "last validation loss of each finished run",
    "common_step": "validation loss at the last step that all runs have reached",
}


EMPTY = Curve(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), np.empty(0))


def curve(run: Run, split: str) -> Curve:
    """A run's losses in one split; empty where nothing was recorded."""
    return run.curves().get(split, EMPTY)


def diverged(run: Run) -> bool:
    """Whether any loss of the run, training or validation, was not finite."""
    return any(np.isnan(found.loss_nats).any() for found in run.curves().values())


@dataclass(frozen=True)
class Compared:
    """Losses in nats per token by run folder, the runs left out with the reason, and the common step, if any."""

    loss_nats: Mapping[Path, float]
    left_out: Mapping[Path, str]
    step: int | None = None


def compare_at(runs: Iterable[Run], point: str) -> Compared:
    """Each run's validation loss at one of COMPARE_POINTS; ValueError for another point.

    Runs that diverged, have no validation loss, or (for best and final) have not finished are left out.
    """
    if point not in COMPARE_POINTS:
        raise ValueError(
            f"compare point: expected one of ({', '.join(COMPARE_POINTS)}), got {point!r}; choose one of them"
        )
    usable, left_out = [], {}
    for run in runs:
        reason = _unusable(run, must_finish=point != "common_step")
        if reason is None:
            usable.append(run)
        else:
            left_out[run.path] = reason
    if point == "common_step":
        return _at_common_step(usable, left_out)
    losses = {run.path: curve(run, "validation").finite.loss_nats for run in usable}
    pick = np.min if point == "best" else lambda values: values[-1]
    return Compared({path: float(pick(values)) for path, values in losses.items()}, left_out)


def _unusable(run: Run, must_finish: bool) -> str | None:
    if diverged(run):
        return "diverged"
    if not len(curve(run, "validation").finite.step):
        return "no validation loss yet"
    state = run.status.state
    return f"not finished ({state})" if must_finish and state != "finished" else None


def _at_common_step(runs: list[Run], left_out: dict[Path, str]) -> Compared:
    found = {run.path: curve(run, "validation").finite for run in runs}
    shared = set.intersection(*(set(c.step.tolist()) for c in found.values())) if found else set()
    if not shared:
        return Compared({}, left_out | dict.fromkeys(found, "no step that all runs were validated at"))
    step = max(shared)
    losses = {path: float(c.loss_nats[c.step == step][0]) for path, c in found.items()}
    return Compared(losses, left_out, step)
