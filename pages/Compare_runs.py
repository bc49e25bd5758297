"""Compare runs: loss curves by configuration, what differs, and how sure the differences are."""

from dataclasses import dataclass

import streamlit as st

from ega_mope import ui
from ega_mope.analysis import bits_per_byte, compare, curves
from ega_mope.analysis.losses import COMPARE_POINTS, METRICS
from ega_mope.plots.compare import loss_curves
from ega_mope.plots.style import run_colours, run_dashes
from ega_mope.runs import BrokenRun, Run

PER_BYTE = "bits per byte"
SPLITS = {"validation": ["validation"], "train": ["train"], "both": ["validation", "train"]}
START = 0.1  # share of the training that does not stretch the loss axis, unless asked


@dataclass(frozen=True)
class View:
    """What is shown, as chosen above the curves."""

    metric: str
    splits: list[str]
    axis: str
    band: str
    point: str
    smoothing: float
    x_log: bool
    y_log: bool
    leave_out: float

    def scale(self, one: compare.Configuration) -> curves.Convert:
        """How this configuration's nats per token become what is shown."""
        if self.metric == PER_BYTE:
            return bits_per_byte.measured(one.example).convert
        return METRICS[self.metric].convert


def choose_runs(known: list[compare.Configuration]) -> list[Run]:
    """Those that are picked, else all with every word of the filter in their name or their configuration's."""
    left, right = st.columns([1, 2])
    words = left.text_input(
        "Names that contain", key="filter", bind="query-params", placeholder="mope steps 1000",
        help="Words from the names of run folders, or of configurations as the legend has them.",
    )  # fmt: skip
    with right:
        picked = ui.pick_runs(label="Runs (all unless some are picked)", default=lambda runs: [])
    return picked or compare.named(known, words)


def choose(label: str, options: list[str], key: str) -> str:
    """One of a few, kept in the URL; opens on the first."""
    return st.segmented_control(
        label, options, default=options[0], key=key, bind="query-params", required=True
    )


def choose_view() -> View:
    """Scale, split, smoothing in sight; axes, band and compare point in a drawer, which a phone needs."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        metric, split = choose("Scale", [*METRICS, PER_BYTE], "scale"), choose("Loss", list(SPLITS), "split")
        smoothing = st.slider(
            "Smoothing", 0.0, 0.99, 0.0, 0.01, key="smoothing", bind="query-params", width=150
        )
        with st.popover("Axes and band", icon=":material/tune:"):
            axis, band = choose("Over", list(curves.AXES), "axis"), choose("Band", list(curves.BANDS), "band")
            point = choose("Compare at", list(COMPARE_POINTS), "point")
            x_log = st.toggle("log x", key="logx", bind="query-params")
            y_log = st.toggle("log loss", key="logy", bind="query-params")
            whole = st.toggle("whole range", key="whole", bind="query-params")
    splits = SPLITS["validation" if metric == PER_BYTE else split]
    return View(metric, splits, axis, band, point, smoothing, x_log, y_log, 0.0 if whole else START)


def show_panel(panel: compare.Panel, view: View) -> None:
    """Curves, losses and differences of runs that may share an axis."""
    found, names = panel.configurations, compare.labels(panel.configurations)
    unit = PER_BYTE if view.metric == PER_BYTE else METRICS[view.metric].unit(panel.tokenizer)
    members = compare.curves_table(panel, names, view.splits, view.axis, view.scale, view.smoothing)
    means = compare.means_table(members, view.band)
    fig = ui.drawn(
        loss_curves, members, means, colours, dashes, curves.AXES[view.axis], f"loss ({unit})",
        x_log=view.x_log, y_log=view.y_log, smoothed=view.smoothing > 0, leave_out=view.leave_out,
    )  # fmt: skip
    how = curves.how_to_read(view.band, view.leave_out)
    st.subheader(panel.title, anchor=False)
    badges = {ui.future_badge(one.sees_future): None for one in found}
    st.markdown(" ".join([compare.counted(found), *badges]))
    ui.figure(fig, key=f"curves-{panel.key}", alt=f"{unit}: {panel.title}", how_to_read=how, table=means)
    st.download_button(
        "All curves as CSV", lambda: members.to_csv(index=False), f"curves-{panel.key}.csv",
        key=f"export-{panel.key}", on_click="ignore", icon=":material/download:",
    )  # fmt: skip
    st.markdown(f"**Validation loss**, {unit}: {COMPARE_POINTS[view.point]}")
    losses = compare.summary_table(found, names, view.point, view.scale)
    ui.table(ui.marked(losses), key=f"losses-{panel.key}", name="losses")
    if len(found) > 1:
        st.markdown("**What differs**")
        ui.table(compare.differences(found, names), key=f"differences-{panel.key}", name="differences")
    if view.metric == PER_BYTE:
        st.markdown("**What the losses were measured on**")
        ui.table(bits_per_byte.covered_table(panel), key=f"covered-{panel.key}", name="covered")


ui.frame(
    "Compare runs",
    "Runs that differ in their seed alone are one configuration; "
    "losses share an axis only where they were measured alike.",
)
every = [run for run in ui.all_runs() if not isinstance(run, BrokenRun)]
known = compare.configurations(every)
keys = [one.key for one in known]
colours, dashes = run_colours(keys), run_dashes(keys)
chosen, view = compare.configurations(choose_runs(known)), choose_view()
with ui.reading_errors():
    panels, left_out = (
        bits_per_byte.byte_panels(chosen) if view.metric == PER_BYTE else (compare.panels(chosen), {})
    )
    if not chosen:
        st.info("No run has such a name: clear the filter, or pick runs.", icon=":material/info:")
    for panel in panels:
        show_panel(panel, view)
    for reason in dict.fromkeys(left_out.values()):
        st.warning(ui.plain(f"Not shown in bits per byte: {reason}"), icon=":material/warning:")
