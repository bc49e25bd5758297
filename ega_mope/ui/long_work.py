"""Work of seconds or minutes on a page: a bar, a way to cancel, and its answer kept for all visitors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import streamlit as st

Answer = TypeVar("Answer")
Report = Callable[[float, str], None]
"""Told the share done, 0 to 1, and what is being done."""

KEPT = 12
"""Answers kept; the one asked for longest ago goes first."""
SMALLEST_MOVE = 0.02


def kept_work(
    key: str,
    inputs: Hashable,
    work: Callable[[Report], Answer],
    *,
    kept: int = KEPT,
    meanwhile: Callable[[], None] | None = None,
) -> Answer:
    """The answer of `work` to these `inputs`, which must be all that it depends on; else made now.

    Of one key at most `kept` answers stay. `meanwhile` draws under the bar what can be seen already.

    While it is made, a bar and a Cancel button stand there. Streamlit ends a run of the page at the next
    report after a click, so work that reports often stops soon. Cancelled, the page ends with a button that
    starts the work again.
    """
    answers, lock = _answers()
    whole = key, inputs
    with lock:
        if whole in answers:
            answers.move_to_end(whole)
            return answers[whole]
    if st.session_state.get(f"{key}-cancelled") == inputs:
        st.info("Cancelled before it was done.", icon=":material/cancel:")
        st.button("Start again", key=f"{key}-again", on_click=_forget, args=(f"{key}-cancelled",))
        st.stop()
    answer = _with_bar(key, inputs, work, meanwhile)
    with lock:
        answers[whole] = answer
        alike = [other for other in answers if other[0] == key]
        for oldest in alike[: max(0, len(alike) - kept)]:
            del answers[oldest]
        while len(answers) > KEPT:
            answers.popitem(last=False)
    return answer


def on_request(
    key: str, label: str, inputs: Hashable, work: Callable[[Callable[[int, int], None]], Answer]
) -> Answer:
    """`kept_work` that begins when the visitor asks for it, and ends the page until then.

    `work` reports what is done and what there is in all.
    """
    answers, lock = _answers()
    with lock:
        kept = (key, inputs) in answers
    if not kept and st.session_state.get(f"{key}-asked") != inputs:
        asked = (f"{key}-asked", inputs)
        st.button(
            label,
            key=f"{key}-start",
            type="primary",
            icon=":material/play_arrow:",
            on_click=_remember,
            args=asked,
        )
        st.caption("This may take a minute or more on two cores; it can be cancelled.")
        st.stop()
    return kept_work(
        key,
        inputs,
        lambda report: work(lambda done, total: report(done / total, f"{done:,} of {total:,}")),
    )


def _with_bar(
    key: str,
    inputs: Hashable,
    work: Callable[[Report], Answer],
    meanwhile: Callable[[], None] | None,
) -> Answer:
    place = st.empty()
    with place.container():
        with st.container(horizontal=True, vertical_alignment="center"):
            bar = st.progress(0.0, "reading")
            st.button("Cancel", key=f"{key}-cancel", on_click=_remember, args=(f"{key}-cancelled", inputs))
        if meanwhile:
            meanwhile()
    shown = 0.0

    def report(share: float, doing: str) -> None:
        nonlocal shown
        if share - shown >= SMALLEST_MOVE:
            shown = share
            bar.progress(min(share, 1.0), doing)

    answer = work(report)
    place.empty()
    return answer


def _remember(name: str, value: Hashable) -> None:
    st.session_state[name] = value


def _forget(name: str) -> None:
    del st.session_state[name]


@st.cache_resource(show_spinner=False)
def _answers() -> tuple[OrderedDict[Any, Any], threading.Lock]:
    return OrderedDict(), threading.Lock()
