"""Shared fixtures: a small text and a handful of tiny runs, trained once for the whole session."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.\n"
    "Pack my box with five dozen liquor jugs!\n"
    "How vexingly quick daft zebras jump;\n"
    "sphinx of black quartz, judge my vow.\n"
)


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test sees the developer's own runs, corpora or caches."""
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path_factory.getbasetemp() / "no-runs-here"))
    monkeypatch.delenv("EGA_MOPE_DATA", raising=False)


@pytest.fixture(scope="session")
def small_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file of about 6,000 characters: long enough for tiny models, no download."""
    path = tmp_path_factory.mktemp("text") / "sentences.txt"
    path.write_text(SENTENCES * 40)
    return path


@pytest.fixture(scope="session")
def tiny_runs(tmp_path_factory: pytest.TempPathFactory, small_text: Path) -> Path:
    """A folder of finished tiny runs: both 2×2 families' cells at seeds 0 and 1.

    Names: dot-learned-s0, dot-mope-s0, ega-causal-learned-s0, ega-causal-mope-s0,
    ega-sequence-learned-s0, ega-sequence-mope-s0, and the same with s1. The three at seed 0 with learned
    positions are audited.
    """
    from ega_mope.config import ExperimentConfig, ModelConfig, TrainConfig
    from ega_mope.experiments import run_experiment

    folder = tmp_path_factory.mktemp("tiny-runs")
    model = ModelConfig(context_length=32, n_layers=2, n_heads=2, d_model=16)
    training = TrainConfig(steps=6, batch_size=4, warmup_steps=2, evaluate_every=3, log_every=1)
    attentions = {
        "dot": {"name": "dot"},
        "ega-causal": {"name": "ega", "gate_norm": "causal"},
        "ega-sequence": {"name": "ega", "gate_norm": "sequence"},
    }
    for seed in (0, 1):
        for label, attention in attentions.items():
            for position in ("learned", "mope"):
                config = ExperimentConfig(
                    model=dataclasses.replace(model, attention=attention, position={"name": position}),
                    training=training,
                    corpus=str(small_text),
                    seed=seed,
                    preset="smoke",
                )
                run_experiment(
                    config,
                    folder,
                    name=f"{label}-{position}-s{seed}",
                    device="cpu",
                    audited=seed == 0 and position == "learned",
                )
    return folder
