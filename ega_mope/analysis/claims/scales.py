"""Claims about where MoPE's scales end, judged on the recorded ω and σ: no weights are needed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy import stats

from ega_mope.analysis.claims.evidence import PAPERS_TEXT, Evidence, Learned, config_of, has, setup
from ega_mope.analysis.claims.outcome import (
    LEAST,
    Claim,
    Outcome,
    Paper,
    Part,
    Verdict,
    above,
    too_few,
    weakest,
)
from ega_mope.analysis.clusters import Clusters, clusters
from ega_mope.analysis.factorial import stratum
from ega_mope.analysis.intervals import LEVEL, Interval, t_interval
from ega_mope.analysis.naming import attention_name, digest
from ega_mope.analysis.permutation import energy_distance, permutation_p
from ega_mope.analysis.train_command import sweep_command, train_commands
from ega_mope.positions.mope import ADMISSIBLE
from ega_mope.runs import Run

GROUP = "Learned scales"
STARTS = ("paper", "multiscale", "random")
ON_THE_LINE = 0.05
"""A pair whose |log(ω·σ/5)| is below this, 5 %, is on the line ω·σ = 5."""
SIDES = {"above": 1, "below": -1}
"""Of the line, with the sign of log(ω·σ/5) there."""
GROUPS = 4
CHANCE = 0.05
SEEDS = range(6)
"""Seeds that the commands which are offered train."""

Found = Sequence[tuple[Run, Learned]]
ByStart = dict[str, dict[int, tuple[Run, Learned]]]


def learning(evidence: Evidence) -> Found:
    """Runs whose wavelets learn ω and σ, with what they learned, those on the paper's text first.

    Not on the planted text, which has claims of its own.
    """
    found = []
    for run in evidence.finished:
        position = run.config.model.position
        if has(position, name="mope", freeze="nothing") and run.document["corpus"]["name"] != "planted":
            learned = evidence.learned(run)
            if learned:
                found.append((run, learned))
    return sorted(found, key=lambda one: one[0].document["corpus"]["name"] != PAPERS_TEXT)


def judge_any_start(evidence: Evidence) -> Outcome:
    """Do runs that differ in their start alone end at the same scales?

    At each seed the energy distance between the clouds (log ω, log σ) of every two starts, in the end minus at
    the start; and whether a permutation test tells any two clouds apart in the end (Bonferroni over the pairs).
    """
    groups = _by_start(evidence)
    if not groups:
        return _nothing("log units")
    best = max(groups, key=_supply)
    example = next(iter(next(iter(best.values())).values()))[0]
    where = f"{attention_name(example.config.model.attention)}, {setup(example)}"
    seeds, lacking = _shared(best), [start for start in STARTS if start not in best]
    if lacking or len(seeds) < LEAST:
        few = f"{too_few(len(seeds))} that all three starts share"
        missing = f"no run yet that starts at {' or '.join(lacking)}, all else equal"
        return Outcome(
            verdict="undecided",
            unit="log units",
            n=len(seeds),
            reason=f"{missing if lacking else few} ({where})",
            commands=_start_commands(example, best),
        )
    started, ended, apart = map(np.array, zip(*(_distances(best, seed) for seed in seeds), strict=True))
    interval, still = t_interval(ended - started), int(apart.sum())
    agree = interval is not None and interval.high < 0
    verdict: Verdict = "holds" if agree and not still else "fails" if still == len(seeds) else "undecided"
    return Outcome(
        verdict=verdict,
        unit="log units",
        estimate=float(np.mean(ended - started)),
        interval=interval,
        n=len(seeds),
        reason=f"final scales agree {'more than the starts did' if agree else 'no more surely than the starts did'}; at "
        f"{still} of {len(seeds)} seeds two starts are told apart by where they end ({where})",
        parts=tuple(
            Part(
                f"energy distance between two starts {when}",
                float(np.mean(lie)),
                "log units",
                None,
                len(seeds),
            )
            for when, lie in (("before training", started), ("after it", ended))
        ),
        runs=tuple(best[start][seed][0] for start in STARTS for seed in seeds),
        commands=_start_commands(example, best),
    )


def _by_start(evidence: Evidence) -> list[ByStart]:
    """Runs that share everything but where ω and σ start, by start and seed."""
    groups: dict[str, ByStart] = {}
    for run, learned in learning(evidence):
        model = run.config.model
        rest = {key: value for key, value in model.position.items() if key != "init"}
        group = groups.setdefault(digest([stratum(run), model.attention, rest]), {})
        group.setdefault(model.position["init"], {}).setdefault(config_of(run).seed, (run, learned))
    return list(groups.values())


def _supply(group: ByStart) -> tuple[object, ...]:
    """How well supplied a group is: seeds with every start, starts, the paper's text, runs."""
    example = next(iter(next(iter(group.values())).values()))[0]
    runs, home = sum(map(len, group.values())), example.document["corpus"]["name"] == PAPERS_TEXT
    return len(_shared(group)), len(group), home, runs


