"""Trained models, loaded once for all visitors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from ega_mope.runs import Run

if TYPE_CHECKING:
    import torch

    from ega_mope.model import CharLM


def weights_stamp(run: Run) -> tuple[str, int]:
    """What a cache of anything measured with a run's weights is keyed on: the folder, and when they changed."""
    weights = run.path / "model.safetensors"
    return str(run.path), weights.stat().st_mtime_ns if weights.exists() else 0


def why_no_weights(run: Run) -> str | None:
    """None, or why nothing can be measured with this run's model."""
    return None if (run.path / "model.safetensors").exists() else "its weights are not in its folder"


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
