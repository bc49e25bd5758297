"""The scales through training: part of Learned scales."""

from __future__ import annotations

import streamlit as st

from ega_mope.analysis.scales import Scales
from ega_mope.analysis.trajectories import Trajectories, trajectories
from ega_mope.plots.drawn import Figure
from ega_mope.plots.trajectories import moves_by_step, ways
from ega_mope.runs import Run
from ega_mope.ui.catalogue import run_id
from ega_mope.ui.show import drawn, figure, plain


def _ways(made: Trajectories, clusters: dict[int, int]) -> Figure:
    return ways(made.table(), "sigma", clusters)


def show_training(run: Run, found: Scales, colour: str) -> None:
    """Every pair's σ by step, and the moves against what was possible; or why they cannot be drawn."""
    try:
        made = trajectories(run)
    except ValueError as error:
        st.caption(plain(str(error)))
        return
    by_step = made.by_step()
    last = by_step.iloc[-1]
    figure(
        drawn(moves_by_step, by_step, colour),
        key=f"moves-{run_id(run)}",
        alt=f"Moves of ω and σ by step; after {last['step']:.0f} steps the largest is {last['largest']:.3g} log units.",
        how_to_read="How far ω and σ are from their start, in log units (0.1 is about 10 %), under the most that the learning "
        "rates so far allow. A curve that follows the dotted one was held back by the training's length, not by its data.",
        table=by_step,
    )
    figure(
        drawn(_ways, made, dict(enumerate(found.clusters.labels))),
        key=f"ways-{run_id(run)}",
        alt=f"σ of all {len(found.pairs)} pairs of {run.name} by training step",
        how_to_read="Each line is a pair, in the colour of its cluster on the plane.",
        table=made.table,
    )
