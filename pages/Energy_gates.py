"""Energy gates: what one head's gate does with a text, what the gates go with, and where they meet surprise."""

import streamlit as st

from ega_mope import ui
from ega_mope.analysis.gates import why_no_gates
from ega_mope.ui.continuation import continued
from ega_mope.ui.gate_meaning import what_gates_measure
from ega_mope.ui.gate_readings import QUICK, read_gates
from ega_mope.ui.gate_surprise import gate_and_surprise
from ega_mope.ui.gate_text import shaded_text
from ega_mope.ui.texts import pick_text, say_unread

TABS = {
    "Shaded text": shaded_text,
    "What do gates measure?": what_gates_measure,
    "Gate and surprise": gate_and_surprise,
}

ui.frame(
    "Energy gates",
    "A text of your choice, each character shaded by what one head's energy gate does with it.",
)
with ui.reading_errors():
    run = ui.pick_run(why_no_gates)
    text = continued(run, pick_text())
    reading = read_gates(run, text, weight_change=len(text) <= QUICK)
    if reading.notice:
        st.caption(f"{ui.sees_future_badge(run)} {ui.plain(reading.notice)}")
    say_unread(run, reading.reading, why_no_gates)
    for tab, show in zip(st.tabs(list(TABS), key="tab", bind="query-params"), TABS.values(), strict=True):
        if tab.open:
            with tab:
                show(run, text)
