"""Losses that another program logged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ega_mope.config import Plain

STEP_NAMES = ("step", "steps", "iter", "iters", "iteration", "iterations")
LOSS_NAMES = {
    "train": ("train", "train_loss", "train_losses"),
    "validation": ("val", "val_loss", "val_losses", "validation", "validation_loss"),
}


def understood_history(history: Any) -> list[Plain] | None:
    """Loss records from a list of dicts or a dict of equally long lists; None where it is neither.

    Every entry needs a step, a train and/or validation loss, under the usual names. What is not finite
    is kept as None, marked as diverged.
    """
    if isinstance(history, Mapping):
        columns = [value.tolist() if isinstance(value, Tensor) else value for value in history.values()]
        if (
            not all(isinstance(column, list | tuple) for column in columns)
            or len(set(map(len, columns))) != 1
        ):
            return None
        history = [dict(zip(history, row, strict=True)) for row in zip(*columns, strict=True)]
    if not isinstance(history, list) or not all(isinstance(row, Mapping) for row in history):
        return None
    records: list[Plain] = []
    for row in history:
        step = _under_one_of(STEP_NAMES, row)
        losses = {split: _under_one_of(names, row) for split, names in LOSS_NAMES.items()}
        measured = {split: loss for split, loss in losses.items() if loss is not None}
        if step is None or not step.is_integer() or not measured:
            return None
        for split, loss in measured.items():
            fine = math.isfinite(loss)
            record = {"step": int(step), "split": split, "loss_nats": loss if fine else None}
            records.append(record if fine else record | {"diverged": True})
    return records or None


def _under_one_of(names: tuple[str, ...], row: Mapping[str, Any]) -> float | None:
    """The number that `row` has under the first of these names that it knows."""
    return next((as_number(row[name]) for name in names if name in row), None)


def as_number(value: Any) -> float | None:
    """A plain, numpy or one-element torch number as a float; None for anything else."""
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return float(value) if is_number else None
