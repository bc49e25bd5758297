"""Learned scales: where each Morlet pair is in the ω–σ plane, where it started and what it still says."""

import pandas as pd
import streamlit as st

from ega_mope import ui
from ega_mope.analysis import scales as analysis
from ega_mope.analysis.clusters import verdict
from ega_mope.analysis.position_norm import embedding_norm, morlet_norm
from ega_mope.analysis.runs import marked_name
from ega_mope.analysis.scales import Scales
from ega_mope.plots import scales as plots
from ega_mope.runs import Run
from ega_mope.ui.scales import pick_second, pick_step, read_scales


def show_plane(run: Run, found: Scales, ranges: plots.Ranges, colour: str) -> None:
    table, moved = analysis.pairs_table(found), analysis.movement(found)
    position = run.config.model.position
    start = f"taken from {ui.plain(position['from_run'])}" if position["from_run"] else position["init"]
    frozen = "" if position["freeze"] == "nothing" else f", frozen: {position['freeze']}"
    st.caption(
        f"Start {start}{frozen}, admissibility {position['admissibility']}; step {found.step}. {moved}"
    )
    ui.figure(
        plots.plane(table, bands=analysis.BANDS, limit=analysis.limit_area(found), ranges=ranges),
        key=f"plane-{ui.run_id(run)}",
        alt=f"{len(table)} pairs of {run.name} by σ and ω, with their starts. {moved}",
        how_to_read="A point is a wavelet pair, a ring where it started, an arrow how it moved; right is wider, up is "
        "faster. No pair can have left the dotted outline (not seen where it lies outside the picture). Shaded bands: chosen "
        "beforehand by the paper, not found in data.",
        table=table,
    )


def show_clusters(run: Run, found: Scales, ranges: plots.Ranges, colour: str) -> None:
    start, said = found.start_clusters, verdict(found.clusters, found.start_clusters)
    st.markdown(f"{said}")
    table = analysis.bic_table(found)
    ui.figure(
        plots.bic_curve(table, found.clusters.chosen, start.chosen if start else None, colour),
        key=f"bic-{ui.run_id(run)}",
        alt=f"BIC by number of clusters. {said}",
        how_to_read="Lower is better. Marked is the fewest clusters within 2 of the lowest BIC: a star now, a ring at the "
        "start. All clusters of one fit share their shape and are at least 5 % wide.",
        table=table,
    )


def show_spectra(run: Run, found: Scales, ranges: plots.Ranges, colour: str) -> None:
    spectra = analysis.spectrum_table(found)
    for quantity, sign, shown in (("sigma", "σ", ranges[0]), ("omega", "ω", ranges[1])):
        ui.figure(
            plots.spectrum(spectra, quantity, colour, shown),
            key=f"{quantity}-{ui.run_id(run)}",
            alt=f"How many pairs of {run.name} have which {sign}, now and at the start.",
            how_to_read=f"Pairs in each tenth of a decade of {sign}: filled now, dashed at the start.",
            table=spectra[spectra["quantity"] == quantity],
        )


def show_reach(run: Run, found: Scales) -> None:
    st.markdown("Tokens from the window's start to where a pair's envelope is down to 1/e, and to 1 %.")
    columns = {
        "reach_1e_tokens": "1/e (tokens)",
        "reach_tokens": "1 % (tokens)",
        "sigma": "σ (tokens)",
    }
    reach = analysis.pairs_table(found)[["pair", "sigma", "reach_1e_tokens", "reach_tokens", "band"]]
    ui.table(reach.rename(columns=columns), key=f"reach-{ui.run_id(run)}", name=f"reach-{run.name}")


def show_norms(runs: list[Run], found: list[Scales]) -> None:
    """What position still says at token b, all runs in one figure."""
    st.subheader("What does position still say at token b?", anchor=False)
    names = [marked_name(run, ui.run_id(run)) for run in runs]
    norms = [morlet_norm(one, run.config.model.context_length) for run, one in zip(runs, found, strict=True)]
    said = [f"{name}: {norm.in_words}" for name, norm in zip(names, norms, strict=True)]
    st.markdown("  \n".join(map(ui.plain, said)))
    ui.figure(
        plots.norm_by_position(
            {name: norm.table() for name, norm in zip(names, norms, strict=True)},
            {name: embedding_norm(ui.load_model(run)) for name, run in zip(names, runs, strict=True)},
            {name: ui.colours()[run.name] for name, run in zip(names, runs, strict=True)},
        ),
        key="norm",
        alt=" ".join(said),
        how_to_read="The length of the vector that tells the model where a token stands. Far below the dotted line, the "
        "mean length of a token's embedding at the best weights, hardly any position is left.",
        table=pd.concat([norm.table().assign(run=name) for name, norm in zip(names, norms, strict=True)]),
    )


def beside(runs: list[Run], title: str) -> list[st.delta_generator.DeltaGenerator]:
    """A column a run, each with the run's name."""
    st.subheader(title, anchor=False)
    columns = st.columns(len(runs), gap="large")
    for column, run in zip(columns, runs, strict=True):
        column.markdown(f"**{ui.plain(marked_name(run, ui.run_id(run)))}**")
    return columns


ui.frame(
    "Learned scales",
    "Each Morlet pair has a frequency ω and a width σ. Where did training move them, and how far?",
)
left, right = st.columns(2, gap="large")
with left:
    first = ui.pick_run(
        analysis.why_no_scales, prefer=lambda run: run.config.model.position.get("init") == "multiscale"
    )
with right:
    second = pick_second(first)
runs = [first, second] if second else [first]
with ui.reading_errors():
    step = pick_step(runs)
    found = [read_scales(run, step) for run in runs]
tables = [analysis.pairs_table(one) for one in found]
same = len(runs) == 1 or st.toggle("Same axes for both", True, key="same", bind="query-params")
colours = [ui.colours()[run.name] for run in runs]
ranges = [plots.plane_ranges(tables if same else [table]) for table in tables]
parts = (("The ω–σ plane", show_plane), ("Are there clusters?", show_clusters), ("Spectra", show_spectra))
for title, show in parts:
    for number, column in enumerate(beside(runs, title)):
        with column:
            show(runs[number], found[number], ranges[number], colours[number])
show_norms(runs, found)
for column, run, one in zip(beside(runs, "Reach"), runs, found, strict=True):
    with column:
        show_reach(run, one)
