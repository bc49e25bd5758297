"""Third tab of Energy gates: gate and surprisal side by side, and what a clicked character attends to."""

from __future__ import annotations

import streamlit as st

from ega_mope.analysis.gate_meaning.attended import AttendedReading, attended
from ega_mope.analysis.gate_meaning.surprise import SurpriseReading, beside_surprisal
from ega_mope.plots.shades import SURPRISE
from ega_mope.plots.text import shaded_html
from ega_mope.runs import Run
from ega_mope.ui.clickable import clickable_text
from ega_mope.ui.gate_readings import Stamp, pick_head, pick_view, read_gates, stamp
from ega_mope.ui.models import load_model
from ega_mope.ui.pickers import sees_future_badge
from ega_mope.ui.show import plain, table

LABELS = {"gate": "gate rank", "surprisal": "surprisal", "difference": "difference"}
FIRST_QUERY = 40
SHADED = {"without": "Without the gate", "with": "With the gate", "gating": "With / without"}


def gate_and_surprise(run: Run, text: str) -> None:
    """Choose a shade and a head; click a character of the text to see what it attends to."""
    found = _read(str(run.path), stamp(run), text, run)
    left, middle, _ = st.columns(3)
    label = left.segmented_control(
        "Shade by", list(LABELS), default="difference", key="surprise", bind="query-params", required=True
    )
    place = pick_head(found, middle)
    if run.sees_future is not False:
        st.caption(f"{sees_future_badge(run)} Its surprisal may already know what comes.")
    left, right = st.columns([3, 2], gap="medium")
    with right:
        query = _pick_query(found)
    with left:
        _show_text(found, LABELS[label], place, query)
    with right:
        _show_attended(run, found, query, place)


@st.cache_resource(max_entries=4, show_spinner="Reading the text …")
def _read(path: str, stamp: Stamp, text: str, _run: Run) -> SurpriseReading:
    return beside_surprisal(load_model(_run), read_gates(_run, text, weight_change=False))


def _pick_query(found: SurpriseReading) -> int:
    """The character to look from. The URL decides and is written here: a click on the text changes it too."""
    asked = st.query_params.get("query", "")
    last = len(found.characters) - 1
    st.session_state["picked-query"] = min(int(asked) if asked.isdecimal() else FIRST_QUERY, last)
    return st.number_input(
        "What does the character at this position attend to?",
        0,
        last,
        key="picked-query",
        on_change=lambda: _ask(st.session_state["picked-query"]),
        help="Or click a character of the text.",
    )


def _ask(position: int) -> None:
    st.query_params["query"] = str(position)


def _show_text(found: SurpriseReading, shade: str, place: tuple[int, int], query: int) -> None:
    layer, head = place
    start, stop = pick_view(found.characters)

    def says(position: int) -> list[str]:
        return [
            f"surprisal {found.surprisal[position]:.2f} nats; ranks: gate {found.gate_rank[layer, head, position]:.2f}, "
            f"surprisal {found.surprisal_rank[layer, head, position]:.2f}"
        ]

    clickable_text(
        shaded_html(
            found, layer=layer, head=head, shade=shade, start=start, stop=stop, asked=query, says=says
        ),
        key="surprising-text",
        clicked=_ask,
    )
    st.caption(
        f"**Layer {layer + 1}, head {head + 1}**, {SURPRISE[shade].label}. A gate has no unit and surprisal is in nats, so "
        "both are shown by rank within this text: 0 the lowest of its characters, 1 the highest. Difference: blue where "
        "the gate is open on a character that surprises little, brown where it shuts on one that surprises. Click a "
        "character to look from it."
    )
    with st.expander("Table", icon=":material/table:"):
        table(found.surprise_table(layer, head), key="surprise-table", name="gate-and-surprise")


def _show_attended(run: Run, found: SurpriseReading, query: int, place: tuple[int, int]) -> None:
    layer, head = place
    seen: AttendedReading = attended(load_model(run), found, query)
    st.markdown(
        f"Character {plain(repr(found.characters[query]))} at {query:,}, in layer {layer + 1}, head {head + 1}"
    )
    for tab, shade in zip(st.tabs(list(SHADED.values())), SHADED, strict=True):
        with tab:
            st.html(
                shaded_html(
                    seen, layer=layer, head=head, shade=shade, start=seen.first, stop=query + 1, asked=query
                )
            )
    st.caption(
        "What the framed character may see: the characters before it in its window. Green: its share of attention, by "
        "decade, as softmax gives it and as the gate leaves it; last, the one over the other."
    )
    table(
        seen.table(layer, head),
        key="attended",
        name=f"attended-from-{query}",
        formats={"without the gate": "%.4f", "with the gate": "%.4f", "change (×)": "%.2f"},
    )
