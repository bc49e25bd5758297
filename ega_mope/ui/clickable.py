"""A shaded text whose characters can be clicked: Streamlit's own HTML element cannot answer."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

CLICKS = """
export default function ({ data, parentElement, setTriggerValue }) {
    const place = parentElement.querySelector(".clickable");
    if (place.dataset.shown !== data.length + ":" + data) {
        place.innerHTML = data;
        place.dataset.shown = data.length + ":" + data;
    }
    place.onclick = (event) => {
        const cell = event.target.closest("[data-p]");
        if (cell) setTriggerValue("clicked", Number(cell.dataset.p));
    };
}
"""

_clickable = st.components.v2.component(
    "ega_mope_clickable_text",
    html='<div class="clickable"></div>',
    css=".clickable [data-p] {\n    cursor: pointer;\n}",  # on one line, brackets make it a path
    js=CLICKS,
    isolate_styles=False,
)


def clickable_text(markup: str, *, key: str, clicked: Callable[[int], None]) -> None:
    """Show `shaded_html` markup, which holds no unescaped text; `clicked` is called with a character's position."""

    def answer() -> None:
        position = st.session_state[key].clicked
        if position is not None:
            clicked(int(position))

    _clickable(data=markup, key=key, on_clicked_change=answer)
