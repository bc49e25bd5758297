"""Losses of some models held against each other, seed by seed, wherever all else is equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ega_mope.analysis.claims.evidence import PAPERS_TEXT, Evidence, config_of, setup
from ega_mope.analysis.claims.outcome import (
    MARGIN_NATS,
    Outcome,
    Part,
    Verdict,
    all_gain,
    too_few,
    weakest,
)
from ega_mope.analysis.factorial import stratum
from ega_mope.analysis.intervals import t_interval
from ega_mope.analysis.naming import attention_name, position_name
from ega_mope.analysis.train_command import sweep_command, train_commands
from ega_mope.config import ExperimentConfig, ModelConfig, Plain, preset
from ega_mope.model import resolve
from ega_mope.runs import Run

SEEDS = 6
"""Seeds a comparison is brought to by the commands that are offered: the fewest for p < 0.05 by sign flips."""


@dataclass(frozen=True)
class Mechanisms:
    """An attention and a position with every setting filled in."""

    attention: Plain
    position: Plain

    @property
    def name(self) -> str:
        """Such as "ega causal + learned"."""
        return f"{attention_name(self.attention)} + {position_name(self.position)}"

    def are_of(self, run: Run) -> bool:
        """Whether a run has exactly these."""
        model = run.config.model
        return model.attention == self.attention and model.position == self.position


def model(attention: str | Plain = "dot", position: str | Plain = "learned") -> Mechanisms:
    """Mechanisms by name or `{"name": …, setting: value}`; what is not given is at its default."""
    given = [{"name": one} if isinstance(one, str) else one for one in (attention, position)]
    filled = resolve(ModelConfig(attention=given[0], position=given[1]))
    return Mechanisms(filled.attention, filled.position)


Cells = Mapping[str, Mechanisms]
Weights = Mapping[str, int]
"""Coefficients of the cells' losses; a positive sum is a gain."""


@dataclass(frozen=True)
class Comparison:
    """Finished runs of some cells that share all else: one run a cell and seed."""

    cells: Cells
    runs: Mapping[str, Mapping[int, Run]]
    example: Run

    @property
    def seeds(self) -> list[int]:
        """Seeds that every cell has."""
        return sorted(set.intersection(*(set(by_seed) for by_seed in self.runs.values())))

    @property
    def used(self) -> tuple[Run, ...]:
        """The runs at those seeds."""
        return tuple(by_seed[seed] for by_seed in self.runs.values() for seed in self.seeds)

    def per_seed(self, weights: Weights, loss: Callable[[Run], float]) -> dict[int, float]:
        """Σ weight · loss of the cells at each shared seed, nats per token."""
        return {
            seed: sum(weight * loss(self.runs[cell][seed]) for cell, weight in weights.items())
            for seed in self.seeds
        }


def comparisons(evidence: Evidence, cells: Cells) -> list[Comparison]:
    """Every set of comparable runs with at least one of the cells, the deciding one first.

    Order: most shared seeds, most cells with any run, the paper's text before others, most steps, most runs,
    then by name. Of two runs of one cell and seed the first counts.
    """
    groups: dict[str, list[tuple[str, Run]]] = {}
    for run in evidence.finished:
        for name, cell in cells.items():
            if cell.are_of(run):
                groups.setdefault(stratum(run), []).append((name, run))
    found = []
    for members in groups.values():
        runs: dict[str, dict[int, Run]] = {name: {} for name in cells}
        for name, run in members:
            runs[name].setdefault(config_of(run).seed, run)
        found.append(Comparison(cells, runs, members[0][1]))
    return sorted(found, key=_rank)


def _rank(one: Comparison) -> tuple[object, ...]:
    filled = sum(map(bool, one.runs.values()))
    steps, runs = config_of(one.example).training.steps, sum(map(len, one.runs.values()))
    elsewhere = one.example.document["corpus"]["name"] != PAPERS_TEXT
    return -len(one.seeds), -filled, elsewhere, -steps, -runs, setup(one.example)


def contrast(evidence: Evidence, one: Comparison, weights: Weights, name: str) -> Part:
    """A gain over the seeds that all cells share: mean and 95 % t interval, nats per token."""
    values = list(one.per_seed(weights, evidence.loss).values())
    mean = float(np.mean(values)) if values else None
    return Part(name, mean, "nats", t_interval(values), len(values))


