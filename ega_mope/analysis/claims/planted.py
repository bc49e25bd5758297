"""The lab's own questions to the planted text, whose answers are known (ega_mope.text.planted)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ega_mope.analysis.claims.evidence import Evidence, config_of, has, with_weights
from ega_mope.analysis.claims.outcome import LEAST, Claim, Outcome, Paper, Part, Verdict, too_few
from ega_mope.analysis.claims.text import read
from ega_mope.analysis.intervals import t_interval
from ega_mope.analysis.planted import MarkerAuc, ScaleFit, best_auc, marker_auc, out_of_reach, scale_fit
from ega_mope.positions.mope_relative import SHORTEST_SIGMA
from ega_mope.runs import Run
from ega_mope.text.planted import VALUES, Planted, planted

GROUP = "Planted text"
TEXT_TOKENS, TEXT_SEED = 4096, 1
"""The text that is read: of the planted language, but not the one that was trained on (seed 0)."""
CHANCE = 0.05
SIGMA = {"mope": "position.sigma", "mope_relative": "position.head_sigma"}
OURS = Paper(None, "the paper has no such text")
TRAIN = "for seed in 0 1 2; do ega-mope train {} --preset small --corpus planted --seed $seed; done"
TO_TRAIN = {
    "mope": "--attention ega --gate-norm causal --position mope --set init=multiscale --set rate_multiplier=10",
    "mope_relative": "--attention ega --gate-norm causal --position mope_relative --set rate_multiplier=10",
}


@lru_cache(maxsize=1)
def unseen() -> Planted:
    """A planted text that no run was trained on, with its labels."""
    return planted(TEXT_TOKENS, seed=TEXT_SEED)


def on_planted(evidence: Evidence) -> list[Run]:
    """Finished runs that were trained on the planted text."""
    return [run for run in evidence.finished if run.document["corpus"]["name"] == "planted"]


class Found(NamedTuple):
    """How well gates tell markers from the answers, which are digits too but needed by nobody; the best head's AUC
    in the same before any training; and its AUC against all other tokens."""

    answers: MarkerAuc
    untrained: float
    others: float

    @property
    def learned(self) -> bool:
        """Beyond shuffled labels, and beyond what the start could do."""
        return self.answers.best_p < CHANCE and self.answers.best_auc > self.untrained


def markers_found(run: Run) -> Found:
    """The gates of a run against the labels of the planted text that no run was trained on."""
    text = unseen()
    digit = np.isin(np.array(list(text.text)), list(VALUES))
    trained, start = (read(run, text.text, trained=trained).gate for trained in (True, False))
    labels = text.marker[digit]
    return Found(
        marker_auc(trained[..., digit], labels),
        best_auc(start[..., digit], labels),
        best_auc(trained, text.marker),
    )


def judge_markers(evidence: Evidence) -> Outcome:
    """Does any head's gate open wider for values that are asked for again than for the answers?"""
    every = on_planted(evidence)
    runs = [
        run
        for run in every
        if has(run.config.model.attention, name="ega") and run.sees_future is False and with_weights(run)
    ]
    found = [markers_found(run) for run in runs]
    best = [one.answers.best_auc for one in found]
    significant = [one.learned for one in found]
    n = len(runs)
    few = too_few(n, "runs")
    word = (
        "the best head's AUC is above that of shuffled labels and of the untrained gates "
        f"in {sum(significant)} of {n} runs"
    )
    parts = [
        Part(
            f"{run.name}: layer {one.answers.best[0] + 1}, head {one.answers.best[1] + 1}, p = {one.answers.best_p:.3g}",
            one.answers.best_auc,
            "AUC",
        )
        for run, one in zip(runs, found, strict=True)
    ]
    if found:
        untrained = float(np.mean([one.untrained for one in found]))
        others = float(np.mean([one.others for one in found]))
        parts.append(Part("the same before any training, best head", untrained, "AUC", None, n))
        parts.append(Part("against all other tokens, best head", others, "AUC", None, n))
    verdict = _by_runs(significant)
    return Outcome(
        verdict=verdict,
        unit="AUC",
        estimate=float(np.mean(best)) if best else None,
        interval=t_interval(best, least=0.0, most=1.0),
        n=n,
        n_of="runs",
        reason=f"{few} on the planted text with weights and causal gates" if few else word,
        parts=tuple(parts),
        runs=tuple(runs),
        commands=(TRAIN.format(TO_TRAIN["mope"]),),
    )


