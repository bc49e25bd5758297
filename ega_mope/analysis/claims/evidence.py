"""The runs that claims are judged on, and what is read from each of them once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ega_mope.analysis.factorial import trained_here
from ega_mope.analysis.losses import Compared, compare_at
from ega_mope.analysis.naming import digest
from ega_mope.config import ExperimentConfig, Plain
from ega_mope.runs import Run

PAPERS_TEXT = "tinyshakespeare"


@dataclass(frozen=True)
class Learned:
    """A run's learned scalars at the start and at its lowest validation loss, by name as in learned.jsonl."""

    start: Mapping[str, Any]
    end: Mapping[str, Any]

    def moved(self, name: str) -> Float[np.ndarray, " n"]:
        """log(end/start) of each positive scalar of that name."""
        return np.log(np.asarray(self.end[name], dtype=float) / np.asarray(self.start[name], dtype=float))

    def points(self, when: Mapping[str, Any]) -> Float[np.ndarray, "pair 2"]:
        """(log ω, log σ) of each Morlet pair, ω in rad/token as used, σ in tokens."""
        return np.log(np.array([when["position.omega"], when["position.sigma"]], dtype=float).T)


class Evidence:
    """Runs whose training is known, in the order of their names; losses at each run's best.

    Two runs of the same settings, seed and kind of device are one: a finished one counts, first one with
    weights. `speed` is the file with measured training speeds (see `claims.cost`).
    """

    def __init__(self, runs: Iterable[Run], speed: Path | None = None) -> None:
        self.runs = _each_once(filter(trained_here, runs))
        self.speed = speed
        self._learned: dict[Path, Learned | None] = {}

    @cached_property
    def compared(self) -> Compared:
        """Validation losses at each finished run's best, and why the others do not count."""
        return compare_at(self.runs, "best")

    @cached_property
    def finished(self) -> tuple[Run, ...]:
        """The runs that count."""
        return tuple(run for run in self.runs if run.path in self.compared.loss_nats)

    def loss(self, run: Run) -> float:
        """The lowest validation loss of a finished run, nats per token."""
        return self.compared.loss_nats[run.path]

    def learned(self, run: Run) -> Learned | None:
        """The learned scalars of a run; None where its start is not recorded."""
        if run.path not in self._learned:
            records = {record["step"]: record["values"] for record in run.learned()}
            best = run.best()
            end = records.get(best.step) if best else None
            known = 0 in records and len(records) > 1
            self._learned[run.path] = Learned(records[0], end or records[max(records)]) if known else None
        return self._learned[run.path]


def _each_once(runs: Iterable[Run]) -> tuple[Run, ...]:
    ranked = sorted(
        runs, key=lambda run: (run.status.state != "finished", not with_weights(run), *_place(run))
    )
    found: dict[str, Run] = {}
    for run in ranked:
        what = [run.settings(), run.evaluation, run.document["device"]["type"], run.seed]
        found.setdefault(digest(what), run)
    return tuple(sorted(found.values(), key=_place))


def _place(run: Run) -> tuple[str, str]:
    return run.name, str(run.path)


def with_weights(run: Run) -> bool:
    """Whether a run carries its weights."""
    return (run.path / "model.safetensors").exists()


def config_of(run: Run) -> ExperimentConfig:
    """The settings of a run that was trained here."""
    assert isinstance(run.config, ExperimentConfig)
    return run.config


def setup(run: Run) -> str:
    """Text, size, training and device of a run in words: all that runs must share to be compared."""
    config, text = config_of(run), run.document["corpus"]["name"]
    steps = f"{config.training.steps:,} steps"
    return f"{text} {config.tokenizer}, {config.preset}, {steps}, {run.document['device']['type']}"


def has(mechanism: Plain, **wanted: Any) -> bool:
    """Whether a mechanism has these settings, whatever the others are."""
    return all(mechanism.get(key) == value for key, value in wanted.items())
