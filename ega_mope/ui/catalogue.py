"""The runs that the pages show: yours and the shipped ones, read again when a folder changes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from ega_mope import runs as run_folders
from ega_mope.config import Plain
from ega_mope.plots.style import run_colours
from ega_mope.runs import BrokenRun, Run, list_runs

WATCHED = ("config.json", "metrics.jsonl", "learned.jsonl", "audit.json", "status.json")

Stamp = tuple[tuple[str, int, int], ...]
"""Path, time of change and size of each file that decides what a run shows."""


@dataclass(frozen=True)
class Catalogue:
    """Every run in the order of preference: the page opens on the first that it can show."""

    runs: tuple[Run | BrokenRun, ...]
    preferred: tuple[Run, ...]


def all_runs() -> list[Run | BrokenRun]:
    """Every run, yours first, then the shipped ones; broken folders with their problem."""
    return list(catalogue().runs)


def summaries() -> list[Plain]:
    """One row a run, in the shape of `ega-mope runs --json`."""
    return _summaries(_stamp(), _folders())


def colours() -> dict[str, str]:
    """The colour of each run by name, the same on every page."""
    return run_colours(run.name for run in all_runs())


def catalogue() -> Catalogue:
    """All runs and which to open on, from a cache that a change of any run's files renews."""
    return _catalogue(_stamp(), _folders())


def current_run() -> Run | None:
    """The run that `?run=` names, else the preferred one; None where there are no runs."""
    asked = st.query_params.get("run")
    runs = catalogue().preferred
    return next((run for run in runs if run_id(run) == asked), next(iter(runs), None))


def run_id(run: Run | BrokenRun) -> str:
    """What `?run=` says: its name, or its folder where another run has that name and comes first."""
    first = next(other for other in [*all_runs(), run] if other.name == run.name)
    return run.name if first.path == run.path else str(run.path)


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


def _folders() -> tuple[str, str]:
    return str(run_folders.runs_folder()), str(run_folders.shipped_folder())


def _stamp() -> Stamp:
    found = []
    for folder in map(Path, _folders()):
        for path in sorted(folder.glob("*/")):
            found.append((str(path), 0, 0))
            for file in (path / name for name in WATCHED):
                if file.exists():
                    stat = file.stat()
                    found.append((str(file), stat.st_mtime_ns, stat.st_size))
    return tuple(found)


@st.cache_resource(max_entries=4, show_spinner=False)
def _catalogue(stamp: Stamp, folders: tuple[str, str]) -> Catalogue:
    runs = tuple(list_runs([Path(folder) for folder in folders]))
    whole = [run for run in runs if isinstance(run, Run)]
    return Catalogue(runs, tuple(sorted(whole, key=_preference)))


def _preference(run: Run) -> tuple[object, ...]:
    """Gates and scales before either alone, wide scales before narrow, shipped before own."""
    learned = run.learned()
    values = learned[-1]["values"] if learned else {}
    return (
        -sum(name in values for name in ("attention.threshold", "position.omega")),
        run.config.model.position.get("init") != "multiscale",
        run.sees_future is True,
        run.path.parent != run_folders.shipped_folder(),
        run.config.tokenizer != "characters",
        run.config.training is None,
        run.seed or 0,
        run.name,
    )


@st.cache_data(max_entries=4, ttl=30, show_spinner=False)
def _summaries(stamp: Stamp, folders: tuple[str, str]) -> list[Plain]:
    """`ttl`: a trainer that dies changes no file, yet its run then reads as interrupted."""
    from ega_mope.analysis.runs import summarise

    return [summarise(run) for run in _catalogue(stamp, folders).runs]
