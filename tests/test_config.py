"""Settings: what is refused and how, presets, overrides, plain data in and out."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from ega_mope.config import (
    PRESETS,
    ExperimentConfig,
    ModelConfig,
    TrainConfig,
    experiment_from_plain,
    flatten,
    preset,
    read_settings,
    to_plain,
    with_overrides,
)
from ega_mope.model import build_model, is_causal, resolve


def experiment(name: str = "small") -> ExperimentConfig:
    model, training = preset(name)
    return ExperimentConfig(model=model, training=training, preset=name)


@pytest.mark.parametrize("name", PRESETS)
def test_plain_data_and_back(name: str) -> None:
    config = experiment(name)
    assert experiment_from_plain(json.loads(json.dumps(to_plain(config)))) == config


def test_the_papers_settings_to_the_letter() -> None:
    model, training = preset("paper")
    assert (model.n_layers, model.n_heads, model.d_model, model.context_length) == (6, 8, 256, 256)
    assert (model.vocabulary_size, model.dropout) == (65, 0.1)
    assert (training.steps, training.batch_size, training.learning_rate) == (5001, 64, 3e-4)
    assert (training.beta1, training.beta2, training.weight_decay, training.decay_on) == (
        0.9,
        0.95,
        0.1,
        "all",
    )
    assert (training.warmup_steps, training.clip_norm, training.precision) == (300, 1.0, "float16")
    assert training.validation_batches == 50
    assert training.learning_rate_at(0) == 0
    assert training.learning_rate_at(300) == 3e-4
    assert training.learning_rate_at(5000) == pytest.approx(0, abs=1e-12)


def test_the_small_presets_schedule() -> None:
    model, training = preset("small")
    assert (model.n_layers, model.n_heads, model.d_model, model.context_length) == (4, 4, 128, 128)
    assert (training.steps, training.batch_size, model.dropout) == (2000, 32, 0.0)
    assert training.validation_batches == 0 and training.decay_on == "matrices"
    assert training.learning_rate_at(50) == pytest.approx(5e-4)
    assert training.learning_rate_at(100) == 1e-3
    middle = 100 + (1999 - 100) / 2
    rates = training.learning_rate_at(int(middle)), training.learning_rate_at(int(middle) + 1)
    assert rates[0] > 5.5e-4 > rates[1]
    assert training.learning_rate_at(1999) == pytest.approx(1e-4)
    assert 780_000 < build_model(model).parameter_counts()["total"] < 850_000


@pytest.mark.parametrize(
    ("where", "data", "says"),
    [
        ("model", {"layers": 3}, "n_layers"),
        ("model", {"n_layers": 0}, "at least 1"),
        ("model", {"n_layers": 2.5}, "kind int"),
        ("model", {"n_layers": True}, "kind int"),
        ("model", {"n_layers": "two"}, "kind int"),
        ("model", {"dropout": 1.0}, "0.0 to 0.99"),
        ("model", {"dropout": math.nan}, "finite"),
        ("model", {"attention": "ega"}, "kind dict"),
        ("model", {"d_model": 30, "n_heads": 4}, "28"),
        ("training", {"learning_rate": math.inf}, "finite"),
        ("training", {"learning_rate": -1.0}, "at least 0.0"),
        ("training", {"precision": "float8"}, "bfloat16"),
        ("training", {"decay_on": None}, "matrices"),
        ("training", {"epochs": 3}, "steps"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(where: str, data: dict[str, Any], says: str) -> None:
    cls: type[Any] = ModelConfig if where == "model" else TrainConfig
    with pytest.raises(ValueError, match="expected") as caught:
        read_settings(cls, data, where)
    message = str(caught.value)
    assert says in message and where in message and "\n" not in message


def test_an_int_is_a_fine_float() -> None:
    settings = read_settings(TrainConfig, {"learning_rate": 1}, "training")
    assert settings.learning_rate == 1.0 and isinstance(settings.learning_rate, float)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"attention": {"name": "eag"}}, "ega"),
        ({"attention": {}}, "ega"),
        ({"attention": {"name": "ega", "gate_norm": "batch"}}, "causal"),
        ({"attention": {"name": "ega", "signal": "smell"}}, "linear"),
        ({"attention": {"name": "ega", "norm": "causal"}}, "gate_norm"),
        ({"attention": {"name": "dot", "gate_norm": "causal"}}, "no settings"),
        ({"position": {"name": "morlet"}}, "mope"),
        ({"position": {"name": "mope", "init": "wide"}}, "multiscale"),
    ],
)
def test_unknown_mechanisms_and_settings_name_the_valid_ones(model: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        resolve(ModelConfig(**model))
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_resolve_fills_every_setting_in_and_is_stable() -> None:
    resolved = resolve(
        ModelConfig(attention={"name": "ega"}, position={"name": "mope", "init": "multiscale"})
    )
    assert resolved.attention["gate_norm"] == "causal" and resolved.attention["signal"] == "linear"
    assert resolved.position["init"] == "multiscale" and resolved.position["admissibility"] == "project"
    assert resolve(resolved) == resolved


def test_only_the_papers_gate_norm_declares_that_it_sees_the_future() -> None:
    def causal(norm: str) -> bool:
        return is_causal(ModelConfig(attention={"name": "ega", "gate_norm": norm}))

    assert not causal("sequence")
    assert causal("causal") and causal("none")
    assert is_causal(ModelConfig())


@pytest.mark.parametrize(
    ("key", "value", "dotted"),
    [
        ("training.steps", 7, "training.steps"),
        ("steps", 7, "training.steps"),
        ("position.name", "rope", "model.position.name"),
        ("seed", 3, "seed"),
    ],
)
def test_overrides_by_dotted_key_or_a_unique_end(key: str, value: Any, dotted: str) -> None:
    before = to_plain(experiment())
    after = with_overrides(before, {key: value})
    changed = {k: v for k, v in flatten(after).items() if flatten(before)[k] != v}
    assert changed == {dotted: value}
    assert before == to_plain(experiment()), "the settings given are left alone"


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("stepz", "training.steps"),
        ("name", "model.attention.name"),
        ("training", "training.steps"),
        ("eps", "training"),
    ],
)
def test_unknown_and_ambiguous_overrides_name_the_valid_keys(key: str, says: str) -> None:
    with pytest.raises(ValueError, match="setting: expected one of") as caught:
        with_overrides(to_plain(experiment()), {key: 1})
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_unknown_presets_name_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="smoke, small, paper"):
        preset("huge")
