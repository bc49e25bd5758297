"""Do EGA and MoPE give more together than the sum of what each gives alone? (arXiv 2605.26355, section 5)

I = (L00 − L11) − [(L00 − L10) + (L00 − L01)] = L10 + L01 − L00 − L11, positive where together they
gain more. It equals −β of the product term in `L ~ A*B`. A positive I does not mean that both together
beat the baseline: the four cells always stand beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ega_mope.analysis.factorial import CELLS, Family, find_families
from ega_mope.analysis.intervals import (
    BCA_LEAST,
    Interval,
    bca_interval,
    sign_flip_floor,
    sign_flip_p,
    t_interval,
    welch,
)
from ega_mope.analysis.losses import Compared, Metric, compare_at, compare_at_shared_steps, metric_named
from ega_mope.config import Plain
from ega_mope.runs import Run

CONTRASTS: Mapping[str, Mapping[str, int]] = {
    "ega": {"00": 1, "10": -1},
    "mope": {"00": 1, "01": -1},
    "both": {"00": 1, "11": -1},
    "interaction": {"10": 1, "01": 1, "00": -1, "11": -1},
}
"""Coefficients of the cells: gains over the baseline (positive is better), and the interaction."""


@dataclass(frozen=True)
class Cell:
    """One cell: the losses of the runs that count, in the chosen metric, by seed."""

    values: Mapping[int, float]

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def losses(self) -> list[float]:
        """In the order of seeds."""
        return [self.values[seed] for seed in sorted(self.values)]

    @property
    def mean(self) -> float | None:
        """None without runs."""
        return float(np.mean(self.losses)) if self.values else None

    @property
    def t_interval(self) -> Interval | None:
        return t_interval(self.losses)


@dataclass(frozen=True)
class Contrast:
    """A gain or the interaction: in the mean, and for each seed where the cells are paired."""

    mean: float
    per_seed: Mapping[int, float]
    interval: Interval | None
    degrees_of_freedom: float | None = None


@dataclass(frozen=True)
class Superadditivity:
    """What one family's runs say at one compare point in one metric. Refused: `contrasts` is empty."""

    family: Family | None
    metric: Metric
    unit: str
    compare_point: str
    step: int | None
    cells: Mapping[str, Cell]
    seeds: tuple[int, ...]
    """Seeds that all four cells share and that are compared; empty where the comparison is unpaired."""
    contrasts: Mapping[str, Contrast]
    notes: tuple[str, ...]
    refused: str | None

    @property
    def paired(self) -> bool:
        return bool(self.seeds)

    @property
    def n(self) -> int:
        """Paired seeds; unpaired, the runs of the smallest cell."""
        return min(cell.n for cell in self.cells.values())

    @property
    def interaction(self) -> Contrast | None:
        return self.contrasts.get("interaction")

    def to_json(self) -> Plain:
        """The answer of `ega-mope superadditivity --json`."""
        return {
            "metric": self.metric.name,
            "unit": self.unit,
            "compare_point": self.compare_point,
            "family": self.family and self.family.to_json(),
            "cells": {name: {"mean": cell.mean, "n": cell.n} for name, cell in self.cells.items()},
            "gains": {
                name: self.contrasts[name].mean if self.contrasts else None
                for name in ("ega", "mope", "both")
            },
            "interaction": self._interaction_json(),
            "reason": "; ".join(self.notes) or None,
            "refused": self.refused,
        }

    def _interaction_json(self) -> Plain:
        found = self.interaction
        values = list(found.per_seed.values()) if found else []
        bca = bca_interval(values)
        return {
            "mean": found.mean if found else None,
            "per_seed": {str(seed): value for seed, value in found.per_seed.items()} if found else {},
            "t_interval": _pair(found.interval if found else None),
            "bca_interval": _pair(bca),
            "sign_flip_p": sign_flip_p(values),
            "p_floor": sign_flip_floor(len(values)) if values else None,
            "n": self.n,
        }


def superadditivity(
    runs: Iterable[Run] | Family,
    *,
    metric: str = "nats",
    compare_point: str = "best",
    family: str | None = None,
) -> Superadditivity:
    """The interaction among these runs; of several 2×2s, the one with this key, else the first of `find_families`.

    Paired by seed where all four cells share two seeds or more (or one is all there is); else unpaired,
    with Welch's interval. ValueError for an unknown metric, compare point or family.
    """
    scale = metric_named(metric)
    chosen = runs if isinstance(runs, Family) else _choose(find_families(runs), family)
    if chosen is None:
        reason = "expected runs trained here in all four cells of a 2×2, got none; train some"
        return _refused(None, scale, compare_point, {}, reason)
    compared = compare_at(_members(chosen), compare_point)
    by_seed, notes = _by_seed(chosen, compared, scale)
    empty = [name for name in CELLS if chosen.cells[name] and not by_seed[name]]
    if chosen.refused or empty:
        why = sorted({reason for path, reason in compared.left_out.items()})
        reason = chosen.refused or (
            f"expected a loss at the compare point {compare_point!r} in all four cells, got none in "
            f"{', '.join(empty)} ({', '.join(why)}); finish or train these runs, or compare at another point"
        )
        return _refused(chosen, scale, compare_point, by_seed, reason)
    if compared.step is not None:
        notes = (f"compared at step {compared.step}", *notes)
    return _measured(chosen, scale, compare_point, compared.step, by_seed, notes)


