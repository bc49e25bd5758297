"""Reads the files under golden/ (see its README)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> tuple[dict[str, torch.Tensor], dict[str, np.ndarray]]:
    """The script's state dict, and everything else in the file."""
    data = np.load(GOLDEN / f"{name}.npz")
    state = {key[6:]: torch.tensor(data[key]) for key in data.files if key.startswith("state.")}
    return state, {key: data[key] for key in data.files if not key.startswith("state.")}
