"""Priors: scales and projections that stay where they started."""

from __future__ import annotations

from typing import Any

import pytest
from mechanism_models import (
    ids_of,
)

from ega_mope.config import ExperimentConfig, ModelConfig, Plain, TrainConfig
from ega_mope.training import Learned, train


def learned_over_training(attention: Plain, position: Plain) -> tuple[dict[str, Any], dict[str, Any]]:
    model = ModelConfig(
        vocabulary_size=9,
        context_length=16,
        n_layers=1,
        n_heads=2,
        d_model=8,
        attention=attention,
        position=position,
    )
    training = TrainConfig(steps=3, batch_size=4, warmup_steps=1, evaluate_every=3, decay_on="all")
    ids = ids_of(200).flatten().numpy()
    records = [
        record
        for record in train(ExperimentConfig(model=model, training=training), ids, ids)
        if isinstance(record, Learned)
    ]
    return records[0].values, records[-1].values


@pytest.mark.parametrize(
    ("freeze", "still"),
    [
        ("nothing", set()),
        ("omega", {"omega_free"}),
        ("sigma", {"sigma"}),
        ("both", {"omega", "omega_free", "sigma"}),
    ],
)
def test_frozen_scales_stay_at_their_start(freeze: str, still: set[str]) -> None:
    start, end = learned_over_training(
        {"name": "dot"}, {"name": "mope", "init": "multiscale", "freeze": freeze}
    )
    unmoved = {name.partition(".")[2] for name, values in start.items() if values == end[name]}
    assert unmoved == still


def test_a_frozen_projection_leaves_threshold_and_sharpness_to_learn() -> None:
    frozen = {"name": "ega", "signal": "morlet_parametric", "freeze": "projection"}
    start, end = learned_over_training(frozen, {"name": "learned"})
    unmoved = {name for name, values in start.items() if values == end[name]}
    assert unmoved == {"attention.filter_omega", "attention.filter_sigma"}
    start, end = learned_over_training({**frozen, "freeze": "nothing"}, {"name": "learned"})
    assert all(values != end[name] for name, values in start.items())