def _shared(group: ByStart) -> list[int]:
    return sorted(set.intersection(*(set(group.get(start, {})) for start in STARTS)))


def _distances(group: ByStart, seed: int) -> tuple[float, float, bool]:
    """Mean energy distance between two starts before training and after it, and whether any two are told apart
    then."""
    pairs = list(itertools.combinations([group[start][seed][1] for start in STARTS], 2))
    starts = [(one.points(one.start), other.points(other.start)) for one, other in pairs]
    ends = [(one.points(one.end), other.points(other.end)) for one, other in pairs]
    started, ended = (float(np.mean([energy_distance(*pair) for pair in when])) for when in (starts, ends))
    return started, ended, min(permutation_p(*pair) for pair in ends) < CHANCE / len(pairs)


def _start_commands(example: Run, group: ByStart) -> tuple[str, ...]:
    wanted = {start: [seed for seed in SEEDS if seed not in group.get(start, {})] for start in STARTS}
    return tuple(_retrain(example, seeds, init=start) for start, seeds in wanted.items() if seeds)


def _retrain(example: Run, seeds: Sequence[int], **changes: object) -> str:
    """The command that trains the same with other settings of its position."""
    config = config_of(example)
    position = {**config.model.position, **changes}
    return train_commands(example, replace(config, model=replace(config.model, position=position)), seeds)


def _nothing(unit: str, n_of: str = "seeds") -> Outcome:
    return Outcome(
        verdict="undecided",
        unit=unit,
        n_of=n_of,
        reason="no run yet with learned scales",
        commands=(sweep_command(None, "study", SEEDS),),
    )


def judge_line(evidence: Evidence) -> Outcome:
    """Do pairs that start off the line ω·σ = 5 move towards it, from above and from below?

    A pair that starts on it cannot gather there, and a pair that the projection holds was put there. So only
    pairs count whose start, as used, is off the line, and the two sides count apart: where every σ shrinks, pairs
    above the line come nearer to it as well, but only a line that draws them raises those below.
    """
    found = learning(evidence)
    if not found:
        return _nothing("log units", "runs")
    sides = {
        side: [(run, moves) for run, learned in found if len(moves := line_moves(learned, side))]
        for side in SIDES
    }
    parts = [_side_part(side, members) for side, members in sides.items()]
    verdicts = [above(part.interval, part.n or 0, 0.0) for part in parts]
    verdict = next(one for one in ("fails", "undecided", "holds") if one in verdicts)
    shown = weakest(parts)
    used = {run.path for members in sides.values() for run, _ in members}
    return Outcome(
        verdict=verdict,
        unit="log units",
        estimate=shown.estimate,
        interval=shown.interval,
        n=shown.n,
        n_of="runs",
        reason="; ".join(map(_side_reason, parts, verdicts))
        + ("" if used else " (the paper's start puts every pair on it)"),
        parts=(
            *parts,
            _on_line("at the start", [learned.points(learned.start) for _, learned in found]),
            _on_line("in the end", [learned.points(learned.end) for _, learned in found]),
            *_free_on_line(found),
        ),
        runs=tuple(run for run, _ in found if run.path in used),
        commands=(_retrain(found[0][0], SEEDS, init="random", admissibility="free"),),
    )


def line_moves(learned: Learned, side: str) -> Float[np.ndarray, " pair"]:
    """How much nearer to the line each pair came that started on that side of it, in log units; below 0 it went
    away."""
    start, end = _off_line(learned.points(learned.start)), _off_line(learned.points(learned.end))
    return (np.abs(start) - np.abs(end))[SIDES[side] * start > ON_THE_LINE]


def _side_part(side: str, members: Sequence[tuple[Run, np.ndarray]]) -> Part:
    per_run = [float(moves.mean()) for _, moves in members]
    mean = float(np.mean(per_run)) if per_run else None
    return Part(f"pairs that start {side} it", mean, "log units", t_interval(per_run), len(per_run))


