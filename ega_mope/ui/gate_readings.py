"""Readings of gates, made once for all visitors, and what can be taken home of one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import partial

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ega_mope.analysis import gate_tables as tables
from ega_mope.analysis.gates import GateReading, Progress, gates
from ega_mope.plots.shades import Mode
from ega_mope.plots.text import html_document, shaded_html, views
from ega_mope.runs import Run
from ega_mope.ui.long_work import kept_work
from ega_mope.ui.models import load_model
from ega_mope.ui.show import plain, table

A_VIEW = 2_000
"""Characters on the screen at once, about."""
QUICK = 20_000
"""Characters; a longer text has a bar while it is read, and its weight change only where it is asked for."""
LONG_KEPT = 2
"""Readings of long texts that stay: one of a million characters takes hundreds of megabytes."""
WIDEST = "largest spread"

Stamp = tuple[int, int] | None
"""A run's weights: their file's time of change and size; None where there are none."""


def stamp(run: Run) -> Stamp:
    """What tells a run's weights from others under the same name."""
    weights = run.path / "model.safetensors"
    if not weights.exists():
        return None
    stat = weights.stat()
    return stat.st_mtime_ns, stat.st_size


def read_gates(run: Run, text: str, *, weight_change: bool) -> GateReading:
    """The gates of this text, kept as long as the run's weights stay as they are.

    While a long text is read its beginning is shown, and the visitor may cancel.
    """
    inputs = (str(run.path), stamp(run), text, weight_change)
    if len(text) <= QUICK:
        return _read(*inputs, run)
    return kept_work(
        "gates",
        inputs,
        lambda report: _measure(
            run,
            text,
            weight_change,
            lambda done, total: report(done / total, f"{done:,} of {total:,} tokens read"),
        ),
        kept=LONG_KEPT,
        meanwhile=lambda: _show_beginning(run, text),
    )


@st.cache_resource(max_entries=6, show_spinner="Reading the text …")
def _read(path: str, stamp: Stamp, text: str, weight_change: bool, _run: Run) -> GateReading:
    return _measure(_run, text, weight_change)


def _measure(run: Run, text: str, weight_change: bool, progress: Progress | None = None) -> GateReading:
    found = gates(
        load_model(run), text, tokenizer=run.tokenizer, weight_change=weight_change, progress=progress
    )
    return dataclasses.replace(found, run=run.name)


def _show_beginning(run: Run, text: str) -> None:
    """The first view of a long text, of which as much again is read: so its gates are those of the whole text."""
    reading = read_gates(run, text[: 2 * A_VIEW], weight_change=False)
    (start, stop), *_ = _views(reading.characters)
    layer, head = reading.widest()
    st.caption(
        f"The first {stop - start:,} of {len(text):,} characters, shaded by the gate of layer {layer + 1}, head "
        f"{head + 1}, the one with the largest spread so far, while the rest is read."
    )
    st.html(shaded_html(reading, layer=layer, head=head, shade="gate", start=start, stop=stop))


def pick_head(reading: GateReading, where: DeltaGenerator) -> tuple[int, int]:
    """Layer and head, from 0, chosen in `where` and in the URL; opens on the one with the largest spread."""
    heads = {
        f"L{layer + 1} H{head + 1}": (layer, head) for layer, head in np.ndindex(*reading.gate.shape[:2])
    }
    chosen = where.selectbox("Layer and head", [WIDEST, *heads], key="head", bind="query-params")
    return heads.get(chosen, reading.widest())


def pick_view(characters: str) -> tuple[int, int]:
    """Start and stop of the part of the text on the screen."""
    parts = _views(characters)
    number = st.pagination(len(parts), key="view", bind="query-params") if len(parts) > 1 else 1
    return parts[number - 1]


@st.cache_data(max_entries=6, show_spinner=False)
def _views(characters: str) -> list[tuple[int, int]]:
    return views(characters, A_VIEW)


def downloads(reading: GateReading, place: tuple[int, int], shade: str, keep_above: float) -> None:
    """Buttons for the whole text: CSV and HTML of one head, JSON of all; made when they are pressed."""
    layer, head = place
    name = f"gates-{reading.run}"
    one = f"{name}-L{layer + 1}-H{head + 1}"
    notes = [f"Layer {layer + 1}, head {head + 1}. Kept above g = {keep_above:g}: "]
    notes[0] += f"{tables.kept_above(reading.gate[place], keep_above)}."
    notes += [reading.notice] if reading.notice else []
    page = partial(
        html_document,
        reading,
        title=f"Energy gates of {reading.run}",
        notes=notes,
        layer=layer,
        head=head,
        shade=shade,
        keep_above=keep_above,
    )
    offers: dict[str, tuple[Callable[[], str], str, str]] = {
        "CSV": (
            lambda: tables.characters_table(reading, [place]).to_csv(index=False),
            f"{one}.csv",
            "text/csv",
        ),
        "HTML": (page, f"{one}.html", "text/html"),
        "JSON": (
            lambda: json.dumps(reading.to_json(), ensure_ascii=False),
            f"{name}.json",
            "application/json",
        ),
    }
    help = {
        "CSV": "This head, a row a character",
        "HTML": "This head, the whole text shaded",
        "JSON": "Every head",
    }
    with st.container(horizontal=True):
        for label, (make, file, mime) in offers.items():
            st.download_button(
                label,
                make,
                file_name=file,
                mime=mime,
                key=f"gates-{label}",
                on_click="ignore",
                icon=":material/download:",
                help=help[label],
            )


def gate_tables(reading: GateReading, place: tuple[int, int], view: tuple[int, int]) -> None:
    """The numbers behind the shades: one head by word, line and character, every head for one character."""
    words, lines, characters, one, unread = st.tabs(
        ["Words", "Lines", "Characters in view", "One character, every head", "Not read"]
    )
    with words:
        table(tables.word_averages(reading, *place), key="words", name="gates-by-word")
    with lines:
        table(tables.line_averages(reading, *place), key="lines", name="gates-by-line")
    with characters:
        shown = tables.characters_table(reading, [place])[slice(*view)]
        table(shown, key="characters", name="gates-by-character")
    with one:
        position = st.number_input("Position", 0, len(reading.characters) - 1, key="at", bind="query-params")
        st.markdown(f"Character {plain(repr(reading.characters[position]))}")
        table(tables.across_heads(reading, position), key="one", name=f"gates-at-{position}")
    with unread:
        table(tables.unknown_table(reading), key="unread", name="characters-not-read")


def page_mode() -> Mode:
    """Whether the visitor's page is light or dark."""
    return "dark" if st.context.theme.type == "dark" else "light"
