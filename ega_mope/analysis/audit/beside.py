"""The runs that an audit is read beside: the baseline, and the twin that was trained without the future.

Both are found among the runs and read from their own audit.json, where the same predictions were asked
for; nothing is computed again, so a shipped run is audited offline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ega_mope.analysis.audit.answer import Audit, curve_by_position
from ega_mope.analysis.audit.losses import mean_and_error
from ega_mope.analysis.train_command import train_command
from ega_mope.config import ExperimentConfig, Plain
from ega_mope.model import resolve
from ega_mope.runs import BrokenRun, Run

CAUSAL_NORMS = ("causal", "visible")


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One companion's teacher-forced loss at the same predictions, in nats per token.

    `gap_nats` is its loss minus the audited run's and `gap_error` the paired standard error over the
    sampled predictions: of these two trainings, not of the mechanisms. `validation_gap_nats` is the same
    over all that both were validated on, at their best. `missing` says why there is no companion.
    """

    run: str | None = None
    missing: str | None = None
    teacher_forced_nats: float | None = None
    gap_nats: float | None = None
    gap_error: float | None = None
    validation_gap_nats: float | None = None
    by_position: tuple[float | None, ...] = ()


def baseline(run: Run, audit: Audit, runs: Sequence[Run | BrokenRun]) -> Beside:
    """The run with dot-product attention and learned positions, all else equal."""
    if _names(run) == ("dot", "learned"):
        return Beside(missing="this run is the baseline itself")
    if run.config.training is None:
        return Beside(missing="this run was trained elsewhere: which baseline compares is not known")
    wanted = "dot-product attention and learned positions at the same text, size, training and seed"
    candidates = [other for other in _whole(runs) if _names(other) == ("dot", "learned")]
    candidates = [other for other in candidates if _rest(other, "model") == _rest(run, "model")]
    return _read(run, audit, candidates, wanted, _command(run, {"name": "dot"}, {"name": "learned"}))


def twin(run: Run, audit: Audit, runs: Sequence[Run | BrokenRun]) -> Beside | None:
    """The same run with a causal gate norm; None where the run has no gate norm that sees the future.

    Only beside it does a run that sees the future say what the future was worth.
    """
    attention = run.config.model.attention
    if audit.verdict != "sees the future" or "gate_norm" not in attention or run.config.training is None:
        return None
    key = "model.attention.gate_norm"
    candidates = [
        other
        for norm in CAUSAL_NORMS
        for other in _whole(runs)
        if other.config.model.attention.get("gate_norm") == norm and _rest(other, key) == _rest(run, key)
    ]
    wanted = "the same run trained with gate norm causal or visible"
    causal = {**attention, "gate_norm": CAUSAL_NORMS[0]}
    return _read(run, audit, candidates, wanted, _command(run, causal, run.config.model.position))


def _whole(runs: Sequence[Run | BrokenRun]) -> list[Run]:
    return [run for run in runs if isinstance(run, Run)]


def _names(run: Run) -> tuple[str, str]:
    model = run.config.model
    return model.attention["name"], model.position["name"]


def _rest(run: Run, without: str) -> Plain:
    """What else must be equal: seed, text, training, and of the model all but what is compared."""
    left_out = (without,) if without != "model" else ("model.attention.", "model.position.")
    return {"seed": run.seed} | {
        key: value for key, value in run.settings().items() if not key.startswith(left_out)
    }


def _command(run: Run, attention: Plain, position: Plain) -> str:
    """What would train the same run with these mechanisms."""
    assert isinstance(run.config, ExperimentConfig)
    model = resolve(replace(run.config.model, attention=attention, position=position))
    return train_command(run, replace(run.config, model=model))


def _read(run: Run, audit: Audit, candidates: Sequence[Run], wanted: str, command: str) -> Beside:
    """The first candidate whose audit asked for the same predictions."""
    others = [other for other in candidates if other.path != run.path]
    if not others:
        return Beside(missing=f"needed: {wanted}; make it with `{command}`")
    for other in others:
        document = other.audit
        same = document is not None and document.get("sample", {}).get("id") == audit.sample.get("id")
        if document is not None and same and "teacher_forced" in document["sample"]:
            return _compare(run, other, document["sample"], audit)
    name = others[0].name
    way = f"do it with `ega-mope audit {name} --fresh --keep`"
    if not (others[0].path / "model.safetensors").exists():
        way = f"its weights are not here to do it; train it again with `{command}`"
    return Beside(
        run=name,
        missing=f"{name} was not audited at the same predictions; {way}",
    )


def _compare(run: Run, other: Run, theirs: Plain, audit: Audit) -> Beside:
    loss = np.asarray(theirs["teacher_forced"])
    position, window = theirs["position"], theirs["window"]
    bins = list(zip(audit.by_position["from"], audit.by_position["to"], strict=True))
    curve, _ = curve_by_position(loss.tolist(), position, window, bins)
    own = audit.sample.get("teacher_forced")
    gap, error = mean_and_error(loss - np.asarray(own), np.asarray(window)) if own else (None, None)
    mine, its = run.best(), other.best()
    over_all = its.loss_nats - mine.loss_nats if mine and its and run.evaluation == other.evaluation else None
    return Beside(
        run=other.name,
        teacher_forced_nats=float(loss.mean()),
        gap_nats=gap,
        gap_error=error,
        validation_gap_nats=over_all,
        by_position=tuple(curve),
    )
