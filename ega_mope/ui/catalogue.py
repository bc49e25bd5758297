"""The runs that the pages show: yours and the shipped ones, as they are now.

Nothing is kept here: `list_runs` remembers what it has read of a run until its files change.
"""

from __future__ import annotations

import os
from pathlib import Path

import streamlit as st

from ega_mope import runs as run_folders
from ega_mope.config import Plain
from ega_mope.plots.style import run_colours
from ega_mope.runs import BrokenRun, Run, list_runs


def all_runs() -> list[Run | BrokenRun]:
    """Every run, yours first, then the shipped ones; broken folders with their problem."""
    return list_runs([run_folders.runs_folder(), run_folders.shipped_folder()])


def preferred_runs() -> list[Run]:
    """Those that can be read, in the order of preference: a page opens on the first that it can show."""
    return sorted((run for run in all_runs() if isinstance(run, Run)), key=_preference)


def summaries(runs: list[Run | BrokenRun]) -> list[Plain]:
    """One row for each of them, in the shape of `ega-mope runs --json`."""
    from ega_mope.analysis.runs import summarise

    return [summarise(run) for run in runs]


def colours() -> dict[str, str]:
    """The colour of each run by name, the same on every page."""
    return run_colours(run.name for run in all_runs())


def signature() -> tuple[object, ...]:
    """Stands for all runs as they are now: another one as soon as any of their files changes."""
    return tuple(
        (
            run.path,
            *((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in _files(run.path)),
        )
        for run in all_runs()
    )


def _files(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if entry.is_file()), key=lambda entry: entry.name)


def current_run() -> Run | None:
    """The run that `?run=` names, else the preferred one; None where there are no runs."""
    asked, runs = st.query_params.get("run"), preferred_runs()
    return next((run for run in runs if run_id(run) == asked), next(iter(runs), None))


def run_id(run: Run | BrokenRun) -> str:
    """What `?run=` says: its name, or its folder where one of yours has that name and comes first."""
    yours = run_folders.runs_folder() / run.name
    return str(run.path) if run.path != yours and yours.is_dir() else run.name


def nearest(run: Run, candidates: list[Run]) -> Run | None:
    """The candidate that shares most with `run`: corpus first, then preset, seed, mechanisms."""

    def shared(other: Run) -> tuple[bool, ...]:
        mine, its = _traits(run), _traits(other)
        return tuple(a == b for a, b in zip(mine, its, strict=True))

    return max(candidates, key=shared, default=None)


def _traits(run: Run) -> tuple[object, ...]:
    model = run.config.model
    corpus = run.document["corpus"]["sha256"], run.config.tokenizer
    return corpus, run.config.preset, run.seed, model.attention, model.position


def _preference(run: Run) -> tuple[object, ...]:
    """Gates and scales before either alone, wide scales before narrow, shipped before own."""
    return (
        -sum(name in run.learned_names for name in ("attention.threshold", "position.omega")),
        run.config.model.position.get("init") != "multiscale",
        run.sees_future is True,
        run.path.parent != run_folders.shipped_folder(),
        run.config.tokenizer != "characters",
        run.config.training is None,
        run.seed or 0,
        run.name,
    )
