"""A tiny experiment, and a training process of its own that can be killed at any call."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from ega_mope.config import ExperimentConfig, ModelConfig, TrainConfig
from ega_mope.experiments import resume_experiment, run_experiment
from ega_mope.training import Checkpoint, Record

MODEL = ModelConfig(
    context_length=12, n_layers=1, n_heads=2, d_model=8, dropout=0.2, attention={"name": "ega"}
)
TRAINING = TrainConfig(
    steps=20, batch_size=2, warmup_steps=2, evaluate_every=4, log_every=1, validation_batches=2
)


def tiny_experiment(corpus: Path, seed: int = 0, **training: Any) -> ExperimentConfig:
    """Milliseconds a step, with dropout and random validation batches: every random stream is in use."""
    return ExperimentConfig(
        model=MODEL,
        training=dataclasses.replace(TRAINING, **training),
        corpus=str(corpus),
        seed=seed,
        preset="smoke",
    )


def train_in_a_process(config: ExperimentConfig, runs: Path, name: str, kill_at: int | None = None) -> int:
    """Train or resume, in another process; SIGKILL strikes at its `kill_at`-th call. Returns its exit code.

    `<runs>/<name>.calls` says afterwards how many calls it took to the last checkpoint.
    """
    context = multiprocessing.get_context("forkserver")
    # The server imports once what takes long; each trainer is a fork of it.
    context.set_forkserver_preload(["ega_mope.experiments", "torch._dynamo", "safetensors.torch"])
    process = context.Process(target=_train, args=(config, runs, name, kill_at))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def _train(config: ExperimentConfig, runs: Path, name: str, kill_at: int | None) -> None:
    calls = 0

    def strike(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def note(record: Record) -> None:
        if isinstance(record, Checkpoint):
            (runs / f"{name}.calls").write_text(str(calls))

    sys.setprofile(strike)
    if (runs / name / "config.json").exists():
        resume_experiment(runs / name, device="cpu", watch=note)
    else:
        run_experiment(config, runs, name=name, device="cpu", watch=note)
    sys.setprofile(None)
