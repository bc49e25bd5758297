"""Shipped runs are what this code trains: their first losses come out again."""

from __future__ import annotations

import dataclasses
import os

import pytest

from ega_mope.config import ExperimentConfig
from ega_mope.experiments import Prepared, prepare
from ega_mope.runs import Run, list_runs, shipped_folder
from ega_mope.training import Metrics, Step, train

DATA = os.environ.get("EGA_MOPE_DATA")
"""Where the texts are; the other tests do not look there."""
STEPS = 20
RUNS = [run for run in list_runs([shipped_folder()]) if isinstance(run, Run)]
FIRST = ("tinyshakespeare-small-ega-causal-mope-s0", "python-docs-small-ega-causal-learned-s0")


def prepared(run: Run) -> Prepared:
    """The run's training on the run's own text; skips where that is not here."""
    config = run.config
    assert isinstance(config, ExperimentConfig)
    if config.corpus == "tinyshakespeare" and DATA is None:
        pytest.skip("TinyShakespeare is looked for in EGA_MOPE_DATA only: no test fetches it")
    ready = prepare(config)
    if ready.corpus.sha256 != run.document["corpus"]["sha256"]:
        pytest.skip(f"{config.corpus} is another text with this Python")
    return ready


@pytest.mark.parametrize(
    "run",
    [pytest.param(run, marks=() if run.name in FIRST else pytest.mark.slow, id=run.name) for run in RUNS],
)
def test_the_first_twenty_losses_come_out_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    if DATA is not None:
        monkeypatch.setenv("EGA_MOPE_DATA", DATA)
    ready = prepared(run)
    # Validation draws from a stream of its own: a short one leaves the training as it was.
    training = dataclasses.replace(ready.config.training, validation_batches=1)
    found = {}
    for record in train(
        dataclasses.replace(ready.config, training=training),
        ready.train_ids,
        ready.validation_ids,
        start=ready.priors,
    ):
        if isinstance(record, Metrics) and record.split == "train":
            found[record.step] = record.loss_nats
        if isinstance(record, Step) and record.step == STEPS:
            break
    recorded = {
        record["step"]: record["loss_nats"]
        for record in run.records()
        if record["split"] == "train" and record["step"] <= STEPS
    }
    assert len(found) == STEPS // training.log_every
    assert found == pytest.approx(recorded, abs=1e-5)
