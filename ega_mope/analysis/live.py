"""A training as it happens: how far, how fast, against the best comparable run before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from ega_mope.analysis.losses import curve
from ega_mope.runs import Run, peak_memory_of


@dataclass(frozen=True)
class Live:
    """What the Train page shows of one run.

    losses  columns step, curve ("train", "validation"), loss_nats
    ghost   the best comparable run's validation losses, columns step, loss_nats; empty where there is none
    scales  columns step, pair, omega (rad/token), sigma (tokens); empty for a run without learned scales
    gates   columns step, layer, head (from 1), threshold, sharpness; empty for a run without gates
    sample  the last sample text and its step, if one was written
    """

    step: int
    steps: int
    tokens_per_second: float | None
    eta_seconds: float | None
    peak_memory_bytes: int | None
    losses: pd.DataFrame
    ghost: pd.DataFrame
    ghost_run: Run | None
    scales: pd.DataFrame
    gates: pd.DataFrame
    sample: tuple[int, str] | None


def live(run: Run, others: Iterable[Run]) -> Live:
    """Read the run's folder as it is now; ValueError for a run that was trained elsewhere."""
    if run.config.training is None:
        raise ValueError(f"{run.name}: expected a run trained here, got an imported one; choose another")
    ghost = best_comparable(run, others)
    records = run.records()
    steps = run.config.training.steps
    train = [record for record in records if record["split"] == "train"]
    step = max((record["step"] for record in records), default=0)
    speed = train[-1]["tokens_per_second"] if train else None
    per_step = train[-1]["tokens"] / train[-1]["step"] if train else None
    samples = run.samples()
    return Live(
        step=step,
        steps=steps,
        tokens_per_second=speed,
        eta_seconds=(steps - step) * per_step / speed if speed and per_step else None,
        peak_memory_bytes=peak_memory_of(records),
        losses=_losses(run),
        ghost=_validation(ghost),
        ghost_run=ghost,
        scales=_scales(run),
        gates=_gates(run),
        sample=(samples[-1]["step"], samples[-1]["text"]) if samples else None,
    )


def best_comparable(run: Run, others: Iterable[Run]) -> Run | None:
    """The finished run with the lowest validation loss of the same evaluation; None where there is none."""
    found = [
        (best.loss_nats, other.name, other)
        for other in others
        if other.path != run.path
        and other.evaluation == run.evaluation
        and other.status.state == "finished"
        and (best := other.best()) is not None
    ]
    return min(found, key=lambda item: item[:2])[2] if found else None


def _losses(run: Run) -> pd.DataFrame:
    parts = []
    for split in ("train", "validation"):
        found = curve(run, split)
        parts.append(pd.DataFrame({"step": found.step, "curve": split, "loss_nats": found.loss_nats}))
    return pd.concat(parts, ignore_index=True)


def _validation(run: Run | None) -> pd.DataFrame:
    found = curve(run, "validation") if run else None
    return pd.DataFrame(
        {"step": found.step if found else [], "loss_nats": found.loss_nats if found else []}, dtype=float
    )


def _scales(run: Run) -> pd.DataFrame:
    rows = [
        (record["step"], pair, omega, sigma)
        for record in run.learned()
        if "position.omega" in record["values"] and "position.sigma" in record["values"]
        for pair, (omega, sigma) in enumerate(
            zip(record["values"]["position.omega"], record["values"]["position.sigma"], strict=True)
        )
    ]
    return pd.DataFrame(rows, columns=["step", "pair", "omega", "sigma"])


def _gates(run: Run) -> pd.DataFrame:
    rows = [
        (record["step"], layer, head, threshold, sharpness)
        for record in run.learned()
        if "attention.threshold" in record["values"]
        for layer, (thresholds, sharpnesses) in enumerate(
            zip(
                record["values"]["attention.threshold"], record["values"]["attention.sharpness"], strict=True
            ),
            1,
        )
        for head, (threshold, sharpness) in enumerate(zip(thresholds, sharpnesses, strict=True), 1)
    ]
    return pd.DataFrame(rows, columns=["step", "layer", "head", "threshold", "sharpness"])
