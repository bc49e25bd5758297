"""Claims about EGA, MoPE and both together, and about what a gate that sees the future gains by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ega_mope.analysis.claims.evidence import Evidence, setup
from ega_mope.analysis.claims.outcome import (
    MARGIN_NATS,
    Claim,
    Outcome,
    Paper,
    Part,
    Verdict,
    none_gains,
    told,
    too_few,
)
from ega_mope.analysis.claims.paired import (
    Cells,
    Comparison,
    commands,
    comparisons,
    contrast,
    judge_gains,
    model,
)
from ega_mope.analysis.factorial import CELLS
from ega_mope.analysis.intervals import t_interval
from ega_mope.analysis.superadditivity import CONTRASTS
from ega_mope.analysis.superadditivity_report import PAPER_LOSSES_NATS, paper_interaction
from ega_mope.config import Plain

TOGETHER, FUTURE = "EGA and MoPE", "A look at the future"

NORMS = {
    "causal": "causal gate",
    "visible": "visible gate",
    "sequence": "paper's gate, which sees the future",
}
"""The gate norms under which the claims about EGA are judged; only the last is the paper's."""

THEIRS = "one seed, 4.8 M parameters, 5,001 steps, a gate that sees the future"


def ega(norm: str, **settings: object) -> Plain:
    """Energy-gated attention under this gate norm, else at its defaults."""
    return {"name": "ega", "gate_norm": norm, **settings}


def cells(norm: str) -> Cells:
    """The 2×2 under a gate norm: baseline, EGA, MoPE, both."""
    gated = ega(norm)
    return {
        "00": model(),
        "10": model(gated),
        "01": model(position="mope"),
        "11": model(gated, "mope"),
    }


def _paper(value: float) -> Paper:
    return Paper(round(value, 4), THEIRS)


def _theirs(*names: str) -> float:
    """What both together gain in the paper over the best of these cells, nats."""
    return min(PAPER_LOSSES_NATS[name] for name in names) - PAPER_LOSSES_NATS["11"]


def _claims_under(norm: str) -> list[Claim]:
    gate, four = NORMS[norm], cells(norm)
    two = {name: four[name] for name in ("00", "10")}
    over_baseline, over_ega, over_mope = (
        {f"over {CELLS[name]}{'' if name == '00' else ' alone'}": {name: 1, "11": -1}}
        for name in ("00", "10", "01")
    )
    return [
        Claim(
            id=f"ega-improves-{norm}",
            group=TOGETHER,
            sentence=f"EGA improves on the baseline ({gate})",
            test="The loss of EGA is lower than the baseline's: gain wholly above 0.",
            paper=_paper(PAPER_LOSSES_NATS["00"] - PAPER_LOSSES_NATS["10"]),
            judge=judge_gains(two, contrasts={"EGA": CONTRASTS["ega"]}, grid="study"),
        ),
        Claim(
            id=f"neither-suffices-{norm}",
            group=TOGETHER,
            sentence=f"Neither alone suffices ({gate})",
            test="Leaving out either costs: both together gain over EGA alone and over MoPE alone. "
            "The smaller gain is shown.",
            paper=_paper(_theirs("10", "01")),
            judge=judge_gains(four, contrasts={**over_ega, **over_mope}, grid="study"),
        ),
        Claim(
            id=f"both-best-{norm}",
            group=TOGETHER,
            sentence=f"Both together are best ({gate})",
            test="Both together have the lowest loss of the four: they gain over the baseline, over EGA and over "
            "MoPE. The smallest gain is shown.",
            paper=_paper(_theirs("00", "10", "01")),
            judge=judge_gains(four, contrasts={**over_baseline, **over_ega, **over_mope}, grid="study"),
        ),
        Claim(
            id=f"interaction-{norm}",
            group=TOGETHER,
            sentence=f"Together they exceed the sum of the parts ({gate})",
            test="The interaction L10 + L01 − L00 − L11 is above 0. It can be while both together do not beat the "
            "baseline: that is the claim before this one.",
            paper=_paper(paper_interaction()),
            judge=judge_gains(four, contrasts={"interaction": CONTRASTS["interaction"]}, grid="study"),
        ),
    ]


def _mope_alone() -> Claim:
    four = cells("causal")
    return Claim(
        id="mope-alone-does-not",
        group=TOGETHER,
        sentence="MoPE alone does not improve on the baseline",
        test=f"Its gain over learned positions surely is below {MARGIN_NATS} nats, or negative.",
        paper=_paper(PAPER_LOSSES_NATS["00"] - PAPER_LOSSES_NATS["01"]),
        judge=judge_gains(
            {name: four[name] for name in ("00", "01")},
            contrasts={"MoPE": CONTRASTS["mope"]},
            rule=none_gains,
            grid="study",
        ),
    )


TWINS: Cells = {"causal": model(ega("causal")), "sequence": model(ega("sequence"))}
"""EGA under the gate norm that is causal, and under the paper's."""


