"""Priors: scales and projections that stay where they started, there or where another run ended."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from mechanism_models import ids_of
from safetensors.torch import load_file, save_file
from streamlit.testing.v1 import AppTest

from ega_mope import cli, jobs
from ega_mope.analysis.naming import position_name
from ega_mope.analysis.scales import movement, scales
from ega_mope.analysis.train_command import train_command
from ega_mope.config import ExperimentConfig, ModelConfig, Plain, TrainConfig, to_plain
from ega_mope.experiments import prepare, resume_experiment, run_experiment
from ega_mope.priors import values_hash
from ega_mope.runs import Run, request_stop
from ega_mope.sweeps import plan
from ega_mope.sweeps.grids import Cell
from ega_mope.training import Learned, Record, Step, train


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


@pytest.mark.parametrize("freeze", ["nothing", "omega", "sigma", "both"])
def test_relative_scales_freeze_too(freeze: str) -> None:
    start, end = learned_over_training({"name": "dot"}, {"name": "mope_relative", "freeze": freeze})
    unmoved = {name.partition(".")[2] for name, values in start.items() if values == end[name]}
    frozen = {"omega": {"rotation_omega"}, "sigma": {"head_sigma"}, "nothing": set()}
    assert unmoved == frozen.get(freeze, {"rotation_omega", "head_sigma"})


# ---- taken from another run


@pytest.fixture
def own(tiny_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of own runs with two to take from."""
    for name in ("dot-mope-s0", "ega-causal-learned-s0", "dot-learned-s0"):
        shutil.copytree(tiny_runs / name, tmp_path / "runs" / name)
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def config_of(
    text: Path, attention: Plain, position: Plain, steps: int = 3, **sizes: Any
) -> ExperimentConfig:
    shape = {"context_length": 24, "n_layers": 2, "n_heads": 2, "d_model": 16, **sizes}
    return ExperimentConfig(
        model=ModelConfig(**shape, attention=attention, position=position),
        training=TrainConfig(steps=steps, batch_size=4, warmup_steps=1, evaluate_every=3, decay_on="all"),
        corpus=str(text),
        seed=5,
    )


@pytest.fixture
def other_text(tmp_path: Path) -> Path:
    """Another text than the sources': a prior moves from corpus to corpus."""
    path = tmp_path / "other.txt"
    path.write_text("she sells sea shells by the sea shore, and the shells she sells are sure.\n" * 60)
    return path


MOPE, EGA, DOT, LEARNED = {"name": "mope"}, {"name": "ega"}, {"name": "dot"}, {"name": "learned"}


@pytest.mark.parametrize("freeze", ["nothing", "both"])
def test_scales_of_another_run_are_where_training_starts(freeze: str, own: Path, other_text: Path) -> None:
    source = Run(own / "dot-mope-s0")
    wanted = {name: values.tolist() for name, values in source.model("cpu").learned().items()}
    position = {**MOPE, "init": "multiscale", "from_run": source.name, "freeze": freeze}

    path, ended = run_experiment(config_of(other_text, DOT, position), own, audited=False)

    run = Run(path)
    start, end = (run.learned()[n]["values"] for n in (0, -1))
    assert ended == "finished" and start == wanted
    assert (end == wanted) is (freeze == "both")
    facts = run.document["priors"]["position"]
    assert facts["run"] == source.name and facts["seed"] == 0
    assert facts["corpus_sha256"] == source.document["corpus"]["sha256"] != run.document["corpus"]["sha256"]
    assert run.config.model.position["from_run"] == f"{source.name}@{facts['sha256'][:12]}"
    assert facts["sha256"] == values_hash(run.priors())
    assert path.name.endswith("mope-multiscale-from-run-s5")


def test_a_frozen_projection_of_another_run_stays_and_the_rest_learns(own: Path, other_text: Path) -> None:
    source = Run(own / "ega-causal-learned-s0").model("cpu").state_dict()
    attention = {**EGA, "from_run": "ega-causal-learned-s0", "freeze": "projection"}

    path, _ = run_experiment(config_of(other_text, attention, LEARNED), own, audited=False)

    ours = Run(path).model("cpu").state_dict()
    same = {name for name in ours if name in source and torch.equal(ours[name], source[name])}
    assert same == {f"blocks.{layer}.attention.signal.weight" for layer in (0, 1)} == set(Run(path).priors())


