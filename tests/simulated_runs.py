"""Run folders written through RunWriter without any training: known losses give known answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ega_mope.config import ExperimentConfig, ModelConfig, Plain, TrainConfig
from ega_mope.experiments import describe, prepare
from ega_mope.runs import Run, RunWriter

CELL_MECHANISMS = {
    "00": ("dot", "learned"),
    "10": ("ega", "learned"),
    "01": ("dot", "mope"),
    "11": ("ega", "mope"),
}


def write_run(
    folder: Path,
    name: str,
    corpus: Path,
    *,
    attention: Plain | None = None,
    position: Plain | None = None,
    seed: int = 0,
    validation: Sequence[tuple[int, float | None]] = ((0, 4.0), (3, 3.0), (6, 2.0)),
    train: Sequence[tuple[int, float | None]] = (),
    state: str = "finished",
    device: str = "cpu",
    tokenizer: str = "characters",
    training: Mapping[str, Any] | None = None,
    learned: Mapping[int, Plain] | None = None,
    audit: Plain | None = None,
    change: Callable[[Plain], None] = lambda document: None,
) -> Run:
    """One run with these losses (None: not finite) and, by step, learned scalars; no weights.

    `change` may edit its config.json before it is written.
    """
    config = ExperimentConfig(
        model=ModelConfig(
            context_length=32,
            n_layers=1,
            n_heads=2,
            d_model=16,
            attention=attention or {"name": "dot"},
            position=position or {"name": "learned"},
        ),
        training=TrainConfig(
            **{"steps": 6, "batch_size": 4, "warmup_steps": 2, "evaluate_every": 3, "log_every": 1}
            | dict(training or {})
        ),
        corpus=str(corpus),
        tokenizer=tokenizer,
        seed=seed,
        preset="smoke",
    )
    prepared = prepare(config)
    document = describe(prepared, torch.device("cpu"), name)
    document["device"]["type"] = device
    change(document)
    writer = RunWriter(folder / name)
    writer.start(document, prepared.tokenizer)
    for split, points in (("train", train), ("validation", validation)):
        for step, loss in points:
            writer.append("metrics.jsonl", _record(split, step, loss))
    for step, values in (learned or {}).items():
        writer.append("learned.jsonl", {"step": step, "values": values})
    if audit is not None:
        writer.save_audit(audit)
    writer.set_status(state, max(step for step, _ in validation))
    writer.close()
    return Run(folder / name)


def _record(split: str, step: int, loss: float | None) -> Plain:
    record = {
        "step": step,
        "tokens": step * 128,
        "seconds": step * 0.5,
        "split": split,
        "loss_nats": loss,
        "lr": 1e-3,
        "grad_norm": 1.0,
        "tokens_per_second": 256.0,
    }
    return record if loss is not None else record | {"diverged": True}


def write_cells(
    folder: Path,
    corpus: Path,
    losses: Mapping[str, Mapping[int, float]],
    gate_norm: str = "causal",
    **more: Any,
) -> list[Run]:
    """A 2×2 with these best losses by cell and seed; the loss before is 0.5 higher."""
    runs = []
    for cell, by_seed in losses.items():
        attention, position = CELL_MECHANISMS[cell]
        mechanism = {"name": attention} | ({"gate_norm": gate_norm} if attention == "ega" else {})
        for seed, loss in by_seed.items():
            runs.append(
                write_run(
                    folder,
                    f"{cell}-{gate_norm}-s{seed}",
                    corpus,
                    attention=mechanism,
                    position={"name": position},
                    seed=seed,
                    **{"validation": [(0, loss + 2), (3, loss + 0.5), (6, loss)]} | more,
                )
            )
    return runs
