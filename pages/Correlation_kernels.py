"""Correlation kernels: what the learned pairs compare at a lag, and what heads do with it on a text."""

from collections.abc import Callable

import streamlit as st

from ega_mope import ui
from ega_mope.analysis import kernels as analysis
from ega_mope.analysis.lags import why_no_lags
from ega_mope.analysis.scales import BANDS, Scales, limit_area, pairs_table, why_no_scales
from ega_mope.plots import kernels as plots
from ega_mope.plots.scales import plane, plane_ranges
from ega_mope.runs import Run
from ega_mope.ui.correlation import measured_on_text
from ega_mope.ui.lags import show_lags
from ega_mope.ui.length import show_loss_by_position
from ega_mope.ui.locality import show_ranges
from ega_mope.ui.scales import read_scales

LAGS = 64


def show_kernels(found: Scales, most: int) -> int:
    """The plane to pick pairs on, and the kernels of those picked; returns the longest lag shown."""
    left, right = st.columns(2, gap="large")
    table = pairs_table(found)
    with left:
        picked = ui.figure(
            ui.drawn(
                plane, table, bands=BANDS, limit=limit_area(found), ranges=plane_ranges([table]), height=420
            ),
            key="pick",
            alt=f"{len(table)} pairs by σ and ω, to pick from",
            how_to_read="Click pairs, or draw a box or a lasso around some, to see their kernels; a double click lets go. "
            "While none is picked, four from narrow to wide are shown.",
            table=table,
            on_select="rerun",
            selection_mode=("points", "box", "lasso"),
        )
    pairs = sorted({point["customdata"][0] for point in picked.selection.points if "customdata" in point})
    with right:
        lags = st.slider("Lags up to (tokens)", 4, most, min(LAGS, most), key="lags", bind="query-params")
        limits = st.pills(
            "Limits", list(analysis.LIMITS), selection_mode="multi", key="limits", bind="query-params"
        )
        kernels = analysis.kernels_table(found, lags, pairs or analysis.across(found))
        ui.figure(
            ui.drawn(plots.kernel_lines, kernels, limits),
            key="kernels",
            alt=f"C(τ) up to lag {lags}: the mean of all pairs and of pairs {pairs or analysis.across(found)}",
            how_to_read="How alike a pair's code is at two places τ tokens apart, averaged over all places; the same for −τ. "
            "Limits, of the mean of the pairs shown: σ → ∞, the sinusoidal encoding at their ω; ω = 0, their windows alone.",
            table=kernels,
        )
    return lags


def show_clusters_and_table(found: Scales, lags: int, context_length: int) -> None:
    left, right = st.columns(2, gap="large")
    clusters, gram = analysis.cluster_table(found, lags), analysis.gram(found, context_length)
    with left:
        st.subheader("By cluster", anchor=False)
        ui.figure(
            ui.drawn(plots.cluster_lines, clusters),
            key="clusters",
            alt=f"The mean kernel of each of {found.clusters.chosen} clusters by lag",
            how_to_read="The mean kernel of each cluster on the plane; with one cluster it is the mean of all pairs.",
            table=clusters,
        )
    with right:
        st.subheader("The real table", anchor=False)
        ui.figure(
            ui.drawn(plots.gram_matrix, gram, dark=st.context.theme.type == "dark"),
            key="gram",
            alt="Product of the encodings of each two positions; it fades away from position 0.",
            how_to_read="MoPE(b)·MoPE(b′) as the model has it. A kernel would give the same along every diagonal; here the "
            "product also fades with b, since the envelope is centred at position 0 of the window.",
            table=analysis.gram_table(gram),
        )


def show_pairs(run: Run) -> None:
    context_length = run.config.model.context_length
    found = read_scales(run)
    st.subheader("Pairs and their kernels", anchor=False)
    lags = show_kernels(found, context_length - 1)
    show_clusters_and_table(found, lags, context_length)


VIEWS: dict[str, tuple[Callable[[Run], str | None], Callable[[Run], None]]] = {
    "kernels": (why_no_scales, show_pairs),
    "on a text": (ui.why_no_weights, measured_on_text),
    "range of heads": (ui.why_no_weights, show_ranges),
    "learned lags": (why_no_lags, show_lags),
    "loss by position": (ui.why_no_weights, show_loss_by_position),
}
ui.frame(
    "Correlation kernels",
    "At which distances do the learned scales compare, and what do the heads make of it?",
)
view = st.segmented_control(
    "Show", list(VIEWS), default="kernels", key="view", bind="query-params", required=True
)
needs, show = VIEWS[view]
run = ui.pick_run(needs)
with ui.reading_errors():
    show(run)
