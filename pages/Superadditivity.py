"""Superadditivity: do EGA and MoPE gain more together than the sum of what each gains alone?"""

import json

import streamlit as st

from ega_mope import ui
from ega_mope.analysis import superadditivity_report as report
from ega_mope.analysis.factorial import CELLS, Family, begun, find_families
from ega_mope.analysis.losses import COMPARE_POINTS, METRICS
from ega_mope.analysis.runs import future_mark
from ega_mope.analysis.superadditivity import superadditivity
from ega_mope.plots.superadditivity import gains_over_training, seed_gains, waterfall
from ega_mope.runs import BrokenRun


def choose_family(families: list[Family]) -> Family:
    """The 2×2 in `?family=`, else the first. Streamlit's own binding would put the long label there."""
    by_key = {family.key: family for family in families}
    asked = st.query_params.get("family")
    if asked is not None and asked not in by_key:
        st.warning(f"There is no complete 2×2 called {ui.plain(asked)}; this is the first.")
    st.session_state["picked-family"] = asked if asked in by_key else families[0].key

    def keep() -> None:
        st.query_params["family"] = st.session_state["picked-family"]

    def label(key: str) -> str:
        family = by_key[key]
        said = (family.label, f"N = {len(family.seeds)}", future_mark(family.sees_future))
        return " · ".join(filter(None, said))

    return by_key[st.selectbox("2×2", list(by_key), format_func=label, key="picked-family", on_change=keep)]


def choose(label: str, options: list[str], key: str) -> str:
    """One of a few, kept in the URL; opens on the first."""
    return st.segmented_control(
        label, options, default=options[0], key=key, bind="query-params", required=True
    )


def show_incomplete(families: list[Family]) -> None:
    """A choice among the 2×2s with at least two of their cells: why it cannot be computed, and what would help."""
    refused = begun(families)
    if not refused:
        return
    by_key = {family.key: family for family in refused}

    def label(key: str) -> str:
        count = len(by_key[key].lacking)
        return (f"{count} to train · " if count else "") + by_key[key].label

    with st.expander(f"{len(refused)} that cannot be computed yet", icon=":material/grid_off:"):
        chosen = st.selectbox(
            "2×2, fewest runs to train first", list(by_key), format_func=label, key="incomplete"
        )
        family = by_key[chosen]
        missing = ", ".join(f"{cell} ({CELLS[cell]})" for cell in family.missing)
        st.markdown(f"missing: {missing}; to train:" if missing else ui.plain(family.refused or ""))
        if family.commands:
            st.code("\n".join(family.commands), language="bash", wrap_lines=True)


ui.frame(
    "Superadditivity",
    "Do EGA and MoPE gain more together than the sum of what each gains alone? "
    "I = L10 + L01 − L00 − L11 is positive where together they gain more.",
)
families = find_families(run for run in ui.all_runs() if not isinstance(run, BrokenRun))
complete = [family for family in families if family.complete]
if not complete:
    st.info("No complete 2×2 yet: it takes runs with and without EGA, each with and without MoPE.")
    show_incomplete(families)
    st.stop()
family = choose_family(complete)
with st.container(horizontal=True, gap="medium"):
    metric = choose("Scale", list(METRICS), "scale")
    point = choose("Compare at", list(COMPARE_POINTS), "point")
with ui.reading_errors():
    result = superadditivity(family, metric=metric, compare_point=point)
    if result.refused:
        raise ValueError(result.refused)
cells, gains = report.cells_table(result), report.gains_table(result)

st.markdown(f"#### {ui.plain(report.verdict(result))}")
if family.sees_future:
    st.markdown(f"{ui.FUTURE_BADGE} {report.FUTURE_NOTE}")
st.markdown("\n".join(f"- {ui.plain(line)}" for line in report.remarks(result)))
st.markdown(f"**The four cells**, {result.unit}: {COMPARE_POINTS[point]}")
st.table(report.printed(cells), border="horizontal", hide_index=True)
st.caption(f"Lower is better; intervals are Student's t over seeds. The paper's: {report.PAPER_NOTE}.")
ui.figure(
    ui.drawn(waterfall, cells, gains, f"validation loss ({result.unit})"),
    key="waterfall",
    alt=report.verdict(result),
    how_to_read="From the baseline, each bar is what EGA and MoPE change alone; “sum of parts” is where plain "
    "addition would end; the last bar, the interaction, is what lies between that and both together. "
    "Blue lowers the loss, orange raises it; whiskers are 95 % intervals.",
    table=cells,
)
ui.figure(
    ui.drawn(seed_gains, gains, result.unit),
    key="seeds",
    alt=f"Gains for each seed, in {result.unit}",
    how_to_read="A point is a seed, a diamond the mean with its 95 % interval. Above 0 is a gain over the "
    "baseline, for the interaction a gain over plain addition."
    + ("" if result.paired else " The cells' seeds do not match, so there are no points."),
    table=gains,
)
course = report.course_table(result)
st.markdown("**In the course of training**")
ui.figure(
    ui.drawn(gains_over_training, course, result.unit),
    key="course",
    alt=f"Gains at each step of the training, in {result.unit}",
    how_to_read="The same gains at every step at which all of these runs were validated, with 95 % intervals: does one "
    "last, or does a model only learn sooner? A training of that length would have lowered its learning rate by then.",
    table=course,
)
with st.expander("Losses of the runs that count", icon=":material/table:"):
    ui.table(report.seeds_table(result), key="losses", name="superadditivity-losses")
document = json.dumps(result.to_json(), ensure_ascii=False, indent=2)
st.download_button("JSON", document, "superadditivity.json", on_click="ignore", icon=":material/download:")
options = f"--family {family.key} --metric {metric} --compare-point {point}"
st.code(f"ega-mope superadditivity {options} --json", language="bash", wrap_lines=True)
show_incomplete(families)
