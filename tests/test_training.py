"""The training loop: same seed, same losses; resuming, diverging, evaluating, and what the optimizer does."""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ega_mope.config import ExperimentConfig, ModelConfig, TrainConfig
from ega_mope.memory import peak_memory
from ega_mope.model import build_model
from ega_mope.training import (
    Checkpoint,
    Ended,
    Learned,
    Metrics,
    Record,
    Step,
    make_optimizer,
    token_losses,
    train,
    used_precision,
    validation_loss,
    windows,
)

MODEL = ModelConfig(
    vocabulary_size=7,
    context_length=10,
    n_layers=1,
    n_heads=2,
    d_model=8,
    dropout=0.2,
    attention={"name": "ega"},
    position={"name": "mope"},
)
TRAINING = TrainConfig(
    steps=9,
    batch_size=2,
    warmup_steps=2,
    learning_rate=0.01,
    evaluate_every=3,
    log_every=2,
    validation_batches=2,
)
IDS = np.random.default_rng(0).integers(0, 7, 300)
VALIDATION = np.random.default_rng(1).integers(0, 7, 60)


def config(seed: int = 0, model: ModelConfig = MODEL, **training: Any) -> ExperimentConfig:
    return ExperimentConfig(model=model, training=dataclasses.replace(TRAINING, **training), seed=seed)


def run_of(experiment: ExperimentConfig, **keywords: Any) -> list[Record]:
    """All records, the states in them as they were when they came."""
    return [
        dataclasses.replace(record, state=copy.deepcopy(record.state))
        if isinstance(record, Checkpoint)
        else record
        for record in train(experiment, IDS, VALIDATION, **keywords)
    ]


def losses(records: list[Record]) -> list[tuple[str, int, float | None, float | None]]:
    return [(r.split, r.step, r.loss_nats, r.grad_norm) for r in records if isinstance(r, Metrics)]


def test_same_seed_same_numbers_to_the_last_digit() -> None:
    first, second = run_of(config()), run_of(config())
    assert losses(first) == losses(second)
    assert [r for r in first if isinstance(r, Learned)] == [r for r in second if isinstance(r, Learned)]
    assert losses(first) != losses(run_of(config(seed=1)))


def test_records_and_their_order() -> None:
    records = run_of(config())
    kinds = [(type(r).__name__, r.step) for r in records]
    assert kinds[:4] == [("Metrics", 0), ("Learned", 0), ("Checkpoint", 0), ("Step", 1)]
    assert kinds[-1] == ("Ended", 9)
    assert [s for s, step in kinds if step == 6] == ["Metrics", "Metrics", "Learned", "Checkpoint", "Step"]
    assert [r.step for r in records if isinstance(r, Step)] == list(range(1, 10))
    measured = [(r.split, r.step) for r in records if isinstance(r, Metrics)]
    assert [step for split, step in measured if split == "validation"] == [0, 3, 6, 9]
    assert [step for split, step in measured if split == "train"] == [2, 4, 6, 8, 9]
    last = (
        records[-2]
        if isinstance(records[-2], Metrics)
        else [r for r in records if isinstance(r, Metrics)][-1]
    )
    assert last.tokens == 9 * 2 * 10
    assert last.lr == TRAINING.learning_rate_at(8)
    ended = records[-1]
    assert isinstance(ended, Ended) and ended.state == "finished"


@pytest.mark.parametrize("at", [0, 3, 6])
def test_resuming_from_a_checkpoint_changes_no_digit(at: int) -> None:
    whole = run_of(config())
    state = next(r.state for r in whole if isinstance(r, Checkpoint) and r.step == at)
    torch.manual_seed(999)
    rest = run_of(config(), state=state)
    assert losses(rest) == [row for row in losses(whole) if row[1] > at]
    assert [r for r in rest if isinstance(r, Learned)] == [
        r for r in whole if isinstance(r, Learned) and r.step > at
    ]


@pytest.mark.parametrize("at", [1, 3, 5])
def test_stopping_between_evaluations_loses_nothing(at: int) -> None:
    steps = iter(range(1, 100))
    first = run_of(config(), stop=lambda: next(steps) == at)
    ended, kept = first[-1], first[-2]
    assert isinstance(ended, Ended) and (ended.step, ended.state) == (at, "stopped")
    assert isinstance(kept, Checkpoint) and kept.step == at
    rest = run_of(config(), state=kept.state)
    assert losses(first) + losses(rest) == losses(run_of(config()))


def test_the_best_weights_are_marked_once_they_are_the_best() -> None:
    records = run_of(config(validation_batches=0))
    validation = {r.step: r.loss_nats for r in records if isinstance(r, Metrics) and r.split == "validation"}
    best = math.inf
    for record in records:
        if isinstance(record, Checkpoint):
            loss = validation[record.step]
            assert loss is not None and record.best == (loss < best)
            best = min(best, loss)


def test_it_learns() -> None:
    text = np.tile(np.arange(7), 60)
    model = dataclasses.replace(MODEL, dropout=0.0)
    schedule = dataclasses.replace(
        TRAINING, steps=60, learning_rate=0.03, evaluate_every=60, validation_batches=0
    )
    records = train(ExperimentConfig(model=model, training=schedule), text, text[:80])
    validation = [r.loss_nats for r in records if isinstance(r, Metrics) and r.split == "validation"]
    assert validation[0] == pytest.approx(math.log(7), abs=0.05), "untrained, it knows nothing"
    assert validation[-1] is not None and validation[-1] < 0.6