def judge_future(evidence: Evidence) -> Outcome:
    """Is the gain of `sequence` over its causal twin gone once the future is exchanged for another text's?

    The gain is over the whole validation split; what is left of it is measured at the audit's predictions,
    the same for both: the causal twin's loss there minus that of `sequence` shown another text's future.
    """
    found = comparisons(evidence, TWINS)
    if not found:
        return Outcome(
            verdict="undecided",
            unit="nats",
            reason="no run yet of EGA causal or EGA sequence with learned positions",
            commands=commands(None, TWINS, {}, "study"),
        )
    first = found[0]
    gain = contrast(evidence, first, {"causal": 1, "sequence": -1}, "gain over its causal twin")
    left = _part("left of it with another text's future", _left(first))
    lean = _part("what exchanging the future costs it", _lean(first))
    says, rest = told(gain.interval, gain.n or 0), told(left.interval, left.n or 0)
    verdict: Verdict = "holds" if (says, rest) == ("gain", "no gain") else "undecided"
    verdict = "fails" if (says, rest) == ("gain", "gain") else verdict
    return Outcome(
        verdict=verdict,
        unit="nats",
        estimate=gain.estimate,
        interval=gain.interval,
        n=gain.n,
        reason=f"{too_few(len(first.seeds)) or _future_reason(says, rest, gain, left)} ({setup(first.example)})",
        parts=(left, lean, *_visible_twin(evidence)),
        runs=first.used,
        commands=commands(first.example, TWINS, first.runs, "study"),
    )


def _future_reason(says: str | None, rest: str | None, gain: Part, left: Part) -> str:
    if says != "gain":
        return "there is no sure gain over the causal twin to explain"
    if left.n != gain.n and rest is None:
        return f"only {left.n} of {gain.n} pairs of twins were audited at the same predictions"
    if rest is None:
        return "the interval of what is left of the gain without its own future leaves it open"
    word = "nothing is left of the gain" if rest == "no gain" else "some of the gain stays"
    return f"once the future is another text's, {word} ({left.estimate:+.3f} nats)"


def _part(name: str, values: Sequence[float]) -> Part:
    return Part(name, float(np.mean(values)) if values else None, "nats", t_interval(values), len(values))


def _left(one: Comparison) -> list[float]:
    """The causal twin's loss minus that of `sequence` with an exchanged future, at the same predictions."""
    pairs = [(one.runs["causal"][seed].audit, one.runs["sequence"][seed].audit) for seed in one.seeds]
    return [
        causal["teacher_forced_nats"] - sequence["exchanged_future_nats"]
        for causal, sequence in pairs
        if causal and sequence and _same_predictions(causal, sequence)
    ]


def _same_predictions(one: Plain, other: Plain) -> bool:
    """Whether two audits asked for the same predictions and measured both losses."""
    ids = one.get("sample", {}).get("id"), other.get("sample", {}).get("id")
    measured = one.get("teacher_forced_nats"), other.get("exchanged_future_nats")
    return ids[0] is not None and ids[0] == ids[1] and None not in measured


def _lean(one: Comparison) -> list[float]:
    """What exchanging the future costs each run that sees it, nats per token at the audit's predictions."""
    audits = (one.runs["sequence"][seed].audit for seed in one.seeds)
    return [
        audit["exchanged_future_nats"] - audit["teacher_forced_nats"]
        for audit in audits
        if audit and audit.get("exchanged_future_nats") is not None
    ]


def _visible_twin(evidence: Evidence) -> list[Part]:
    """The same gain over the twin whose statistics are those of the visible keys."""
    found = comparisons(evidence, {"visible": model(ega("visible")), "sequence": TWINS["sequence"]})
    weights = {"visible": 1, "sequence": -1}
    return [contrast(evidence, one, weights, "gain over its visible twin") for one in found[:1] if one.seeds]


MOSTLY: Cells = {"baseline": model(), **TWINS}


def _share(evidence: Evidence, one: Comparison) -> list[Part]:
    """How much of the gain of `sequence` over the baseline is over its causal twin, in the means."""

    def mean(cell: str) -> float:
        return float(np.mean([evidence.loss(one.runs[cell][seed]) for seed in one.seeds]))

    whole = mean("baseline") - mean("sequence") if one.seeds else 0.0
    if whole <= 0:
        return []
    share = 100 * (mean("causal") - mean("sequence")) / whole
    return [Part("share of its gain that the causal twin lacks", share, "%", None, len(one.seeds))]


FUTURE_CLAIMS = [
    Claim(
        id="sequence-gain-is-future",
        group=FUTURE,
        sentence="What the paper's gate gains over its causal twin is a look at the future",
        test="`sequence` gains over the same model trained with a causal gate, and the gain is gone where the text "
        "that follows is exchanged for another one (the audit's predictions, the same for both).",
        paper=Paper(None, "the paper does not test it"),
        judge=judge_future,
    ),
    Claim(
        id="gain-mostly-future",
        group=FUTURE,
        sentence="Most of what the paper's gate gains over the baseline is that look",
        test="`sequence` gains more over its causal twin than the twin gains over the baseline: "
        "2·L(causal) − L(sequence) − L(baseline) is above 0.",
        paper=Paper(None, "the paper does not test it"),
        judge=judge_gains(
            MOSTLY,
            contrasts={"difference": {"causal": 2, "sequence": -1, "baseline": -1}},
            grid="study",
            beside=_share,
        ),
    ),
]

CLAIMS = [_mope_alone(), *(claim for norm in NORMS for claim in _claims_under(norm)), *FUTURE_CLAIMS]
