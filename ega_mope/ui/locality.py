"""How far back heads look, beside even attention and shuffled text: one view of Correlation kernels."""

from __future__ import annotations

import streamlit as st

from ega_mope.analysis.locality import (
    LOCAL,
    Locality,
    beside_controls,
    biased_by_distance,
    locality,
    locality_in_words,
)
from ega_mope.analysis.scales import why_no_scales
from ega_mope.plots import locality as plots
from ega_mope.runs import Run
from ega_mope.ui.catalogue import all_runs, nearest, run_id
from ega_mope.ui.models import load_model, weights_stamp, why_no_weights
from ega_mope.ui.pickers import pick_beside, sees_future_badge
from ega_mope.ui.show import drawn, figure, plain
from ega_mope.ui.texts import pick_text


@st.cache_resource(max_entries=8, show_spinner="Reading the text, and its tokens shuffled …")
def _measure(path: str, stamp: int, text: str, _run: Run) -> Locality:
    return locality(_run, text, model=load_model(_run))


def show_ranges(first: Run) -> None:
    """Two runs' heads beside each other, then one head by distance."""
    second = pick_beside(first, *_counterparts(first))
    text = pick_text()
    runs = [first, second] if second else [first]
    found = [_measure(*weights_stamp(run), text, run) for run in runs]
    st.subheader("Do heads become local by themselves?", anchor=False)
    st.caption(
        "Nothing in a dot-product head makes it look nearby: untrained, its attention is spread evenly. A head that is local "
        "on shuffled text as well goes by place, not by what is written there. Attention before any gate."
    )
    for column, run, one in zip(st.columns(len(runs), gap="large"), runs, found, strict=True):
        with column:
            st.markdown(f"**{plain(run_id(run))}** {sees_future_badge(run)}")
            _one_run(run, one)
    _one_head(runs, found)


def _counterparts(first: Run) -> tuple[list[Run], Run | None]:
    """Runs with weights, and the nearest of the other kind: with pairs beside one without, and the reverse."""
    runs = [run for run in all_runs() if isinstance(run, Run) and why_no_weights(run) is None]
    paired = why_no_scales(first) is None
    others = [run for run in runs if (why_no_scales(run) is None) != paired and run.path != first.path]
    dot = [run for run in others if run.config.model.attention["name"] == "dot"]
    return runs, nearest(first, dot or others)


def _one_run(run: Run, found: Locality) -> None:
    said = locality_in_words(found.ranges)
    st.markdown(plain(said))
    if biased_by_distance(run):
        st.caption("Its positions lower every score with the distance: such heads are local by design.")
    figure(
        drawn(plots.head_ranges, found.table(), LOCAL),
        key=f"ranges-{run_id(run)}",
        alt=f"Mean distance that each head of {run.name} looks back, on the text and shuffled. {said}",
        how_to_read="How far back a head looks on average, over queries in the second half of a window; lines are 95 % "
        f"intervals over {found.text.windows} windows. Left of {LOCAL:.0%} of even attention's a head is called local.",
        table=found.table(),
    )


def _one_head(runs: list[Run], found: list[Locality]) -> None:
    st.subheader("One head by distance", anchor=False)
    layers, heads = (min(one.text.scores.shape[axis] for one in found) for axis in (1, 2))
    left, right = st.columns(2, gap="large")
    layer = left.selectbox("Layer", range(1, layers + 1), key="layer", bind="query-params") - 1
    head = right.selectbox("Head", range(1, heads + 1), key="head", bind="query-params") - 1
    for column, run, one in zip(st.columns(len(runs), gap="large"), runs, found, strict=True):
        table = beside_controls(one.text, one.shuffled, layer, head, one.kernel)
        with column:
            st.markdown(f"**{plain(run_id(run))}**")
            figure(
                drawn(plots.one_head, table, "score", "S(δ) (nats)"),
                key=f"score-{run_id(run)}",
                alt=f"Mean score by distance of layer {layer + 1}, head {head + 1} of {run.name}, and on shuffled text",
                how_to_read=f"The mean score of a key δ tokens back.{_fit(one, layer, head)} Far right few queries are left.",
                table=table,
            )
            figure(
                drawn(plots.one_head, table, "attention", "mean attention weight"),
                key=f"attention-{run_id(run)}",
                alt=f"Mean attention by distance of layer {layer + 1}, head {head + 1} of {run.name}",
                how_to_read="The mean weight of a key δ tokens back; dotted, what even attention gives. Shaded: the middle "
                "80 % of windows.",
            )


def _fit(found: Locality, layer: int, head: int) -> str:
    share = found.table().set_index(["layer", "head"])["kernel_r_squared"][layer + 1, head + 1]
    if share != share:
        return ""
    return f" Dotted: the pairs' mean kernel, stretched to fit; it explains {share:.0%} of the curve."
