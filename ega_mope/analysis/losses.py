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
    found, left_out = _usable(runs, must_finish=point != "common_step")
    if point == "common_step":
        shared = _shared_steps(found)
        if not shared:
            return Compared({}, left_out | dict.fromkeys(found, "no step that all runs were validated at"))
        return _at_step(found, shared[-1], left_out)
    pick = np.min if point == "best" else lambda values: values[-1]
    return Compared({path: float(pick(one.loss_nats)) for path, one in found.items()}, left_out)


def compare_at_shared_steps(runs: Iterable[Run], point: str) -> list[Compared]:
    """The runs that `compare_at` compares at this point, at each step at which all of them were validated, in
    order."""
    found, left_out = _usable(runs, must_finish=point != "common_step")
    return [_at_step(found, step, left_out) for step in _shared_steps(found)]


def _usable(runs: Iterable[Run], must_finish: bool) -> tuple[dict[Path, Curve], dict[Path, str]]:
    """Finite validation losses of the runs that can be compared, and why the others cannot."""
    found, left_out = {}, {}
    for run in runs:
        reason = _unusable(run, must_finish)
        if reason is None:
            found[run.path] = curve(run, "validation").finite
        else:
            left_out[run.path] = reason
    return found, left_out


def _unusable(run: Run, must_finish: bool) -> str | None:
    if diverged(run):
        return "diverged"
    if not len(curve(run, "validation").finite.step):
        return "no validation loss yet"
    state = run.status.state
    return f"not finished ({state})" if must_finish and state != "finished" else None


def _shared_steps(found: Mapping[Path, Curve]) -> list[int]:
    """Steps at which every one of these was validated, in order."""
    steps = [set(one.step.tolist()) for one in found.values()]
    return sorted(set.intersection(*steps)) if steps else []


def _at_step(found: Mapping[Path, Curve], step: int, left_out: Mapping[Path, str]) -> Compared:
    return Compared(
        {path: float(one.loss_nats[one.step == step][0]) for path, one in found.items()}, left_out, step
    )