@pytest.mark.parametrize(
    "schedule",
    [
        {"evaluate_every": 100, "log_every": 1},
        {"evaluate_every": 1, "log_every": 100},
        {"evaluate_every": 1, "log_every": 1, "validation_batches": 0},
    ],
    ids=["seen in training", "seen in validation", "both"],
)
@pytest.mark.parametrize("position", ["learned", "mope"])
def test_a_diverging_training_ends_as_diverged(schedule: dict[str, Any], position: str) -> None:
    model = dataclasses.replace(MODEL, position={"name": position}, n_layers=2)
    huge: dict[str, Any] = {"learning_rate": 1e30, "clip_norm": 0.0, "steps": 50, "warmup_steps": 0}
    records = run_of(config(model=model, **huge, **schedule))
    ended = records[-1]
    assert isinstance(ended, Ended) and ended.state == "diverged" and ended.step < 50
    for record in records:
        if isinstance(record, Metrics):
            assert record.diverged == (record.loss_nats is None)
        if isinstance(record, Learned):
            flat = [v for value in record.values.values() for v in np.ravel(value)]
            assert all(map(math.isfinite, flat)), "no run folder could hold it"


def test_the_whole_validation_split_is_every_window_once() -> None:
    model = build_model(MODEL).double().eval()
    ids = torch.as_tensor(VALIDATION)
    total, count = 0.0, 0
    for start in range(0, len(ids) - 10, 10):
        window = ids[start : start + 11]
        with torch.no_grad():
            logp = model(window[None, :-1]).log_softmax(-1)[0]
        total -= float(logp[torch.arange(10), window[1:]].sum())
        count += 10
    whole = dataclasses.replace(TRAINING, validation_batches=0)
    assert count == 50
    assert validation_loss(model, ids, whole, torch.Generator()) == pytest.approx(total / count, abs=1e-12)


def test_windows_lie_side_by_side() -> None:
    found = windows(torch.arange(25), 10)
    assert found.tolist() == [list(range(11)), list(range(10, 21))]


def test_dropout_rests_while_evaluating_and_comes_back() -> None:
    model = build_model(MODEL).train()
    ids = torch.as_tensor(VALIDATION)
    whole = dataclasses.replace(TRAINING, validation_batches=0)
    assert validation_loss(model, ids, whole, torch.Generator()) == validation_loss(
        model, ids, whole, torch.Generator()
    )
    assert model.training


def test_losses_are_nats() -> None:
    logits = torch.zeros(1, 3, 7)
    assert token_losses(logits, torch.zeros(1, 3, dtype=torch.int64)).tolist() == [
        pytest.approx([math.log(7)] * 3)
    ]


def test_weight_decay_and_rate_multipliers_reach_the_right_parameters() -> None:
    model = build_model(dataclasses.replace(MODEL, position={"name": "mope", "rate_multiplier": 10.0}))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    schedules = (
        dataclasses.replace(TRAINING, decay_on="matrices"),
        dataclasses.replace(TRAINING, decay_on="all"),
    )
    for schedule, undecayed in zip(schedules, (True, False), strict=True):
        groups = make_optimizer(model, schedule).param_groups
        decay = {names[id(p)]: g["weight_decay"] for g in groups for p in g["params"]}
        multiplier = {names[id(p)]: g["multiplier"] for g in groups for p in g["params"]}
        assert decay.keys() == multiplier.keys() == set(names.values())
        assert decay["blocks.0.attention.qkv.weight"] == 0.1
        for flat in ("blocks.0.attention.threshold", "position.log_sigma", "norm_final.weight"):
            assert decay[flat] == (0.0 if undecayed else 0.1)
        assert {name for name, value in multiplier.items() if value == 10.0} == {
            "position.log_omega",
            "position.log_sigma",
        }


def test_a_multiplier_moves_the_scales_that_much_further() -> None:
    def moved(multiplier: float) -> float:
        position = {"name": "mope", "admissibility": "free", "rate_multiplier": multiplier}
        model = dataclasses.replace(MODEL, position=position, dropout=0.0)
        # Two updates, the first at rate 0: what is left is one step of Adam, its sign times the rate.
        values = [r for r in run_of(config(model=model, steps=2)) if isinstance(r, Learned)]
        return float(
            np.abs(
                np.log(values[-1].values["position.sigma"]) - np.log(values[0].values["position.sigma"])
            ).max()
        )

    assert moved(1.0) > 0
    assert moved(10.0) == pytest.approx(10 * moved(1.0), rel=1e-3)


def test_the_first_update_is_at_rate_zero() -> None:
    records = run_of(config(steps=1))
    validation = [r.loss_nats for r in records if isinstance(r, Metrics) and r.split == "validation"]
    values = [r.values for r in records if isinstance(r, Learned)]
    assert values[0] == values[1]
    assert len(validation) == 2


def test_half_precision_is_what_the_device_can_do() -> None:
    paper = dataclasses.replace(TRAINING, precision="float16")
    assert used_precision(paper, torch.device("cpu")) == "float32"
    assert used_precision(paper, torch.device("cuda")) == "float16"
    assert losses(run_of(config(precision="float16"))) == losses(run_of(config()))
    assert losses(run_of(config(precision="bfloat16"))) != losses(run_of(config()))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells")
def test_evaluations_say_how_much_memory_training_took() -> None:
    ballast = np.ones(2**25)  # 256 MiB, gone before training begins
    del ballast
    lines = [record for record in run_of(config()) if isinstance(record, Metrics)]
    peaks = [line.peak_memory_bytes for line in lines if line.split == "validation"]
    assert all(line.peak_memory_bytes is None for line in lines if line.split == "train")
    before = peak_memory(torch.device("cpu"))
    ballast = np.ones(2**25)
    after = peak_memory(torch.device("cpu"))
    assert before is not None and after is not None and all(peaks)
    assert max(peak or 0 for peak in peaks) <= before <= after - 0.9 * ballast.nbytes
