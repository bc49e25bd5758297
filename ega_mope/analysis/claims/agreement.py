"""Claims about who decides what: do EGA's gates and MoPE's scales stay the same in the model that has both, and
on another text?"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from ega_mope.analysis.claims.evidence import Evidence, Learned, config_of, setup, with_weights
from ega_mope.analysis.claims.losses import cells as cells_under
from ega_mope.analysis.claims.outcome import Claim, Outcome, Paper, Part, Verdict, above, too_few
from ega_mope.analysis.claims.paired import Comparison, commands, comparisons
from ega_mope.analysis.claims.scales import learning
from ega_mope.analysis.claims.text import agreement
from ega_mope.analysis.intervals import t_interval
from ega_mope.analysis.naming import attention_name, digest, position_name
from ega_mope.analysis.train_command import train_commands
from ega_mope.runs import Run

GROUP = "Who decides what"
AGREE = 0.5
"""The correlation above which two models are said to agree: a quarter of the variance is shared."""
CHANCE = 0.05
LEAST_PER_TEXT = 4
"""Seeds a text: three and three allow no permutation p below 0.05, four and four 1/70."""
MOST_PER_TEXT = 8
"""Runs of a text that are regrouped: eight and eight have 12,870 regroupings."""
SAID = Paper(None, "said in words, without a number")


def judge_which(evidence: Evidence) -> Outcome:
    """Are the gates of EGA alone those of EGA + MoPE, character by character, beyond what they share untrained?"""
    four = cells_under("causal")
    found = comparisons(evidence, {name: four[name] for name in ("10", "11")})
    if not found:
        return _nothing("r")
    first = found[0]
    pairs = {seed: (first.runs["10"][seed], first.runs["11"][seed]) for seed in first.seeds}
    read = {seed: pair for seed, pair in pairs.items() if all(map(with_weights, pair))}
    trained = [agreement(*pair) for pair in read.values()]
    untrained = [agreement(*pair, trained=False) for pair in read.values()]
    interval, n = t_interval(trained, least=-1.0, most=1.0), len(trained)
    few, verdict = too_few(n), above(interval, n, AGREE)
    inherited = bool(n) and float(np.mean(untrained)) >= float(np.mean(trained))
    if verdict == "holds" and inherited:
        verdict = "undecided"
    return Outcome(
        verdict=verdict,
        unit="r",
        estimate=float(np.mean(trained)) if n else None,
        interval=interval,
        n=n,
        reason=_which_reason(few, inherited, setup(first.example)),
        parts=(Part("the same before any training", float(np.mean(untrained)), "r", None, n),) if n else (),
        runs=tuple(run for pair in read.values() for run in pair),
        commands=_train(first),
    )


def _which_reason(few: str | None, inherited: bool, where: str) -> str:
    words = [f"{few} with weights of both"] if few else []
    if inherited:
        words.append(
            "at one seed both start with the same projection, and training makes their gates no more alike"
        )
    return f"{'; '.join(words) or 'gates agree as the interval says'} ({where})"


def judge_where(evidence: Evidence) -> Outcome:
    """Does σ of each pair move alike in MoPE alone and in EGA + MoPE, at the same seed?"""
    four = cells_under("causal")
    found = comparisons(evidence, {name: four[name] for name in ("01", "11")})
    if not found:
        return _nothing("r")
    first = found[0]
    both = {seed: [evidence.learned(first.runs[cell][seed]) for cell in ("01", "11")] for seed in first.seeds}
    values = [r for pair in both.values() if (r := _moves_agree(*pair)) is not None]
    interval, n = t_interval(values, least=-1.0, most=1.0), len(values)
    verdict, few = above(interval, n, AGREE), too_few(n)
    sizes = [np.abs(one.moved("position.sigma")).mean() for pair in both.values() for one in pair if one]
    return Outcome(
        verdict=verdict,
        unit="r",
        estimate=float(np.mean(values)) if n else None,
        interval=interval,
        n=n,
        reason=f"{few or 'moves of log σ, pair by pair'} ({setup(first.example)})",
        parts=(Part("mean |move| of log σ", float(np.mean(sizes)), "log units", None, len(sizes)),)
        if sizes
        else (),
        runs=first.used,
        commands=_train(first),
    )


def _moves_agree(one: Learned | None, other: Learned | None) -> float | None:
    """Correlation over pairs of the moves of log σ; None where one is not recorded or nothing moved."""
    if one is None or other is None:
        return None
    moves = one.moved("position.sigma"), other.moved("position.sigma")
    return None if min(np.ptp(move) for move in moves) == 0 else float(np.corrcoef(*moves)[0, 1])


def _nothing(unit: str) -> Outcome:
    return Outcome(
        verdict="undecided",
        unit=unit,
        reason="no run yet of EGA causal, MoPE or both",
        commands=commands(None, cells_under("causal"), {}, "study"),
    )


def _train(first: Comparison) -> tuple[str, ...]:
    return commands(first.example, first.cells, first.runs)


def judge_corpus(evidence: Evidence) -> Outcome:
    """Do scales differ more between two texts than between two seeds of one text?

    Runs that share every setting but the text (and the vocabulary that follows from it). The distance of two
    runs is the root mean square difference of their moves of log ω and log σ; between texts minus within them,
    tested by all regroupings of the runs.
    """
    groups = [group for group in _by_text(evidence) if len(group) > 1]
    if not groups:
        return _one_text(evidence)
    best = max(groups, key=lambda group: (min(map(len, group.values())), sum(map(len, group.values()))))
    ones, others = (
        sorted(group, key=lambda found: config_of(found[0]).seed)[:MOST_PER_TEXT]
        for group in sorted(best.values(), key=len, reverse=True)[:2]
    )
    vectors = np.array([_moves(learned) for _, learned in (*ones, *others)])
    n = min(len(ones), len(others))
    excess, p = text_excess(vectors, len(ones))
    enough = n >= LEAST_PER_TEXT
    verdict: Verdict = "undecided"
    if enough and excess is not None:
        verdict = "holds" if p < CHANCE else "fails" if excess <= 0 else "undecided"
    names = [run.document["corpus"]["name"] for run in (ones[0][0], others[0][0])]
    model = ones[0][0].config.model
    where = (
        f"{attention_name(model.attention)} + {position_name(model.position)} on {names[0]} and {names[1]}"
    )
    few = f"{LEAST_PER_TEXT} runs a text are needed for p < {CHANCE}, the text with fewer has {n}: {where}"
    return Outcome(
        verdict=verdict,
        unit="log units",
        estimate=excess,
        n=n,
        n_of="runs",
        reason=f"permutation p = {p:.3g}: {where}" if enough else few,
        runs=tuple(run for run, _ in (*ones, *others)),
        commands=tuple(_more_seeds(group) for group in (ones, others) if len(group) < LEAST_PER_TEXT + 2),
    )


Group = list[tuple[Run, Learned]]


def _by_text(evidence: Evidence) -> list[dict[str, Group]]:
    """Runs with learned scales that share every setting but the text, by the text's hash."""
    groups: dict[str, dict[str, Group]] = {}
    for run, learned in learning(evidence):
        rest = {
            key: value
            for key, value in run.settings().items()
            if not key.startswith("corpus.") and key != "model.vocabulary_size"
        }
        key = digest([rest, run.document["device"]["type"]])
        groups.setdefault(key, {}).setdefault(run.document["corpus"]["sha256"], []).append((run, learned))
    return list(groups.values())


