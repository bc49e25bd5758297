"""The audit's answer: what audit.json, `ega-mope audit --json` and `em.audit` hand out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ega_mope.analysis.audit.changes import distance_bins, position_bins
from ega_mope.analysis.audit.losses import Losses, Sample, mean_and_error
from ega_mope.analysis.audit.probe import Finding
from ega_mope.config import Plain

Verdict = Literal["causal", "sees the future", "cannot tell"]
CURVES = ("teacher_forced", "exchanged_future", "prefix_only")


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Does the model see the future, how that shows, and what could not be computed (`notes`).

    Losses are nats per token, changes are of logits. `mode` is where the future was seen, or the modes
    in which it was not. `by_position` and `by_distance` hold parallel lists, bins with both ends
    included; None stands for what could not be computed. `sample` holds the single losses, so that runs
    with the same `sample["id"]` compare prediction by prediction.
    """

    run: str | None
    verdict: Verdict
    mode: str
    where: str | None
    reason: str
    max_logit_change: float | None
    rounding: float | None
    threshold: float | None
    by_distance: Plain
    by_position: Plain
    teacher_forced_nats: float | None
    exchanged_future_nats: float | None
    prefix_only_nats: float | None
    standard_error: Plain
    windows: int
    predictions: int
    draws: int
    context: int
    modes: list[Plain]
    notes: list[str] = field(default_factory=list)
    sample: Plain = field(default_factory=dict)

    def to_plain(self) -> Plain:
        """Plain data for JSON; the inverse of `from_plain`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_plain(cls, document: Mapping[str, Any]) -> Audit:
        """The audit in an audit.json; ValueError where it is none."""
        names = {f.name for f in dataclasses.fields(cls)}
        missing = sorted(names - set(document))
        if missing:
            raise ValueError(
                f"audit.json: expected an audit with {missing[0]!r}, got none; measure it again with "
                "`ega-mope audit RUN --fresh --keep`"
            )
        return cls(**{key: value for key, value in document.items() if key in names})


def cannot_audit(run: str, context: int, reason: str) -> Audit:
    """The answer where the audit could not even begin: it says why and holds no number."""
    decision = Decision("cannot tell", "no mode", reason, Finding("no mode", reason))
    return assemble(
        run=run,
        decision=decision,
        findings=[],
        where=None,
        context=context,
        losses=Losses({}, {}),
        sample=None,
        draws=0,
        notes=[],
    )


@dataclass(frozen=True)
class Decision:
    """The verdict and the finding it rests on."""

    verdict: Verdict
    mode: str
    reason: str
    finding: Finding


def decide(findings: Sequence[Finding]) -> Decision:
    """The first mode that sees the future decides; else every mode in the model's own precision must have
    been clean. A bf16 that could not be asked does not stop a verdict."""
    seen = next((f for f in findings if f.sees_future), None)
    if seen:
        mode = seen.mode if seen.sees_own_future else f"{seen.mode}, across the batch"
        return Decision("sees the future", mode, _seen_reason(seen), seen)
    first = next((f for f in findings if f.problem and not f.mode.endswith("bf16")), None)
    if first:
        return Decision("cannot tell", first.mode, f"In {_stage(first)} {first.problem}.", first)
    clean = [f for f in findings if not f.problem]
    most = max(clean, key=lambda f: max(f.own, f.across))
    moved = max(most.own, most.across)
    what = (
        "no logit moved at all"
        if moved == 0
        else f"no logit moved by more than {moved:.2g}, which is rounding,"
    )
    reason = f"When only later tokens, or only other windows of the batch, changed, {what}."
    return Decision("causal", _together([f.mode for f in clean]), reason, clean[0])


def _seen_reason(f: Finding) -> str:
    moved, what = (f.own, "later tokens") if f.sees_own_future else (f.across, "other windows of the batch")
    size = f"by up to {moved:.2g}" if math.isfinite(moved) else "to infinity or to not-a-number"
    least = f"rounding explains at most {f.threshold:.2g}"
    if f.hidden:
        least = (
            "as little as rounding, but just as much when computed in float64, where rounding is far smaller"
        )
    return f"In {_stage(f)} earlier logits move {size} when only {what} change; {least}."


def _stage(f: Finding) -> str:
    return f.mode.replace(", ", " mode (") + ")" if not f.mode.startswith("as called") else f.mode


def _together(modes: Sequence[str]) -> str:
    """ "evaluation and training, float32 and bf16" from the four names."""
    pairs = [mode.split(", ") for mode in modes]
    stages, precisions = (list(dict.fromkeys(column)) for column in zip(*pairs, strict=True))
    if len(stages) * len(precisions) != len(modes):
        return "; ".join(modes)
    return f"{' and '.join(stages)}, {' and '.join(precisions)}"


def assemble(
    *,
    run: str | None,
    decision: Decision,
    findings: Sequence[Finding],
    where: str | None,
    context: int,
    losses: Losses,
    sample: Sample | None,
    draws: int,
    notes: Sequence[str],
) -> Audit:
    """Put the pieces together, non-finite numbers as None."""
    finding = decision.finding
    bins = position_bins(context)
    means = {name: _mean(losses, sample, name) for name in CURVES}
    errors: Plain = {name: error for name, (_, error) in means.items()}
    for name in CURVES[1:]:
        errors[f"{name}_minus_teacher_forced"] = _difference_error(losses, sample, name)
    moved = finding.own if finding.sees_own_future or not finding.sees_future else finding.across
    return Audit(
        run=run,
        verdict=decision.verdict,
        mode=decision.mode,
        where=where,
        reason=decision.reason,
        max_logit_change=_number(moved) if findings else None,
        rounding=_rounded(finding.null) if findings else None,
        threshold=_rounded(finding.threshold) if findings else None,
        by_distance=_changes_by_distance(finding, context),
        by_position=_by_position(losses, sample, finding, bins),
        teacher_forced_nats=means["teacher_forced"][0],
        exchanged_future_nats=means["exchanged_future"][0],
        prefix_only_nats=means["prefix_only"][0],
        standard_error=errors,
        windows=len(np.unique(sample.window)) if sample else 0,
        predictions=len(sample.position) if sample else 0,
        draws=draws if "exchanged_future" in losses.curves else 0,
        context=context,
        modes=[_mode(f) for f in findings],
        notes=[
            *notes,
            *(f"{_words(name)} could not be computed: {why}" for name, why in losses.problems.items()),
        ],
        sample=_sample(losses, sample),
    )


def _mean(losses: Losses, sample: Sample | None, name: str) -> tuple[float | None, float | None]:
    if sample is None or name not in losses.curves:
        return None, None
    mean, error = mean_and_error(losses.curves[name], sample.window)
    return _rounded(mean), None if error is None else _rounded(error)


def _difference_error(losses: Losses, sample: Sample | None, name: str) -> float | None:
    if sample is None or not {name, "teacher_forced"} <= set(losses.curves):
        return None
    _, error = mean_and_error(losses.curves[name] - losses.curves["teacher_forced"], sample.window)
    return None if error is None else _rounded(error)


def curve_by_position(
    values: Sequence[float], position: Sequence[int], window: Sequence[int], bins: Sequence[tuple[int, int]]
) -> tuple[list[float | None], list[float | None]]:
    """Mean loss and its standard error in each bin of positions; None where nothing was sampled."""
    at, loss, of = np.asarray(position), np.asarray(values), np.asarray(window)
    means: list[float | None] = []
    errors: list[float | None] = []
    for low, high in bins:
        inside = (at >= low) & (at <= high)
        mean, error = mean_and_error(loss[inside], of[inside]) if inside.any() else (None, None)
        means.append(None if mean is None else _rounded(mean))
        errors.append(None if error is None else _rounded(error))
    return means, errors


def _by_position(
    losses: Losses, sample: Sample | None, finding: Finding, bins: Sequence[tuple[int, int]]
) -> Plain:
    document: Plain = {"from": [low for low, _ in bins], "to": [high for _, high in bins]}
    errors: Plain = {}
    for name in CURVES:
        if sample is None or name not in losses.curves:
            document[name] = errors[name] = None
        else:
            document[name], errors[name] = curve_by_position(
                losses.curves[name].tolist(), sample.position.tolist(), sample.window.tolist(), bins
            )
    changes = [_number(value) for value in finding.by_position] if finding.by_position else None
    return {**document, "standard_error": errors, "max_logit_change": changes}


def _changes_by_distance(finding: Finding, context: int) -> Plain:
    bins = distance_bins(context)
    return {
        "from": [low for low, _ in bins],
        "to": [high for _, high in bins],
        "max_logit_change": [_number(v) for v in finding.by_distance] if finding.by_distance else None,
    }


def _mode(f: Finding) -> Plain:
    answer = "sees the future" if f.sees_future else "cannot tell" if f.problem else "causal"
    if answer == "causal" and max(f.own, f.across) > f.null:
        # Moved, yet by no more than rounding may explain: in bf16 that is much, and no proof of anything.
        answer = "within rounding"
    return {
        "mode": f.mode,
        "verdict": answer,
        "later_tokens": _number(f.own),
        "other_windows": _number(f.across),
        "rounding": _rounded(f.null),
        "threshold": _rounded(f.threshold),
        "problem": f.problem,
    }


def _sample(losses: Losses, sample: Sample | None) -> Plain:
    if sample is None:
        return {}
    curves = {name: [_rounded(v) for v in values] for name, values in losses.curves.items()}
    return {
        "id": sample.id,
        "window": sample.window.tolist(),
        "position": sample.position.tolist(),
        **curves,
    }


def _words(name: str) -> str:
    return name.replace("_", "-" if name != "exchanged_future" else " ")


def _number(value: float) -> float | None:
    return _rounded(value) if math.isfinite(value) else None


def _rounded(value: float) -> float:
    """Seven significant digits: what float32 holds."""
    return float(f"{value:.7g}")
