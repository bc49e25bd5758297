"""First tab of Energy gates: the text, each character shaded by one head's gate, and every head in small."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from ega_mope.analysis import gate_tables as tables
from ega_mope.analysis.gates import GateReading
from ega_mope.plots.gates import COLUMNS, ROWS, overview, thumbnails
from ega_mope.plots.shades import SHADES
from ega_mope.plots.text import shaded_html
from ega_mope.runs import Run
from ega_mope.ui.gate_readings import (
    QUICK,
    downloads,
    gate_tables,
    page_mode,
    pick_head,
    pick_view,
    read_gates,
)
from ega_mope.ui.show import drawn, figure

LABELS = {shade.label: name for name, shade in SHADES.items()}


def shaded_text(run: Run, text: str) -> None:
    """Choose shade, head and bound; then the text, all heads, one head over the whole text, and the tables."""
    reading, shade, place, keep = _settings(run, text)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        view = _show_text(reading, shade, place, keep)
        downloads(reading, place, shade, keep)
    with right:
        _show_heads(reading, shade, place, keep)
        _show_strip(reading, shade, place, view)
    gate_tables(reading, place, view)


def _settings(run: Run, text: str) -> tuple[GateReading, str, tuple[int, int], float]:
    """The reading, and how to show it: shade, (layer, head) from 0, the gate to keep above."""
    left, middle, right = st.columns(3)
    shade = LABELS[
        left.segmented_control(
            "Shade by", list(LABELS), default="gate", key="shade", bind="query-params", required=True
        )
    ]
    reading = read_gates(run, text, weight_change=len(text) <= QUICK or shade == "change")
    place = pick_head(reading, middle)
    keep = right.slider("Keep above g =", 0.0, 1.0, 0.0, 0.01, key="keep", bind="query-params")
    right.markdown(f"**{tables.kept_above(reading.gate[place], keep)}**")
    return reading, shade, place, keep


def _show_text(reading: GateReading, shade: str, place: tuple[int, int], keep: float) -> tuple[int, int]:
    """One view of the text, shaded; returns where it starts and stops."""
    layer, head = place
    start, stop = pick_view(reading.characters)
    st.html(
        shaded_html(reading, layer=layer, head=head, shade=shade, start=start, stop=stop, keep_above=keep)
    )
    st.caption(
        f"**Layer {layer + 1}, head {head + 1}**, characters {start:,} to {stop - 1:,} of "
        f"{len(reading.characters):,}. Hover a character for its values in every head. In layer 1 a gate sees the "
        "character and its position alone, in later layers the character in context. An emoji or letter of several "
        "code points is one cell with the shade of the first one that is read. Weight change: the attention that a "
        "character gets from its window's queries after gating, as a multiple of before."
    )
    return start, stop


def _open_clicked() -> None:
    """A click on a thumbnail chooses its head."""
    for point in st.session_state["heads"].selection.points:
        layer, head = point["customdata"]
        st.session_state["head"] = f"L{layer + 1} H{head + 1}"


def _show_heads(reading: GateReading, shade: str, place: tuple[int, int], keep: float) -> None:
    """Every head as a thumbnail; a click opens one."""
    values = getattr(reading, SHADES[shade].attribute)
    layers, heads = values.shape[:2]
    figure(
        drawn(
            thumbnails,
            tables.profile(values, COLUMNS * ROWS),
            reading.spread(),
            chosen=place,
            shade=shade,
            mode=page_mode(),
        ),
        key="heads",
        alt=f"The text in each of {layers} × {heads} heads, shaded by {SHADES[shade].label}",
        how_to_read="Each thumbnail is the whole text in reading order in one head, shaded as the text is; click one "
        "to open it. Framed: the one shown. Spread: standard deviation of a head's gates on this text.",
        table=tables.heads_table(reading, keep),
        on_select=_open_clicked,
    )


def _show_strip(reading: GateReading, shade: str, place: tuple[int, int], view: tuple[int, int]) -> None:
    """The chosen head over the whole text."""
    label = SHADES[shade].label
    strip = tables.profile(getattr(reading, SHADES[shade].attribute)[place], 300)
    edges = np.linspace(0, len(reading.characters), len(strip) + 1)
    figure(
        drawn(overview, strip, characters=len(reading.characters), view=view, shade=shade, mode=page_mode()),
        key="strip",
        alt=f"Mean {label} along the whole text, layer {place[0] + 1}, head {place[1] + 1}",
        how_to_read=f"The whole text from left to right, each column the mean {label} of a stretch. Framed: the view above.",
        table=pd.DataFrame({"from": edges[:-1], "to": edges[1:], f"mean {label}": strip}),
    )