def _one_text(evidence: Evidence) -> Outcome:
    found = learning(evidence)
    other = [
        train_commands(
            run, replace(config_of(run), corpus="python-docs", tokenizer="bytes"), range(LEAST_PER_TEXT)
        )
        for run, _ in found[:1]
    ]
    return Outcome(
        verdict="undecided",
        unit="log units",
        n_of="runs",
        reason="no two texts yet on which the same MoPE was trained alike",
        commands=tuple(other) or commands(None, cells_under("causal"), {}, "study"),
    )


def _moves(learned: Learned) -> Float[np.ndarray, " n"]:
    return np.concatenate([learned.moved("position.omega"), learned.moved("position.sigma")])


def text_excess(vectors: Float[np.ndarray, "run n"], first: int) -> tuple[float | None, float]:
    """Mean distance between the first runs and the rest, minus the mean within both, and its exact p.

    p is the share of all regroupings of the runs into groups of these sizes with at least this excess. None
    and 1 where no two runs share a text.
    """
    apart = np.sqrt(np.square(vectors[:, None] - vectors).mean(axis=-1))
    count = len(vectors)

    def excess(chosen: tuple[int, ...]) -> float:
        mask = np.isin(np.arange(count), chosen)
        upper = np.triu(np.ones((count, count), dtype=bool), 1)
        same = (mask[:, None] == mask) & upper
        return float(apart[~same & upper].mean() - apart[same].mean())

    if count < 3:
        return None, 1.0
    observed = excess(tuple(range(first)))
    every = [excess(chosen) for chosen in itertools.combinations(range(count), first)]
    return observed, float(np.mean(np.array(every) >= observed - 1e-12))


def _more_seeds(group: Group) -> str:
    run = group[0][0]
    there = {config_of(one).seed for one, _ in group}
    return train_commands(
        run, config_of(run), [seed for seed in range(LEAST_PER_TEXT + 2) if seed not in there]
    )


CLAIMS = [
    Claim(
        id="ega-decides-which",
        group=GROUP,
        sentence="EGA decides which tokens, with MoPE or without",
        test="The gates of EGA alone and of EGA + MoPE agree on a text, character by character (mean over heads): r at "
        f"the same seed wholly above {AGREE}, and higher than before any training, when both share their projection.",
        paper=SAID,
        judge=judge_which,
    ),
    Claim(
        id="mope-decides-where",
        group=GROUP,
        sentence="MoPE decides where, with EGA or without",
        test="log σ of each pair moves alike in MoPE alone and in EGA + MoPE: r over pairs, at the same seed, wholly "
        f"above {AGREE}. Where they end says nothing: they start at the same place.",
        paper=SAID,
        judge=judge_where,
    ),
    Claim(
        id="corpus-specific",
        group=GROUP,
        sentence="Learned bases are specific to the text",
        test="The moves of (log ω, log σ) differ more between two texts than between two seeds of one text: exact "
        f"permutation test over runs, p < {CHANCE}. Projections of two trainings share no coordinates: they are not "
        "compared.",
        paper=SAID,
        judge=judge_corpus,
    ),
]