def test_a_run_opens_resumes_and_repeats_without_the_run_it_took_from(
    own: Path, other_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = {**MOPE, "from_run": "dot-mope-s0", "freeze": "both"}
    config = config_of(other_text, DOT, position, steps=6)
    whole, _ = run_experiment(config, own, name="whole", audited=False)
    monkeypatch.setattr(jobs, "ensure_worker", lambda runs: None)
    waiting = jobs.enqueue(config, own)

    def stop_early(record: Record) -> None:
        if isinstance(record, Step) and record.step == 3:
            request_stop(own / "stopped")

    stopped, ended = run_experiment(config, own, name="stopped", audited=False, watch=stop_early)
    shutil.rmtree(own / "dot-mope-s0")

    assert ended == "stopped"
    for path in (stopped, waiting):
        assert resume_experiment(path, audited=False) == "finished"
        assert Run(path).learned() == Run(whole).learned()
        assert Run(path).validation() == Run(whole).validation()
        assert Run(path).settings() == Run(whole).settings()
    assert Run(whole).model("cpu").position.log_sigma.requires_grad is False


@pytest.mark.parametrize(
    ("position", "sizes", "message"),
    [
        ({"from_run": "nowhere"}, {}, "expected a run folder or the name of one"),
        ({"from_run": "dot-learned-s0"}, {}, "got dot-learned-s0 with position learned"),
        (
            {"from_run": "dot-mope-s0"},
            {"d_model": 8, "n_heads": 1},
            "with d_model 8 as here, got dot-mope-s0 with d_model 16",
        ),
        ({"from_run": "dot-mope-s0", "admissibility": "free"}, {}, "with admissibility free as here"),
        ({"from_run": "dot-mope-s0@0123abcd"}, {}, "expected values with hash 0123abcd in dot-mope-s0, got"),
    ],
)
def test_scales_that_do_not_fit_are_refused_in_one_line(
    position: Plain, sizes: dict[str, int], message: str, own: Path, other_text: Path
) -> None:
    config = config_of(other_text, DOT, {**MOPE, **position}, **sizes)

    with pytest.raises(ValueError, match=message) as refused:
        run_experiment(config, own, name="refused")

    assert str(refused.value).startswith("position mope: from_run: ") and "\n" not in str(refused.value)
    assert not (own / "refused").exists()


@pytest.mark.parametrize(
    ("attention", "sizes", "message"),
    [
        ({}, {"n_heads": 4}, "with n_heads 4 as here, got ega-causal-learned-s0 with n_heads 2"),
        ({}, {"n_layers": 3}, "with n_layers 3 as here, got ega-causal-learned-s0 with n_layers 2"),
        ({"signal": "flux"}, {}, "with signal flux as here, got ega-causal-learned-s0 with signal linear"),
    ],
)
def test_projections_that_do_not_fit_are_refused(
    attention: Plain, sizes: dict[str, int], message: str, own: Path, other_text: Path
) -> None:
    taking = {**EGA, "from_run": "ega-causal-learned-s0", **attention}
    with pytest.raises(ValueError, match=message):
        prepare(config_of(other_text, taking, LEARNED, **sizes))


def test_a_gate_that_learns_nothing_has_nothing_to_give(own: Path, other_text: Path) -> None:
    fixed = {**EGA, "signal": "morlet"}
    run_experiment(config_of(other_text, fixed, LEARNED), own, name="fixed", audited=False)

    with pytest.raises(ValueError, match="got signal morlet, which has none; leave from_run out"):
        prepare(config_of(other_text, {**fixed, "from_run": "fixed"}, LEARNED))


@pytest.mark.parametrize("missing", ["weights", "end"])
def test_a_run_without_weights_or_end_gives_nothing(missing: str, own: Path, other_text: Path) -> None:
    if missing == "weights":
        (own / "dot-mope-s0" / "model.safetensors").unlink()
    else:
        (own / "dot-mope-s0" / "status.json").write_text('{"state": "stopped", "step": 3}')
    message = "with no weights" if missing == "weights" else "with a training that is stopped"

    with pytest.raises(ValueError, match=message):
        prepare(config_of(other_text, DOT, {**MOPE, "from_run": "dot-mope-s0"}))


def test_runs_are_alike_only_where_they_took_the_same_values(own: Path, other_text: Path) -> None:
    def settings(source: str) -> Plain:
        return to_plain(prepare(config_of(other_text, DOT, {**MOPE, "from_run": source})).config.model)

    first = settings("dot-mope-s0")
    assert settings(str(own / "dot-mope-s0")) == first
    weights = load_file(own / "dot-mope-s0" / "model.safetensors")
    save_file(
        {**weights, "position.log_omega": weights["position.log_omega"] + 1e-6},
        own / "dot-mope-s0" / "model.safetensors",
    )
    assert settings("dot-mope-s0") != first
    # Whatever else of the source changes is not taken.
    save_file(
        {**weights, "norm_final.bias": weights["norm_final.bias"] + 1},
        own / "dot-mope-s0" / "model.safetensors",
    )
    assert settings("dot-mope-s0") == first


def test_a_source_outside_the_known_folders_is_named_by_its_path(
    own: Path, other_text: Path, tmp_path: Path
) -> None:
    away = shutil.move(own / "dot-mope-s0", tmp_path / "away")
    model = prepare(config_of(other_text, DOT, {**MOPE, "from_run": str(away)})).config.model

    assert model.position["from_run"].startswith(f"{away}@")
    again = prepare(config_of(other_text, DOT, model.position))
    assert again.config.model == model


def test_command_line_and_sweeps_take_priors(own: Path, other_text: Path, tmp_path: Path) -> None:
    tiny = ("context_length=24", "n_layers=2", "n_heads=2", "d_model=16", "steps=3", "evaluate_every=3")
    words = ["train", "--position", "mope", "--scales-from", "dot-mope-s0", "--corpus", str(other_text)]
    words += ["--name", "by-hand", "--set", "position.freeze=both"]
    assert cli.run([*words, *(word for item in tiny for word in ("--set", item))]) == 0

    cell = Cell(label="taken", attention=DOT, position={**MOPE, "from_run": "dot-mope-s0", "freeze": "both"})
    [planned] = plan([cell], [0], corpus=str(other_text), overrides=tiny)

    run = Run(own / "by-hand")
    assert planned.is_same(run)
    again = shlex.split(train_command(run, run.config))  # type: ignore[arg-type]
    assert f"model.position.from_run={run.config.model.position['from_run']}" in again
    assert position_name(run.config.model.position).startswith("mope freeze both from dot-mope-s0@")
    assert "No ω or σ could move" in movement(scales(run))


FORM = """
import streamlit as st
from ega_mope.ui.train_form import choose_experiments
experiments, name = choose_experiments()
st.text(str(experiments[0].model.position.get("from_run")))
"""


def test_the_form_offers_the_runs_that_have_what_a_mechanism_takes(own: Path, tmp_path: Path) -> None:
    script = tmp_path / "form.py"
    script.write_text(FORM)
    at = AppTest.from_file(str(script), default_timeout=180).run()

    assert not at.exception
    sources = at.selectbox("position-mope-from_run")
    assert "dot-mope-s0" in sources.options and "dot-learned-s0" not in sources.options
    assert at.text[0].value == "None"
    assert sources.select("dot-mope-s0").run().text[0].value == "dot-mope-s0"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--scales-from", "x"],
            "--scales-from: expected one of (mope, mope_relative) to take it, got learned",
        ),
        (["--projection-from", "x"], "--projection-from: expected one of (ega) to take it, got dot"),
    ],
)
def test_an_option_without_its_mechanism_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["train", *words]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
