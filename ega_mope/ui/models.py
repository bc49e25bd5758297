"""Trained models, loaded once for all visitors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from ega_mope.runs import Run

if TYPE_CHECKING:
    import torch

    from ega_mope.model import CharLM


def load_model(run: Run, device: str = "auto", dtype: torch.dtype | None = None) -> CharLM:
    """The run's best weights in evaluation mode; loaded again when their file changes.

    Shared between visitors: read it, never change it. ValueError where there are no weights.
    """
    weights = run.path / "model.safetensors"
    stat = weights.stat() if weights.exists() else None
    return _load(
        str(run.path),
        stat.st_mtime_ns if stat else None,
        stat.st_size if stat else None,
        device,
        dtype,
    )


@st.cache_resource(max_entries=8, show_spinner="Loading the model …")
def _load(
    path: str, mtime_ns: int | None, size: int | None, device: str, dtype: torch.dtype | None
) -> CharLM:
    return Run(Path(path)).model(device, dtype)
