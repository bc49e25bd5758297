"""The published script's own numbers: same weights in, same logits, gates, tables and loss out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from golden_files import golden

from ega_mope.importers import from_published_state
from ega_mope.training import token_losses

# The script's tables of the last four went through float32.
TOLERANCE = {"base": 1e-9, "ega": 1e-9, "rope": 1e-6, "sincos": 1e-6, "mope": 1e-6, "ega_mope": 1e-6}
MECHANISMS = {
    "base": ("dot", "learned"),
    "ega": ("ega", "learned"),
    "rope": ("dot", "rope"),
    "sincos": ("dot", "sinusoidal"),
    "mope": ("dot", "mope"),
    "ega_mope": ("ega", "mope"),
}


def largest_gap(ours: torch.Tensor, theirs: Any) -> float:
    """The largest absolute difference; inf for different shapes, which must not broadcast to agreement."""
    theirs = np.asarray(theirs)
    return float(np.abs(ours.double().numpy() - theirs).max()) if ours.shape == theirs.shape else float("inf")


@pytest.mark.parametrize("name", MECHANISMS)
def test_logits_and_loss_are_the_published_ones(name: str) -> None:
    state, expected = golden(name)
    model = from_published_state(state).double()
    config = model.config
    assert (config.attention["name"], config.position["name"]) == MECHANISMS[name]
    with torch.no_grad():
        logits = model(torch.tensor(expected["input_ids"]))
    assert largest_gap(logits, expected["logits"]) <= TOLERANCE[name]
    loss = token_losses(logits, torch.tensor(expected["target_ids"])).mean()
    assert largest_gap(loss, expected["loss"]) <= 1e-7


@pytest.mark.parametrize("name", ["ega", "ega_mope"])
def test_gates_are_the_published_ones(name: str) -> None:
    state, expected = golden(name)
    model = from_published_state(state).double()
    with torch.no_grad():
        _, trace = model.trace(torch.tensor(expected["input_ids"]), ("gate",))
    assert largest_gap(trace["gate"], expected["gates"]) <= TOLERANCE[name]


@pytest.mark.parametrize("name", MECHANISMS)
def test_in_float32_everything_is_within_rounding(name: str) -> None:
    state, expected = golden(name)
    model = from_published_state(state)
    assert next(model.parameters()).dtype == torch.float32
    with torch.no_grad():
        logits, trace = model.trace(torch.tensor(expected["input_ids"]), ("gate",))
    assert largest_gap(logits, expected["logits"]) <= 1e-4
    if "gates" in expected:
        assert largest_gap(trace["gate"], expected["gates"]) <= 1e-4


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("mope", 1e-7), ("ega_mope", 1e-7), ("sincos", 1e-6)],
    ids=lambda value: str(value),
)
def test_position_tables_are_the_published_ones(name: str, tolerance: float) -> None:
    state, expected = golden(name)
    model = from_published_state(state).double()
    with torch.no_grad():
        table = model.position.encode(torch.arange(24))
    stored = expected.get("position_table")
    assert largest_gap(table, state["pe.pe"] if stored is None else stored) <= tolerance
