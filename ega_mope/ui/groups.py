"""Are there clusters among a run's scales, and are they stable: part of Learned scales."""

from __future__ import annotations

import streamlit as st

from ega_mope.analysis.clusters import verdict
from ega_mope.analysis.scales import Scales, bic_table
from ega_mope.analysis.stability import groups_table, wins_table
from ega_mope.plots.scales import bic_curve
from ega_mope.plots.trajectories import wins
from ega_mope.runs import Run
from ega_mope.ui.catalogue import run_id
from ega_mope.ui.scales import read_stability
from ega_mope.ui.show import drawn, figure, plain, table


def show_groups(run: Run, found: Scales, colour: str) -> None:
    """The verdict and its BIC curve, beside the start's."""
    start, said = found.start_clusters, verdict(found.clusters, found.start_clusters)
    st.markdown(said)
    figure(
        drawn(bic_curve, bic_table(found), found.clusters.chosen, start.chosen if start else None, colour),
        key=f"bic-{run_id(run)}",
        alt=f"BIC by number of clusters. {said}",
        how_to_read="Lower is better. Marked is the fewest clusters within 2 of the lowest BIC: a star now, a ring at the "
        "start. All clusters of one fit share their shape and are at least 5 % wide.",
        table=bic_table(found),
    )


def show_stability(run: Run, found: Scales, colour: str) -> None:
    """What bootstrap draws of the pairs make of the same question."""
    now, start = read_stability(run, found)
    st.markdown(plain(now.in_words))
    won = wins_table(now, start)
    figure(
        drawn(wins, won, now.chosen, colour),
        key=f"wins-{run_id(run)}",
        alt=f"On how many bootstrap draws each number of groups won. {now.in_words}",
        how_to_read="Pairs are drawn anew with replacement and fitted again, a pair drawn twice counted once. Dark: the "
        "number chosen on all pairs. If others win often, the number of groups is not to be relied on.",
        table=won,
    )
    if now.chosen > 1:
        table(groups_table(found.clusters, now), key=f"groups-{run_id(run)}", name=f"groups-{run.name}")