def judge_gains(
    *variants: Cells,
    contrasts: Mapping[str, Weights],
    rule: Callable[[Iterable[Part]], Verdict] = all_gain,
    grid: str | None = None,
    beside: Callable[[Evidence, Comparison], Sequence[Part]] = lambda evidence, one: (),
) -> Callable[[Evidence], Outcome]:
    """A judge of gains between cells. Of several variants (the same contrast under another attention, say)
    the best supplied comparison decides. `grid` names the sweep that trains all cells; `beside` adds numbers.
    """

    def judge(evidence: Evidence) -> Outcome:
        found = sorted((one for cells in variants for one in comparisons(evidence, cells)), key=_rank)
        if not found:
            cells = variants[0]
            return Outcome(
                verdict="undecided",
                unit="nats",
                reason=f"no run yet of {_listed(cell.name for cell in cells.values())}",
                commands=commands(None, cells, {}, grid),
            )
        first = found[0]
        parts = [contrast(evidence, first, weights, name) for name, weights in contrasts.items()]
        decides, verdict = weakest(parts), rule(parts)
        others = [_elsewhere(evidence, one, contrasts) for one in found[1:] if one.seeds]
        return Outcome(
            verdict=verdict,
            unit="nats",
            estimate=decides.estimate,
            interval=decides.interval,
            n=len(first.seeds),
            reason=_reason(first, parts, verdict),
            parts=(*(parts if len(parts) > 1 and first.seeds else ()), *beside(evidence, first), *others),
            runs=first.used,
            commands=commands(first.example, first.cells, first.runs, grid),
        )

    return judge


def commands(
    like: Run | None, cells: Cells, runs: Mapping[str, Mapping[int, Run]], grid: str | None = None
) -> tuple[str, ...]:
    """What brings every cell to SEEDS seeds, or, where all have them, to twice as many as they share."""
    seeds = [set(runs.get(name, ())) for name in cells]
    shared = len(set.intersection(*seeds))
    wanted = range(SEEDS if shared < SEEDS else 2 * shared)
    if grid:
        return (sweep_command(like, grid, list(wanted)),)
    missing = {name: [seed for seed in wanted if seed not in runs.get(name, ())] for name in cells}
    return tuple(
        train_commands(like, _settings(like, cells[name]), lacking)
        for name, lacking in missing.items()
        if lacking
    )


def _settings(like: Run | None, mechanisms: Mechanisms) -> ExperimentConfig:
    """The settings of such a run with these mechanisms; without one, those of the study's size."""
    if like is None:
        size, training = preset("small")
        base = ExperimentConfig(model=size, training=training)
    else:
        base = config_of(like)
    changed = replace(base.model, attention=mechanisms.attention, position=mechanisms.position)
    return replace(base, model=changed)


def _elsewhere(evidence: Evidence, one: Comparison, contrasts: Mapping[str, Weights]) -> Part:
    decides = weakest([contrast(evidence, one, weights, name) for name, weights in contrasts.items()])
    which = next(iter(one.cells.values())).name if len(one.cells) == 2 else ""
    return replace(decides, name=f"also: {setup(one.example)}{f', beside {which}' if which else ''}")


def _reason(one: Comparison, parts: Sequence[Part], verdict: Verdict) -> str:
    """Where it was measured and why the verdict is what it is."""
    where = setup(one.example)
    lacking = [cell.name for name, cell in one.cells.items() if not one.runs[name]]
    if lacking:
        return f"no run yet of {_listed(lacking)} beside the others ({where})"
    few = too_few(len(one.seeds))
    if few:
        return f"{_listed(cell.name for cell in one.cells.values())} share {few} ({where})"
    if verdict == "undecided":
        open_ones = [part for part in parts if part.interval and _open(part)]
        named = _listed(part.name for part in open_ones) if len(parts) > 1 else "the interval"
        return f"{named}: both no gain and a gain above {MARGIN_NATS} nats are possible ({where})"
    low = weakest(parts)
    named = low.name if len(parts) > 1 else "the interval"
    assert low.interval is not None
    word = "lies wholly above 0" if low.interval.low > 0 else f"ends below {MARGIN_NATS} nats"
    return f"{named} {word} ({where})"


def _open(part: Part) -> bool:
    assert part.interval is not None
    return part.interval.low <= 0 and part.interval.high >= MARGIN_NATS


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}"
