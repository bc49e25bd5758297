"""What the pages share, and the only place in the package that imports Streamlit.

A page calls `frame` first, then a picker, then analysis and plots inside `reading_errors`, and shows
what they return with `figure` and `table`.
"""

from ega_mope.ui.catalogue import all_runs, colours, current_run, nearest, run_id, summaries
from ega_mope.ui.frame import frame, page_button
from ega_mope.ui.models import load_model, why_no_weights
from ega_mope.ui.pickers import (
    FUTURE_BADGE,
    HOW_TO_TRAIN,
    future_badge,
    pick_run,
    pick_runs,
    sees_future_badge,
)
from ega_mope.ui.show import drawn, figure, marked, plain, reading_errors, table

__all__ = [
    "FUTURE_BADGE",
    "HOW_TO_TRAIN",
    "all_runs",
    "colours",
    "current_run",
    "drawn",
    "figure",
    "frame",
    "future_badge",
    "load_model",
    "marked",
    "nearest",
    "page_button",
    "pick_run",
    "pick_runs",
    "plain",
    "reading_errors",
    "run_id",
    "sees_future_badge",
    "summaries",
    "table",
    "why_no_weights",
]