def _side_reason(part: Part, says: Verdict) -> str:
    if few := too_few(part.n or 0, "runs"):
        return f"{few} with {part.name}"
    words = {"holds": "come nearer to it", "fails": "move away from it", "undecided": "do neither for sure"}
    return f"{part.name} {words[says]}"


def _off_line(points: Float[np.ndarray, "pair 2"]) -> Float[np.ndarray, " pair"]:
    """log(ω·σ/5) of each pair: how far above the line it lies."""
    return points.sum(axis=1) - np.log(ADMISSIBLE)


def _on_line(when: str, clouds: Sequence[Float[np.ndarray, "pair 2"]]) -> Part:
    share = float(np.mean([np.mean(np.abs(_off_line(points)) < ON_THE_LINE) for points in clouds]))
    return Part(f"pairs on the line {when}", 100 * share, "%", None, len(clouds))


def _free_on_line(found: Found) -> list[Part]:
    """The same of the runs without the projection, whose pairs are free to leave."""
    free = [
        learned.points(learned.end)
        for run, learned in found
        if has(run.config.model.position, admissibility="free")
    ]
    return [_on_line("in the end, without the projection", free)] if free else []


@lru_cache(maxsize=512)
def _clusters(data: bytes) -> Clusters:
    """The groups of points given as bytes: most runs share their start, which is fitted once."""
    return clusters(np.frombuffer(data, dtype=float).reshape(-1, 2))


def _groups(points: Float[np.ndarray, "pair 2"]) -> Clusters:
    return _clusters(np.ascontiguousarray(points).tobytes())


def in_four_groups(learned: Learned) -> bool:
    """Whether BIC chooses four groups with clear gaps for the end, and not for the start."""
    end, start = _groups(learned.points(learned.end)), _groups(learned.points(learned.start))
    return end.chosen == GROUPS and not end.touch and start.chosen != GROUPS


def judge_four(evidence: Evidence) -> Outcome:
    """In what share of the runs the scales form four groups with clear gaps that the start did not have."""
    found = learning(evidence)
    if not found:
        return _nothing("share of runs", "runs")
    n, four = len(found), sum(in_four_groups(learned) for _, learned in found)
    exact = stats.binomtest(four, n).proportion_ci(LEVEL, method="exact")
    interval = Interval(float(exact.low), float(exact.high))
    verdict = above(interval, n, 0.5)
    chosen = [_groups(learned.points(learned.end)).chosen for _, learned in found]
    counts = ", ".join(f"{k} in {chosen.count(k)}" for k in sorted(set(chosen)))
    return Outcome(
        verdict=verdict,
        unit="share of runs",
        estimate=four / n,
        interval=interval,
        n=n,
        n_of="runs",
        reason=f"number of groups that BIC chooses: {counts} of the runs; four with clear gaps, not there at the start, "
        f"in {four}",
        runs=tuple(run for run, _ in found),
        commands=(sweep_command(None, "study", SEEDS),),
    )


CLAIMS = [
    Claim(
        id="any-start",
        group=GROUP,
        sentence="Gradient descent finds the scales from any start",
        test="Runs that differ in their start alone (paper, multiscale, random) end at scales that agree more than the "
        "starts did (energy distance in log ω, log σ: the change is wholly below 0), and no permutation test tells two "
        "starts apart by where they end. It fails where two are told apart at every seed.",
        paper=Paper(None, "inferred from scale initialisation alone, which did not help"),
        judge=judge_any_start,
    ),
    Claim(
        id="gather-on-5",
        group=GROUP,
        sentence="Pairs gather on ω·σ = 5",
        test="Pairs that start above the line come nearer to it, and so do those that start below: the mean fall of "
        "|log(ω·σ/5)| is wholly above 0 over runs on each side. The smaller is shown. From above alone, σ that shrinks "
        "everywhere would look the same; the projection lets no pair start below. Pairs that start on the line, or that "
        "the projection holds there, show nothing.",
        paper=Paper(None, "all pairs on the line; its start puts all of them there"),
        judge=judge_line,
    ),
    Claim(
        id="four-groups",
        group=GROUP,
        sentence="Scales form four groups",
        test="In most runs (exact binomial interval wholly above one half) BIC chooses four groups of (log ω, log σ) with "
        "clear gaps between them, and not the same for the start.",
        paper=Paper(None, "four groups, by bands of σ that were chosen beforehand"),
        judge=judge_four,
    ),
]