def _by_runs(significant: Sequence[bool]) -> Verdict:
    """Holds where every run says so, fails where none does; undecided with too few."""
    if len(significant) < LEAST:
        return "undecided"
    return "holds" if all(significant) else "undecided" if any(significant) else "fails"


class Fitted(NamedTuple):
    """A run, how near its σ are to the planted distances, and the distances it cannot have come to."""

    run: Run
    fit: ScaleFit
    unreachable: tuple[int, ...]
    arithmetic: str


def start_range(run: Run) -> tuple[float, float]:
    """The bounds between which σ start, in tokens: the start's distribution is log-uniform between them."""
    model = run.config.model
    if model.position.get("init") == "paper":
        return 5.0 / (0.99 * math.pi), 5.0
    return SHORTEST_SIGMA, max(SHORTEST_SIGMA, float(model.context_length))


def fitted(evidence: Evidence, run: Run) -> Fitted | None:
    """A run's σ held against the planted distances; None where the run has no record of them."""
    position = run.config.model.position
    learned = evidence.learned(run)
    if learned is None:
        return None
    name = SIGMA[position["name"]]
    start, end = (np.asarray(values[name], dtype=float) for values in (learned.start, learned.end))
    most = config_of(run).training.most_log_move(position["rate_multiplier"])
    distances = unseen().distances
    reach = float(start.max()) * math.exp(min(most, 50.0))
    arithmetic = f"σ ≤ {start.max():.3g} at the start, at most e^{most:.3g} times that: {reach:.3g} tokens"
    fit = scale_fit(end, distances, start_range(run))
    return Fitted(run, fit, out_of_reach(float(start.max()), most, distances), arithmetic)


def judge_scales(position: str) -> Callable[[Evidence], Outcome]:
    """Are there σ at the planted distances, nearer than draws from the start come?"""

    def judge(evidence: Evidence) -> Outcome:
        runs = [run for run in on_planted(evidence) if has(run.config.model.position, name=position)]
        every = [one for run in runs if (one := fitted(evidence, run))]
        able = [one for one in every if not one.unreachable]
        values, n = [one.fit.found for one in able], len(able)
        near = [one.fit.p < CHANCE for one in able]
        verdict = _by_runs(near)
        few = too_few(n, "runs")
        chance = f", by chance {np.mean([one.fit.by_chance for one in able]):.3f}" if able else ""
        return Outcome(
            verdict=verdict,
            unit="log units",
            estimate=float(np.mean(values)) if values else None,
            interval=t_interval(values),
            n=n,
            n_of="runs",
            reason=(
                f"{few} that can reach the distances"
                if few
                else f"nearer than chance in {sum(near)} of {n} runs"
            )
            + chance,
            parts=tuple(
                Part(f"{one.run.name} cannot reach {_listed(one.unreachable)}: {one.arithmetic}", None, "")
                for one in every
                if one.unreachable
            ),
            runs=tuple(one.run for one in able),
            commands=(TRAIN.format(TO_TRAIN[position]),),
        )

    return judge


def _listed(distances: Sequence[int]) -> str:
    return " and ".join(map(str, distances))


def _scales_claim(position: str, name: str) -> Claim:
    return Claim(
        id=f"planted-scales-{position.replace('_', '-')}",
        group=GROUP,
        sentence=f"Scales settle at the distances that predict a token ({name})",
        test="The median over the planted distances (4, 12, 36) of |log(σ/D)| of the nearest σ is below that of 95 % of "
        "1,000 draws of as many σ from the start's distribution, in every run; it fails where it is in none. Runs "
        "whose σ cannot have come that far do not count.",
        paper=OURS,
        judge=judge_scales(position),
    )


CLAIMS = [
    Claim(
        id="planted-markers",
        group=GROUP,
        sentence="Gates find what is needed later",
        test="Some head's gate opens wider for planted values that are asked for again than for the answers, the same "
        "digits but needed by nobody: AUC against 1,000 shuffles of the labels, corrected for the best of all heads, "
        f"p < {CHANCE}, and above the AUC of the same model before any training, in every run; it fails where it is in "
        "none.",
        paper=OURS,
        judge=judge_markers,
    ),
    _scales_claim("mope", "MoPE"),
    _scales_claim("mope_relative", "relative MoPE"),
]
