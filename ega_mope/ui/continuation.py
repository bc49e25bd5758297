"""Letting a run go on with the text of the page."""

from __future__ import annotations

import streamlit as st

from ega_mope.generation import Continuation, continue_text
from ega_mope.runs import Run
from ega_mope.ui.models import load_model

LONGEST = 1_000
"""Tokens written at once."""


def continued(run: Run, text: str) -> str:
    """The text with what the run wrote after it, once it was asked to; else the text itself.

    Says where the continuation starts and what the model could see. ValueError as in `continue_text`.
    """
    with st.popover("Continue this text", icon=":material/edit:"):
        tokens = st.number_input("Tokens", 1, LONGEST, 200, key="more", bind="query-params")
        seed = st.number_input("Seed", 0, 2**31, 0, key="more-seed", bind="query-params")
        temperature = st.slider(
            "Temperature",
            0.0,
            2.0,
            0.8,
            0.1,
            key="temperature",
            bind="query-params",
            help="0 takes the likeliest.",
        )
        top_k = st.number_input(
            "Top k", 0, 1_000, 0, key="top-k", bind="query-params", help="0: draw from all tokens."
        )
        write = st.toggle("Write", key="write", help="Off again: the text alone.")
    if not write:
        return text
    written = _write(str(run.path), text, tokens, seed, temperature, top_k or None, run)
    st.caption(_says(written, len(text)))
    return text + written.text


@st.cache_data(max_entries=16, show_spinner="Writing …")
def _write(
    path: str, text: str, tokens: int, seed: int, temperature: float, top_k: int | None, _run: Run
) -> Continuation:
    return continue_text(
        load_model(_run), _run.tokenizer, text, tokens=tokens, seed=seed, temperature=temperature, top_k=top_k
    )


def _says(written: Continuation, start: int) -> str:
    made = written.generated
    says = [f"From character {start:,} on the run wrote this itself: {len(written.text):,} characters."]
    if made.unread:
        says.append(
            f"It saw only the end of the text: the first {made.unread:,} tokens lay beyond its context."
        )
    if made.moved_from is not None:
        says.append("Beyond its context it saw a moving window, read anew for every token.")
    if made.sees_future:
        says.append("This run sees the future, so its losses do not say how well it writes.")
    return " ".join(says)
