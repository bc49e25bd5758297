"""Learned scales as the pages read them: from a cache that a change of the run's files renews."""

from __future__ import annotations

import streamlit as st

from ega_mope.analysis import scales as analysis
from ega_mope.analysis.scales import Scales
from ega_mope.analysis.stability import Stability, stability
from ega_mope.runs import Run
from ega_mope.ui.catalogue import all_runs, nearest
from ega_mope.ui.pickers import pick_beside

BEST = "best"


def read_scales(run: Run, step: int | None = None) -> Scales:
    """At the best weights, or at `step`, or where that has no record at the last one before it."""
    if step is not None:
        step = max((one for one in analysis.recorded_steps(run) if one <= step), default=None)
    files = [run.path / name for name in ("model.safetensors", "learned.jsonl")]
    times = tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)
    return _read(str(run.path), times, step, run)


@st.cache_resource(max_entries=64, show_spinner="Reading the scales …")
def _read(path: str, times: tuple[int, ...], step: int | None, _run: Run) -> Scales:
    return analysis.scales(_run, step)


def read_stability(run: Run, found: Scales) -> tuple[Stability, Stability | None]:
    """How stable the groups of these scales are, and those of their start; None where that is not recorded."""
    return _stability(str(run.path), found.step, found.points.tobytes(), found)


@st.cache_resource(max_entries=64, show_spinner="Refitting on bootstrap draws …")
def _stability(
    path: str, step: int | None, points: bytes, _found: Scales
) -> tuple[Stability, Stability | None]:
    starts, start_groups = _found.start_points, _found.start_clusters
    now = stability(_found.points, _found.clusters)
    return now, None if starts is None or start_groups is None else stability(starts, start_groups)


def pick_second(first: Run, label: str = "Beside it") -> Run | None:
    """A run with scales to stand beside `first`, bound to `?beside=`: at first one that started elsewhere."""
    runs = [run for run in all_runs() if isinstance(run, Run) and analysis.why_no_scales(run) is None]
    start = first.config.model.position["init"]
    other = nearest(first, [run for run in runs if run.config.model.position["init"] != start])
    return pick_beside(first, runs, other, label)


def pick_step(runs: list[Run]) -> int | None:
    """A recorded training step of any of these runs, bound to `?step=`; None for each run's best weights."""
    steps = sorted({step for run in runs for step in analysis.recorded_steps(run)})
    if len(steps) < 2:
        return None
    chosen = st.select_slider(
        "Training step",
        [*map(str, steps), BEST],
        value=BEST,
        key="step",
        bind="query-params",
        help="Scales are recorded at every evaluation; best is the step with the lowest validation loss.",
    )
    return None if chosen == BEST else int(chosen)
