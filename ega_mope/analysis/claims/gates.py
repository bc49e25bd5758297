"""Claims about the gates: whom they suppress, where the threshold settles, how much passes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ega_mope.analysis.claims.evidence import PAPERS_TEXT, Evidence, config_of, has, setup
from ega_mope.analysis.claims.losses import NORMS, ega
from ega_mope.analysis.claims.outcome import Claim, Outcome, Paper, Part, above, too_few, within
from ega_mope.analysis.claims.paired import SEEDS, commands, comparisons, model
from ega_mope.analysis.claims.text import dense, read, readable, sample
from ega_mope.analysis.intervals import t_interval
from ega_mope.analysis.train_command import train_commands
from ega_mope.runs import Run

GROUP = "Gates"
THRESHOLD, THRESHOLD_NEAR = 0.35, 0.1
"""The paper's threshold, in standard deviations of the energy, and what is still near it."""
PASSING, PASSING_NEAR = 36.0, 5.0
"""The paper's share of tokens that pass, in per cent, and what is still near it."""


def gated(evidence: Evidence, norm: str) -> list[Run]:
    """Runs of EGA under this norm that can be read on the sample: with weights, whatever text and positions."""
    wanted = {
        "name": "ega",
        "gate_norm": norm,
        "signal": "linear",
        "apply": "renormalised",
        "freeze": "nothing",
    }
    found = [run for run in evidence.finished if has(run.config.model.attention, **wanted) and readable(run)]
    return sorted(found, key=lambda run: run.document["corpus"]["name"] != PAPERS_TEXT)


def judge_dense(evidence: Evidence) -> Outcome:
    """Do the rarer half of the characters gain attention by gating, and so the commoner half lose it?

    Gating keeps the sum of a query's attention, so one half gains what the other loses.
    """
    runs = gated(evidence, "causal")
    rare = dense(sample())
    values = [read(run).change(rare) for run in runs]
    background = [read(run).change(~rare) for run in runs]
    future = [read(run).change(rare) for run in gated(evidence, "sequence")]
    interval, n = t_interval(values), len(runs)
    verdict = above(interval, n, 1.0)
    parts = []
    if n:
        spaces = [read(run).change(np.array([c.isspace() for c in sample()])) for run in runs]
        parts.append(Part("background characters", _mean(background), "×", t_interval(background), n))
        parts.append(Part("of these, spaces and line breaks", _mean(spaces), "×", t_interval(spaces), n))
    if future:
        parts.append(
            Part(
                "dense ones under the paper's gate, which sees the future",
                _mean(future),
                "×",
                None,
                len(future),
            )
        )
    return Outcome(
        verdict=verdict,
        unit="×",
        estimate=_mean(values),
        interval=interval,
        n=n,
        n_of="runs",
        reason=_text_reason(n),
        parts=tuple(parts),
        runs=tuple(runs),
        commands=_more_weights(runs, "causal"),
    )


def _text_reason(n: int) -> str:
    few = too_few(n, "runs")
    ending = f"on the lab's own {len(sample()):,} characters; runs differ in positions, text or seed"
    return f"{few} with weights and such gates" if few else ending


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _more_weights(runs: list[Run], norm: str) -> tuple[str, ...]:
    """More seeds with weights of the first such run's settings."""
    if not runs:
        return commands(None, {"EGA": model(ega(norm))}, {})
    alike = {config_of(run).seed for run in runs if run.settings() == runs[0].settings()}
    return (
        train_commands(
            runs[0], config_of(runs[0]), [seed for seed in range(SEEDS) if seed not in alike] or [SEEDS]
        ),
    )


def judge_threshold(norm: str) -> Callable[[Evidence], Outcome]:
    """Where the mean θ over layers and heads lies at each seed, in standard deviations of the energy."""

    def judge(evidence: Evidence) -> Outcome:
        cells = {"EGA": model(ega(norm))}
        found = comparisons(evidence, cells)
        if not found:
            return Outcome(
                verdict="undecided",
                unit="sd",
                reason=f"no run yet of {cells['EGA'].name}",
                commands=commands(None, cells, {}, "study"),
            )
        first = found[0]
        learned = [evidence.learned(run) for run in first.used]
        values = [float(np.mean(one.end["attention.threshold"])) for one in learned if one]
        heads = [np.ravel(one.end["attention.threshold"]) for one in learned if one]
        interval, n = t_interval(values), len(values)
        verdict = within(interval, n, THRESHOLD - THRESHOLD_NEAR, THRESHOLD + THRESHOLD_NEAR)
        lowest, highest = (float(edge(heads)) if heads else float("nan") for edge in (np.min, np.max))
        return Outcome(
            verdict=verdict,
            unit="sd",
            estimate=_mean(values),
            interval=interval,
            n=n,
            reason=f"{too_few(n) or 'mean over layers and heads'}; single heads from {lowest:+.2f} to {highest:+.2f}, "
            f"all started at 0 ({setup(first.example)})",
            runs=first.used,
            commands=commands(first.example, cells, first.runs, "study"),
        )

    return judge


def judge_passing(norm: str) -> Callable[[Evidence], Outcome]:
    """Which share of tokens has a gate above one half, in each run that can be read on the sample."""

    def judge(evidence: Evidence) -> Outcome:
        runs = gated(evidence, norm)
        values = [100 * read(run).passing for run in runs]
        interval, n = t_interval(values, least=0.0, most=100.0), len(runs)
        verdict = within(interval, n, PASSING - PASSING_NEAR, PASSING + PASSING_NEAR)
        return Outcome(
            verdict=verdict,
            unit="%",
            estimate=_mean(values),
            interval=interval,
            n=n,
            n_of="runs",
            reason=_text_reason(n),
            runs=tuple(runs),
            commands=_more_weights(runs, norm),
        )

    return judge


def _claims_under(norm: str) -> list[Claim]:
    gate = NORMS[norm]
    return [
        Claim(
            id=f"threshold-{norm}",
            group=GROUP,
            sentence=f"The threshold θ settles near {THRESHOLD} ({gate})",
            test=f"Mean θ over layers and heads lies within {THRESHOLD_NEAR} of {THRESHOLD}: the interval over seeds wholly "
            "inside; it fails where it is wholly outside.",
            paper=Paper(THRESHOLD, "one seed, a gate that sees the future"),
            judge=judge_threshold(norm),
        ),
        Claim(
            id=f"passing-{norm}",
            group=GROUP,
            sentence=f"About {PASSING:g} % of tokens pass ({gate})",
            test=f"The share of tokens whose gate is above one half lies within {PASSING_NEAR:g} points of {PASSING:g} %: "
            "the interval over runs wholly inside; it fails where it is wholly outside.",
            paper=Paper(PASSING, "one seed, a gate that sees the future"),
            judge=judge_passing(norm),
        ),
    ]


CLAIMS = [
    Claim(
        id="dense-gain",
        group=GROUP,
        sentence="Background characters lose weight and dense ones gain it",
        test="The rarer half of a text's characters (by their count in it) gets more attention after gating than before: "
        "the multiple is wholly above 1 over runs with a causal gate. What one half gains the other loses.",
        paper=Paper(None, "shown on one sentence, without a number"),
        judge=judge_dense,
    ),
    *(claim for norm in NORMS for claim in _claims_under(norm)),
]
