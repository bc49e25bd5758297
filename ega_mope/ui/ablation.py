"""Ablations as the page reads them: a few windows at once from a cache, more with progress and a way out."""

from __future__ import annotations

import streamlit as st

from ega_mope.analysis.ablation import BANDS_BY, FEW_WINDOWS, Ablation, ablate
from ega_mope.runs import Run
from ega_mope.ui.long_work import on_request
from ega_mope.ui.models import load_model, weights_stamp

SIZES = {f"{FEW_WINDOWS} windows": FEW_WINDOWS, "64 windows": 64, "whole split": None}
BANDS = {"σ": "sigma", "period 2π/ω": "omega"}
assert tuple(BANDS.values()) == BANDS_BY


def read_ablation(run: Run, text: str) -> Ablation:
    """The ablation at the chosen size; ends the page until a long one is asked for, and while it runs."""
    left, right = st.columns(2)
    size = left.segmented_control(
        "Read", list(SIZES), default=next(iter(SIZES)), key="size", bind="query-params", required=True,
        help="Validation windows, spread evenly over the split. More of them, narrower intervals.",
    )  # fmt: skip
    by = BANDS[
        right.segmented_control(
            "Bands of pairs by", list(BANDS), default="σ", key="bands", bind="query-params", required=True
        )
    ]
    key = (*weights_stamp(run), text, by)
    if SIZES[size] == FEW_WINDOWS:
        return _few(*key, run)
    return on_request(
        "ablation",
        f"Read {size}",
        (*key, size),
        lambda progress: ablate(
            run, text, model=load_model(run), most_windows=SIZES[size], bands_by=by, progress=progress
        ),
    )


@st.cache_resource(max_entries=8, show_spinner="Taking out one part after the other …")
def _few(path: str, stamp: int, text: str, by: str, _run: Run) -> Ablation:
    return ablate(_run, text, model=load_model(_run), bands_by=by)
