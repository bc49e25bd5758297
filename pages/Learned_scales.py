"""Learned scales: where each Morlet pair is in the ω–σ plane, where it started and what it still says."""

import streamlit as st

from ega_mope import ui
from ega_mope.analysis import scales as analysis
from ega_mope.analysis.runs import marked_name
from ega_mope.analysis.scales import Scales
from ega_mope.plots import scales as plots
from ega_mope.runs import Run
from ega_mope.ui.groups import show_groups, show_stability
from ega_mope.ui.position import show_norms, show_other_encodings, show_reach
from ega_mope.ui.scales import pick_second, pick_step, read_scales
from ega_mope.ui.trajectories import show_training


def show_plane(run: Run, found: Scales, ranges: plots.Ranges, colour: str) -> None:
    table, moved = analysis.pairs_table(found), analysis.movement(found)
    position = run.config.model.position
    start = f"taken from {ui.plain(position['from_run'])}" if position["from_run"] else position["init"]
    frozen = "" if position["freeze"] == "nothing" else f", frozen: {position['freeze']}"
    st.caption(
        f"Start {start}{frozen}, admissibility {position['admissibility']}; step {found.step}. {moved}"
    )
    ui.figure(
        ui.drawn(plots.plane, table, bands=analysis.BANDS, limit=analysis.limit_area(found), ranges=ranges),
        key=f"plane-{ui.run_id(run)}",
        alt=f"{len(table)} pairs of {run.name} by σ and ω, with their starts. {moved}",
        how_to_read="A point is a wavelet pair, a ring where it started, an arrow how it moved; right is wider, up is "
        "faster. No pair can have left the dotted outline (not seen where it lies outside the picture). Shaded bands: chosen "
        "beforehand by the paper, not found in data.",
        table=table,
    )


def show_spectra(run: Run, found: Scales, ranges: plots.Ranges, colour: str) -> None:
    spectra = analysis.spectrum_table(found)
    for quantity, sign, shown in (("sigma", "σ", ranges[0]), ("omega", "ω", ranges[1])):
        ui.figure(
            ui.drawn(plots.spectrum, spectra, quantity, colour, shown),
            key=f"{quantity}-{ui.run_id(run)}",
            alt=f"How many pairs of {run.name} have which {sign}, now and at the start.",
            how_to_read=f"Pairs in each tenth of a decade of {sign}: filled now, dashed at the start.",
            table=spectra[spectra["quantity"] == quantity],
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
for number, column in enumerate(beside(runs, "The ω–σ plane")):
    with column:
        show_plane(runs[number], found[number], ranges[number], colours[number])
places = []
for number, column in enumerate(beside(runs, "Are there clusters?")):
    with column:
        show_groups(runs[number], found[number], colours[number])
        places.append(st.container())
for number, column in enumerate(beside(runs, "Spectra")):
    with column:
        show_spectra(runs[number], found[number], ranges[number], colours[number])
for number, column in enumerate(beside(runs, "Through training")):
    with column:
        show_training(runs[number], found[number], colours[number])
show_norms(runs, found)
show_other_encodings(runs)
for number, column in enumerate(beside(runs, "Reach")):
    with column:
        show_reach(runs[number], found[number])
# Last, since it takes longest: everything else stands meanwhile.
for number, place in enumerate(places):
    with place:
        show_stability(runs[number], found[number], colours[number])