def over_training(result: Superadditivity) -> list[Superadditivity]:
    """The same comparison at every step at which all of its runs were validated, in order; empty if refused.

    A run that is compared in the middle of its training has not had the end of its learning rate's schedule.
    """
    family = result.family
    if family is None or result.refused:
        return []
    course = []
    for compared in compare_at_shared_steps(_members(family), result.compare_point):
        by_seed, notes = _by_seed(family, compared, result.metric)
        course.append(_measured(family, result.metric, result.compare_point, compared.step, by_seed, notes))
    return course


def _members(family: Family) -> list[Run]:
    return [run for members in family.cells.values() for run in members]


def _choose(families: list[Family], key: str | None) -> Family | None:
    if key is None:
        return families[0] if families else None
    for family in families:
        if family.key == key:
            return family
    listed = ", ".join(family.key for family in families) or "none among these runs"
    raise ValueError(f"family: expected one of ({listed}), got {key!r}; choose one of them")


def _by_seed(
    family: Family, compared: Compared, metric: Metric
) -> tuple[dict[str, dict[int, float]], tuple[str, ...]]:
    """Each cell's losses by seed, and what had to be left out. Runs of one seed are no two samples: the first counts."""
    cells: dict[str, dict[int, float]] = {name: {} for name in CELLS}
    notes = []
    for name, runs in family.cells.items():
        for run in sorted(runs, key=lambda run: (run.seed or 0, run.name)):
            if run.path in compared.left_out:
                notes.append(f"{run.name} is left out: {compared.left_out[run.path]}")
            elif run.seed in cells[name]:
                notes.append(f"{run.name} is left out: the cell has seed {run.seed} already")
            else:
                assert run.seed is not None
                cells[name][run.seed] = metric.value(compared.loss_nats[run.path])
    return cells, tuple(notes)


def _measured(
    family: Family,
    metric: Metric,
    compare_point: str,
    step: int | None,
    by_seed: dict[str, dict[int, float]],
    notes: tuple[str, ...],
) -> Superadditivity:
    shared = sorted(set.intersection(*(set(values) for values in by_seed.values())))
    fewest = min(map(len, by_seed.values()))
    paired = len(shared) >= 2 or (len(shared) == 1 and fewest == 1)
    if paired:
        unshared = sorted(set().union(*by_seed.values()) - set(shared))
        if unshared:
            notes += (f"left out, not in all four cells: seed {', '.join(map(str, unshared))}",)
        cells = {name: Cell({seed: values[seed] for seed in shared}) for name, values in by_seed.items()}
        contrasts = {name: _paired_contrast(weights, cells, shared) for name, weights in CONTRASTS.items()}
    else:
        notes += (
            "seeds do not match between the cells: unpaired, Welch's interval, no sign-flip test or BCa",
        )
        cells = {name: Cell(values) for name, values in by_seed.items()}
        contrasts = {name: _unpaired_contrast(weights, cells) for name, weights in CONTRASTS.items()}
    return Superadditivity(
        family=family,
        metric=metric,
        unit=metric.unit(family.tokenizer),
        compare_point=compare_point,
        step=step,
        cells=cells,
        seeds=tuple(shared) if paired else (),
        contrasts=contrasts,
        notes=notes + _caution(metric, contrasts["interaction"], cells, paired),
        refused=None,
    )


def _paired_contrast(weights: Mapping[str, int], cells: Mapping[str, Cell], seeds: list[int]) -> Contrast:
    """The seed cancels what the cells share: common weights, batches, noise of the order."""
    table = {name: np.array(cells[name].losses) for name in weights}
    values = sum(weight * table[name] for name, weight in weights.items())
    assert isinstance(values, np.ndarray)
    per_seed = dict(zip(seeds, values.tolist(), strict=True))
    freedom = float(len(seeds) - 1) if len(seeds) > 1 else None
    return Contrast(float(values.mean()), per_seed, t_interval(values), freedom)


def _unpaired_contrast(weights: Mapping[str, int], cells: Mapping[str, Cell]) -> Contrast:
    found = welch([cells[name].losses for name in weights], [float(w) for w in weights.values()])
    mean = sum(weight * float(np.mean(cells[name].losses)) for name, weight in weights.items())
    return Contrast(mean, {}, found.interval if found else None, found.degrees_of_freedom if found else None)


def _caution(
    metric: Metric, interaction: Contrast, cells: Mapping[str, Cell], paired: bool
) -> tuple[str, ...]:
    """Why something is null, and whether another scale would turn the sign."""
    notes: list[str] = []
    fewest = min(cell.n for cell in cells.values())
    if fewest == 1 and paired:
        notes.append("N = 1: no interval and no p can be computed from one seed")
    elif fewest == 1:
        notes.append("no interval can be computed: a cell with one run has no spread")
    elif paired and fewest < BCA_LEAST:
        notes.append(f"BCa needs {BCA_LEAST} seeds")
    if metric.name == "perplexity":
        logs = {name: np.log(cell.losses) for name, cell in cells.items()}
        in_nats = sum(w * float(logs[name].mean()) for name, w in CONTRASTS["interaction"].items())
        turns = "does here" if in_nats * interaction.mean < 0 else "does not here"
        notes.append(
            f"the sign of an interaction can depend on the scale; it {turns}: {in_nats:+.4f} in nats"
        )
    return tuple(notes)


def _refused(
    family: Family | None,
    metric: Metric,
    compare_point: str,
    by_seed: dict[str, dict[int, float]],
    reason: str,
) -> Superadditivity:
    return Superadditivity(
        family=family,
        metric=metric,
        unit=metric.unit(family.tokenizer if family else ""),
        compare_point=compare_point,
        step=None,
        cells={name: Cell(by_seed.get(name, {})) for name in CELLS},
        seeds=(),
        contrasts={},
        notes=(),
        refused=reason,
    )


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
