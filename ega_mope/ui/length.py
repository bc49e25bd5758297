"""Loss by position, also beyond the training length: one view of Correlation kernels."""

from __future__ import annotations

import streamlit as st

from ega_mope.analysis.length import LengthReading, cannot_read, loss_by_position
from ega_mope.analysis.losses import METRICS
from ega_mope.plots import length as plots
from ega_mope.runs import Run
from ega_mope.ui.catalogue import colours
from ega_mope.ui.long_work import on_request
from ega_mope.ui.models import load_model, weights_stamp
from ega_mope.ui.pickers import sees_future_badge
from ega_mope.ui.show import drawn, figure, plain

FEW, MANY = 8, 64


def show_loss_by_position(run: Run) -> None:
    """Read on past the training length where the positions can; within it where they cannot."""
    beyond = cannot_read(run)
    left, right = st.columns(2)
    factor = 1
    if beyond is None:
        factor = left.segmented_control(
            "Window, in training lengths",
            [1, 2, 4],
            default=4,
            key="factor",
            bind="query-params",
            required=True,
        )
    else:
        st.caption(plain(f"Within the training length alone: {beyond}."))
    windows = right.segmented_control(
        "Windows", [FEW, MANY], default=FEW, key="windows", bind="query-params", required=True,
        help="Spread evenly over the validation split. More of them, narrower bands.",
    )  # fmt: skip
    found = _read(run, factor, windows)
    badge = sees_future_badge(run)
    if badge:
        st.markdown(f"{badge} Its losses are not those of predicting the next token.")
    said = _in_words(found)
    st.markdown(plain(said))
    figure(
        drawn(
            plots.loss_by_position,
            {run.name: found.table},
            found.context_length,
            {run.name: colours()[run.name]},
            METRICS["nats"].unit(run.config.tokenizer),
        ),
        key="length",
        alt=f"Validation loss by position in windows of {found.length} tokens. {said}",
        how_to_read="Each step is the mean loss of a range of positions, shaded one standard error over windows. Dotted: the "
        "same tokens, reading started afresh every training length. Above it, reading on is worse than starting afresh.",
        table=found.table,
    )


def _read(run: Run, factor: int, windows: int) -> LengthReading:
    key = (*weights_stamp(run), factor)
    if windows == FEW:
        return _few(*key, run)
    return on_request(
        "length",
        f"Read {MANY} windows",
        key,
        lambda progress: loss_by_position(
            run, factor=factor, most_windows=MANY, model=load_model(run), progress=progress
        ),
    )


@st.cache_resource(max_entries=16, show_spinner="Reading the validation text …")
def _few(path: str, stamp: int, factor: int, _run: Run) -> LengthReading:
    return loss_by_position(_run, factor=factor, most_windows=FEW, model=load_model(_run))


def _in_words(found: LengthReading) -> str:
    within, beyond = (found.mean_nats("loss_nats", beyond=past) for past in (False, True))
    says = (
        f"{found.windows} windows of {found.length} tokens: {within:.4f} nats per token within the training length of "
        f"{found.context_length}"
    )
    if beyond is None:
        return f"{says}."
    afresh = found.mean_nats("restarted_nats", beyond=True)
    return f"{says}, {beyond:.4f} beyond it; the same later tokens, read afresh: {afresh:.4f}."
