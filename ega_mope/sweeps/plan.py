"""Every run of a sweep before it starts: settings, name, and how to know it again on the disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ega_mope.analysis.naming import digest
from ega_mope.config import ExperimentConfig, Plain, flatten, to_plain
from ega_mope.experiments import Prepared, compose, default_name, prepare
from ega_mope.runs import Run, comparable_settings
from ega_mope.sweeps.grids import Cell


@dataclass(frozen=True)
class Planned:
    """One run of a sweep, with its settings as they compare. `names` are what its folder may be called: the
    usual name, and one with a hash of settings and seed for where that is taken by a run of other settings."""

    cell: Cell
    config: ExperimentConfig
    settings: Plain
    names: tuple[str, ...]

    @property
    def key(self) -> str:
        """Stands for this run among those of its sweep."""
        return self.names[-1]

    def is_same(self, run: Run) -> bool:
        """Whether a run on the disk has these settings and this seed."""
        return run.seed == self.config.seed and run.settings() == self.settings


def plan(
    cells: Sequence[Cell],
    seeds: Iterable[int],
    *,
    preset_name: str = "small",
    corpus: str = "tinyshakespeare",
    tokenizer: str = "characters",
    overrides: Sequence[str] = (),
) -> list[Planned]:
    """The runs in order, seed by seed, so that every cell has its first seed before any has a second.

    `overrides` are KEY=VALUE; one that only some mechanisms have goes to the cells that have it. Raises
    ValueError for what cannot be trained, an override that fits no cell, and two cells of equal settings.
    """
    options = {"preset_name": preset_name, "corpus": corpus, "tokenizer": tokenizer}
    prepared = [_prepare(cell, _fitting(cells, cell, overrides, options), options) for cell in cells]
    runs: list[Planned] = []
    for seed in seeds:
        for cell, ready in zip(cells, prepared, strict=True):
            config = dataclasses.replace(ready.config, seed=seed)
            corpus_facts = {"name": ready.corpus.name, "sha256": ready.corpus.sha256, "tokenizer": tokenizer}
            settings = comparable_settings(config, corpus_facts)
            runs.append(Planned(cell, config, settings, _names(config, settings, runs)))
    _refuse_twins(runs[: len(cells)])
    return runs


def _names(config: ExperimentConfig, settings: Plain, before: list[Planned]) -> tuple[str, ...]:
    usual = default_name(config)
    hashed = f"{usual}-{digest({'settings': settings, 'seed': config.seed})}"
    return (hashed,) if any(planned.names[0] == usual for planned in before) else (usual, hashed)


def _refuse_twins(runs: list[Planned]) -> None:
    for n, planned in enumerate(runs):
        for other in runs[:n]:
            if planned.settings == other.settings:
                raise ValueError(
                    f"sweep: expected cells of different settings, got {other.cell.label!r} and "
                    f"{planned.cell.label!r} alike; remove one"
                )


def _prepare(cell: Cell, overrides: Sequence[str], options: Plain) -> Prepared:
    try:
        return prepare(compose(cell.attention, cell.position, **options, overrides=overrides))
    except ValueError as error:
        raise ValueError(f"cell {cell.label}: {error}") from None


def _fitting(cells: Sequence[Cell], cell: Cell, overrides: Sequence[str], options: Plain) -> list[str]:
    """The overrides this cell has a setting for, or that no cell has, then the cell's own."""

    def has(other: Cell, override: str) -> bool:
        key = override.partition("=")[0].strip()
        settings = flatten(to_plain(compose(other.attention, other.position, **options)))
        return any(dotted == key or dotted.endswith(f".{key}") for dotted in settings)

    return [
        *(o for o in overrides if has(cell, o) or not any(has(other, o) for other in cells)),
        *cell.overrides,
    ]
