"""Claims about scales, gates and the planted text: on learned scalars and gates whose answers are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated_runs import write_run

from ega_mope.analysis.claims import CLAIMS, Outcome, text
from ega_mope.analysis.claims.agreement import text_excess
from ega_mope.analysis.claims.evidence import Evidence
from ega_mope.analysis.claims.text import TextReading, agreement, dense, read
from ega_mope.analysis.gates import gates
from ega_mope.analysis.intervals import Interval
from ega_mope.analysis.permutation import energy_distance, permutation_p
from ega_mope.analysis.planted import marker_auc, nearest_scale, out_of_reach, scale_fit
from ega_mope.config import Plain
from ega_mope.runs import Run, list_runs
from ega_mope.text.planted import planted

BY_ID = {claim.id: claim for claim in CLAIMS}
PAIRS = 24


def judged(runs: Iterable[Run], claim: str) -> Outcome:
    return BY_ID[claim].judge(Evidence(runs))


def values(sigma: np.ndarray, omega: np.ndarray | None = None, **more: Any) -> Plain:
    """A record of learned.jsonl; ω on the line ω·σ = 5 unless given."""
    omega = 5 / sigma if omega is None else omega
    pairs = {"position.sigma": sigma, "position.omega": omega, "position.omega_free": omega}
    return {name: array.tolist() for name, array in pairs.items()} | more


@pytest.fixture
def learnt(tmp_path: Path, small_text: Path) -> Callable[..., Run]:
    """`learnt(start, end, seed=…, position=…)` writes a finished run with these learned scalars."""

    def write(start: Plain, end: Plain, seed: int, corpus: Path = small_text, **more: Any) -> Run:
        name = f"run-{len(list(tmp_path.iterdir()))}"
        more = {"position": {"name": "mope"}} | more
        return write_run(tmp_path, name, corpus, seed=seed, learned={0: start, 6: end}, **more)

    return write


def spaced(low: float, high: float, n: int = PAIRS) -> np.ndarray:
    return np.exp(np.linspace(math.log(low), math.log(high), n))


def jittered(sigma: np.ndarray, seed: int, by: float = 0.05) -> np.ndarray:
    return sigma * np.exp(np.random.default_rng(seed).normal(0, by, len(sigma)))


# Two clouds


def test_energy_distance_of_two_points_is_twice_their_distance() -> None:
    first, second = np.zeros((3, 2)), np.full((2, 2), [3.0, 4.0])
    assert energy_distance(first, second) == pytest.approx(10.0)
    assert energy_distance(first, first) == 0.0


def test_permutation_p_tells_apart_what_differs_and_nothing_else() -> None:
    rng = np.random.default_rng(3)
    one, same = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    assert permutation_p(one, same) > 0.05
    assert permutation_p(one, same + 2) == pytest.approx(1 / 1000)


# Any start


STARTS = {"paper": spaced(1.6, 5), "multiscale": spaced(2, 30), "random": spaced(4, 60)}


def test_starts_that_meet_confirm_and_starts_that_stay_apart_refute(learnt) -> None:
    def trained(end: Callable[[str, int], np.ndarray]) -> list[Run]:
        return [
            learnt(values(start), values(end(init, seed)), seed, position={"name": "mope", "init": init})
            for init, start in STARTS.items()
            for seed in range(3)
        ]

    goal = spaced(3, 12)
    met = judged(trained(lambda init, seed: jittered(goal, seed + 7 * len(init))), "any-start")
    assert met.verdict == "holds" and met.n == 3
    assert met.estimate is not None and met.estimate < -0.3
    before, after = (part.estimate for part in met.parts)
    assert before is not None and after is not None and 0 < after < 0.1
    assert after - before == pytest.approx(met.estimate)
    stayed = judged(trained(lambda init, seed: jittered(STARTS[init], seed)), "any-start")
    assert stayed.verdict == "fails"


def test_a_missing_start_is_named_with_the_command_that_trains_it(learnt) -> None:
    runs = [learnt(values(STARTS["paper"]), values(STARTS["paper"]), seed) for seed in range(3)]
    outcome = judged(runs, "any-start")
    assert outcome.verdict == "undecided"
    assert "no run yet that starts at multiscale or random" in outcome.reason
    assert [("init=multiscale" in c, "init=random" in c) for c in outcome.commands[1:]] == [
        (True, False),
        (False, True),
    ]


# The line and the groups


SIGMA, OMEGA = spaced(4, 60), spaced(0.3, 3)
OFF = np.log(SIGMA * OMEGA / 5)
ABOVE, BELOW = OFF > 0.05, OFF < -0.05


@pytest.fixture
def moved(learnt) -> Callable[..., Outcome]:
    """`moved(sigma, omega)` judges three free runs whose pairs start on both sides of the line and end there."""

    def judge(sigma: np.ndarray, omega: np.ndarray | None = None, only: np.ndarray | None = None) -> Outcome:
        keep = np.ones(PAIRS, bool) if only is None else only
        omega = 5 / sigma if omega is None else omega
        start, end = values(SIGMA[keep], OMEGA[keep]), values(sigma[keep], omega[keep])
        position = {"name": "mope", "init": "random", "admissibility": "free"}
        return judged([learnt(start, end, seed, position=position) for seed in range(3)], "gather-on-5")

    return judge


def test_pairs_gather_on_the_line_when_they_come_nearer_from_both_sides(moved) -> None:
    gathered = moved(jittered(SIGMA, 1))
    sides = [np.abs(OFF[side]).mean() for side in (ABOVE, BELOW)]
    assert gathered.verdict == "holds"
    assert gathered.estimate == pytest.approx(min(sides))
    assert [part.estimate for part in gathered.parts[:2]] == pytest.approx(sides)

    left = moved(SIGMA, OMEGA * np.where(OFF > 0, 2, 0.5))
    assert (left.verdict, left.estimate) == ("fails", pytest.approx(-math.log(2)))


def test_sigma_that_shrinks_everywhere_is_no_gathering_on_the_line(moved) -> None:
    by = 0.02  # less than any pair above it lies off
    shrunk = SIGMA * math.exp(-by)
    both = moved(shrunk, OMEGA)
    assert (both.verdict, both.estimate) == ("fails", pytest.approx(-by))
    assert both.parts[0].estimate == pytest.approx(by)
    assert "start above it come nearer to it; pairs that start below it move away" in both.reason


def test_pairs_from_above_alone_do_not_decide(moved) -> None:
    alone = moved(jittered(SIGMA, 1), only=ABOVE)
    assert (alone.verdict, alone.n) == ("undecided", 3)
    assert "no runs yet, at least 3 are needed with pairs that start below it" in alone.reason
    assert "admissibility=free" in alone.commands[0]


def test_pairs_that_start_on_the_line_show_nothing(learnt) -> None:
    nothing = judged([learnt(values(SIGMA), values(SIGMA), seed) for seed in range(6)], "gather-on-5")
    assert nothing.verdict == "undecided" and nothing.n == 0
    assert "the paper's start puts every pair on it" in nothing.reason
    assert nothing.parts[3].estimate == 100.0


def test_four_clear_groups_that_the_start_did_not_have(learnt) -> None:
    start, four = spaced(2, 60), np.repeat([2.0, 6.0, 20.0, 60.0], PAIRS // 4)
    runs = [learnt(values(start), values(jittered(four, seed)), seed) for seed in range(6)]
    grouped = judged(runs, "four-groups")
    assert (grouped.verdict, grouped.estimate, grouped.n) == ("holds", 1.0, 6)
    assert grouped.interval is not None and grouped.interval.low == pytest.approx(1 - 0.459, abs=1e-3)
    even = judged([learnt(values(start), values(jittered(start, s)), s) for s in range(6)], "four-groups")
    assert (even.verdict, even.estimate) == ("fails", 0.0)
    already = [learnt(values(four), values(jittered(four, seed)), seed) for seed in range(6)]
    assert judged(already, "four-groups").verdict == "fails"


# Who decides what


@pytest.mark.parametrize(("sign", "verdict"), [(1, "holds"), (-1, "fails")])
def test_scales_of_both_follow_those_of_mope_alone_or_not(learnt, sign: int, verdict: str) -> None:
    start = spaced(2, 5)
    runs = []
    for seed in range(3):
        moves = np.random.default_rng(seed).normal(0, 0.1, PAIRS)
        noise = np.random.default_rng(seed + 9).normal(0, 0.01, PAIRS)
        runs.append(learnt(values(start), values(start * np.exp(moves)), seed))
        both = values(start * np.exp(sign * moves + noise))
        runs.append(learnt(values(start), both, seed, attention={"name": "ega", "gate_norm": "causal"}))
    outcome = judged(runs, "mope-decides-where")
    assert outcome.verdict == verdict
    assert outcome.estimate == pytest.approx(sign * 0.99, abs=0.02)


def test_texts_that_pull_scales_apart(
    learnt, small_text: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "other.txt"
    other.write_text(small_text.read_text()[::-1])
    start = spaced(2, 5)

    def runs(shift: float) -> list[Run]:
        return [
            learnt(values(start), values(jittered(start * math.exp(by), seed + n)), seed, corpus=text)
            for n, (text, by) in enumerate(((small_text, 0.0), (other, shift)))
            for seed in range(4)
        ]

    apart = judged(runs(0.5), "corpus-specific")
    assert apart.verdict == "holds"
    assert "permutation p = 0.0286" in apart.reason
    few = judged(runs(0.5)[:5], "corpus-specific")
    assert few.verdict == "undecided" and "the text with fewer has 1" in few.reason


def test_text_excess_is_the_distance_between_minus_within() -> None:
    vectors = np.array([[0.0], [1.0], [10.0], [11.0]])
    excess, p = text_excess(vectors, 2)
    assert excess == pytest.approx(10 - 1)
    assert p == pytest.approx(2 / 6)
    assert text_excess(vectors[:2], 1) == (None, 1.0)


# Gates


@pytest.mark.parametrize(("theta", "verdict"), [(0.35, "holds"), (0.05, "fails"), (0.45, "undecided")])
def test_where_the_threshold_settles(learnt, theta: float, verdict: str) -> None:
    ends = [[[theta - 0.2 + 0.01 * seed, theta + 0.2 + 0.01 * seed]] for seed in range(3)]
    runs = [
        learnt(
            {"attention.threshold": [[0.0, 0.0]]},
            {"attention.threshold": end},
            seed,
            attention={"name": "ega", "gate_norm": "causal"},
            position={"name": "learned"},
        )
        for seed, end in enumerate(ends)
    ]
    outcome = judged(runs, "threshold-causal")
    assert outcome.verdict == verdict
    assert outcome.estimate == pytest.approx(theta + 0.01)
    assert f"{theta - 0.2:+.2f} to {theta + 0.22:+.2f}" in outcome.reason


def test_dense_characters_are_the_rarer_half() -> None:
    assert dense("aaaabbcd").tolist() == [False] * 4 + [True] * 4


def test_change_and_passing_of_a_reading_made_by_hand() -> None:
    before = np.array([[[1.0, 1.0, 1.0, 1.0]]])
    after = np.array([[[0.5, 0.5, 1.5, 1.5]]])
    gate = np.array([[[0.9, 0.1, 0.9, 0.9]]])
    owner = np.arange(4)
    reading = TextReading(gate, before, after, np.array([0, 16, 17, 18]), owner, "aabb")
    assert reading.change(np.array([True, True, False, False])) == 0.5
    assert reading.change(np.array([False, False, True, True])) == 1.5
    assert reading.passing == pytest.approx(2 / 3)  # the first token has too few to compare with


def test_gating_moves_attention_and_makes_none(tiny_runs: Path) -> None:
    run = Run(tiny_runs / "ega-causal-mope-s0")
    words = "The quick brown fox jumps over the lazy dog and the others"
    reading = read(run, words)
    queries = reading.gate.shape[0] * reading.gate.shape[1] * len(words)
    assert reading.before.sum() == pytest.approx(queries) and reading.after.sum() == pytest.approx(queries)
    first = words[: run.config.model.context_length]
    np.testing.assert_allclose(
        reading.gate[..., : len(first)], gates(run, first, device="cpu").gate, rtol=1e-5
    )


def test_gates_on_text_need_weights_and_three_runs(tiny_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run for run in list_runs([tiny_runs]) if isinstance(run, Run)]
    unreadable = judged(runs, "passing-causal")
    assert unreadable.n == 0  # their text has few capitals: they read less than 95 % of the sample
    monkeypatch.setattr(text, "LEAST_READ", 0.5)
    every = judged(runs, "passing-causal")
    assert every.n == 4 and len(every.runs) == 4
    assert every.estimate == pytest.approx(np.mean([100 * read(run).passing for run in every.runs]))
    two = judged([run for run in runs if run.name.startswith("ega-causal-learned")], "passing-causal")
    assert two.verdict == "undecided" and "only 2 runs, at least 3 are needed with weights" in two.reason
    assert two.interval == Interval(0.0, 100.0), "two runs say nothing, and no share lies beyond these"
    which = judged(runs, "ega-decides-which")
    assert which.n == 2 and which.estimate is not None and -1 <= which.estimate <= 1
    assert agreement(which.runs[0], which.runs[0]) == pytest.approx(1.0)


# The planted text


def test_auc_of_gates_whose_answer_is_known() -> None:
    rng = np.random.default_rng(0)
    marker = np.arange(200) % 10 == 0
    gate = rng.uniform(size=(2, 2, 200))
    gate[1, 0, marker] += 1  # this head finds them all
    gate[0, 1, marker] -= 1  # this one closes on them
    found = marker_auc(gate, marker)
    assert found.best == (1, 0) and found.best_auc == 1.0 and found.best_p == pytest.approx(1 / 1001)
    assert found.auc[0, 1] == 0.0 and found.p[0, 1] == 1.0
    assert marker_auc(np.ones((1, 1, 200)), marker).best_auc == 0.5


def test_the_best_of_many_heads_is_corrected_for_their_number() -> None:
    rng = np.random.default_rng(1)
    marker = np.arange(300) % 10 == 0
    found = marker_auc(rng.uniform(size=(4, 8, 300)), marker)
    assert found.p.min() < 0.05 < found.best_p
    with pytest.raises(ValueError, match="some of 300 tokens marked"):
        marker_auc(rng.uniform(size=(1, 1, 300)), np.zeros(300, dtype=bool))


def test_scales_at_the_distances_and_scales_anywhere() -> None:
    assert nearest_scale(np.array([4.0, 12.0, 36.0, 100.0]), (4, 12, 36)) == 0.0
    assert nearest_scale(np.array([8.0]), (4, 8, 16)) == pytest.approx(math.log(2))
    exact = scale_fit(np.array([4.0, 12.0, 36.0, 100.0]), (4, 12, 36), (2.0, 128.0))
    assert exact.found == 0.0 and exact.p == pytest.approx(1 / 1001)
    off = scale_fit(np.array([2.0, 2.1, 2.2, 128.0]), (4, 12, 36), (2.0, 128.0))
    assert off.p > 0.5
    assert off.by_chance == exact.by_chance > 0.1


def test_reach_is_the_start_times_the_most_that_adam_can_move() -> None:
    assert out_of_reach(5.0, 1.25, (4, 12, 36)) == (36,)  # 5·e^1.25 = 17.5
    assert out_of_reach(5.0, 0.1, (4, 12, 36)) == (12, 36)
    assert out_of_reach(128.0, 0.0, (4, 12, 36)) == ()


@pytest.fixture
def on_planted(learnt, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Run]]:
    text = tmp_path_factory.mktemp("planted") / "planted.txt"
    text.write_text(planted(4000).text)

    def as_planted(document: Plain) -> None:
        document["corpus"]["name"] = "planted"

    def write(start: np.ndarray, ends: list[np.ndarray], **position: Any) -> list[Run]:
        return [
            learnt(values(start), values(end), seed, corpus=text, change=as_planted,
                   position={"name": "mope", **position})
            for seed, end in enumerate(ends)
        ]  # fmt: skip

    return write


def test_planted_scales_are_judged_where_they_can_be_reached(on_planted) -> None:
    position = {"init": "multiscale", "rate_multiplier": 1e4}
    start = spaced(2, 32, 6)
    there = [np.array([4.0, 12.0, 36.0, 2.0, 3.0, 30.0]) * math.exp(0.001 * seed) for seed in range(3)]
    found = judged(on_planted(start, there, **position), "planted-scales-mope")
    assert (found.verdict, found.n) == ("holds", 3)
    nowhere = [np.array([2.0, 2.1, 2.2, 2.3, 2.4, 2.5 + 0.01 * seed]) for seed in range(3)]
    assert judged(on_planted(start, nowhere, **position), "planted-scales-mope").verdict == "fails"
    stuck = judged(on_planted(spaced(1.6, 5, 6), there, init="paper"), "planted-scales-mope")
    assert (stuck.verdict, stuck.n) == ("undecided", 0)
    assert "cannot reach 12 and 36: σ ≤ 5 at the start" in stuck.parts[0].name
    # Elsewhere the planted text stays out.
    assert judged(on_planted(start, there, **position), "four-groups").n == 0


def test_gates_that_find_planted_markers(tiny_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained weights with gates put in place by hand: on the markers, on nothing, on their answers."""
    from ega_mope.analysis.claims import planted as claim

    text = claim.unseen()
    rng = np.random.default_rng(3)
    noise = rng.uniform(size=(2, 2, len(text.text)))
    runs = [
        Run(tiny_runs / f"ega-causal-{position}-s{seed}")
        for position in ("learned", "mope")
        for seed in (0, 1)
    ]
    monkeypatch.setattr(claim, "on_planted", lambda evidence: runs)

    def reading(gate: np.ndarray) -> TextReading:
        empty, place = np.zeros_like(gate), np.arange(gate.shape[-1])
        return TextReading(gate, empty, empty, place, place, text.text)

    def outcome(gate: np.ndarray, before: np.ndarray = noise) -> Outcome:
        monkeypatch.setattr(claim, "read", lambda run, text, trained: reading(gate if trained else before))
        return judged(runs, "planted-markers")

    assert outcome(noise + text.marker).verdict == "holds"
    assert outcome(noise).verdict == "fails"
    unlearned = outcome(noise + text.marker, before=noise + text.marker)
    assert unlearned.verdict == "fails"  # its start could do as much
    digit = np.isin(np.array(list(text.text)), list("0123456789"))
    every_digit = outcome(noise + digit)
    assert every_digit.verdict == "fails"  # open for digits, whether needed or not
    assert every_digit.parts[-1].estimate == pytest.approx(0.97, abs=0.03)
