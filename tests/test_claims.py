"""Claims on simulated run folders with known effects: what holds, what fails, what stays undecided, and why."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from simulated_runs import write_cells, write_run

from ega_mope import cli
from ega_mope.analysis.claims import CLAIMS, Outcome, judge
from ega_mope.analysis.claims.evidence import Evidence
from ega_mope.analysis.claims.outcome import MARGIN_NATS
from ega_mope.analysis.intervals import t_interval
from ega_mope.analysis.superadditivity import superadditivity
from ega_mope.runs import Run, list_runs, shipped_folder
from ega_mope.sweeps import cells_of, read_seeds

BY_ID = {claim.id: claim for claim in CLAIMS}

WOBBLE = (0.0, 0.002, -0.002, 0.001, -0.001, 0.0)
"""What each seed adds to one cell."""

KNOWN = {"00": 1.60, "10": 1.58, "01": 1.70, "11": 1.64}
"""EGA gains 0.02, MoPE −0.10, both −0.04; interaction +0.04."""


def by_seed(loss: float, seeds: int = 6, wobble: Iterable[float] = (0.0,) * 6) -> dict[int, float]:
    """Losses of some seeds: every cell of a seed shares 0.01·seed, which pairing cancels."""
    return {seed: loss + 0.01 * seed + extra for seed, extra in zip(range(seeds), wobble, strict=False)}


def known_cells(seeds: int = 6, **changes: float) -> dict[str, dict[int, float]]:
    losses = KNOWN | {name.removeprefix("cell_"): loss for name, loss in changes.items()}
    return {
        cell: by_seed(loss, seeds, WOBBLE if cell == "11" else (0.0,) * 6) for cell, loss in losses.items()
    }


def judged(runs: Iterable[Run], claim: str, speed: Path | None = None) -> Outcome:
    return BY_ID[claim].judge(Evidence(runs, speed))


@pytest.fixture
def simulate(tmp_path: Path, small_text: Path) -> Callable[..., list[Run]]:
    """`simulate(losses, …)` writes a 2×2 of these losses by cell and seed."""
    return lambda losses, **more: write_cells(tmp_path, small_text, losses, **more)


@pytest.fixture
def one(tmp_path: Path, small_text: Path) -> Callable[..., Run]:
    """`one(loss, seed, …)` writes a run that ends at this loss."""

    def write(loss: float, seed: int, *, tag: str = "", **more: Any) -> Run:
        words = [
            tag,
            more.get("attention", {}).get("name", "dot"),
            str(len(list(tmp_path.iterdir()))),
            f"s{seed}",
        ]
        more = {"validation": [(0, loss + 2), (6, loss)]} | more
        return write_run(tmp_path, "-".join(words), small_text, seed=seed, **more)

    return write


def test_ids_are_unique_and_every_claim_says_how_it_is_tested() -> None:
    assert len(BY_ID) == len(CLAIMS) == len({claim.sentence for claim in CLAIMS})
    assert all(claim.test.endswith(".") and claim.paper.note for claim in CLAIMS)


def test_known_effects_give_the_known_verdicts(simulate) -> None:
    runs = simulate(known_cells())
    assert judged(runs, "ega-improves-causal").verdict == "holds"
    assert judged(runs, "mope-alone-does-not").verdict == "holds"
    assert judged(runs, "interaction-causal").verdict == "holds"
    # Both beat MoPE by 0.06 and lose 0.06 to EGA, 0.04 to the baseline.
    assert judged(runs, "neither-suffices-causal").verdict == "fails"
    best = judged(runs, "both-best-causal")
    assert best.verdict == "fails"
    assert best.estimate == pytest.approx(-0.06)
    assert {part.name: part.estimate for part in best.parts} == {
        "over baseline": pytest.approx(-0.04),
        "over EGA alone": pytest.approx(-0.06),
        "over MoPE alone": pytest.approx(0.06),
    }
    assert best.n == 6 and len(best.runs) == 24 and best.commands == ()
    # Nothing is known under another gate.
    assert judged(runs, "ega-improves-visible").verdict == "undecided"


def test_both_together_can_be_best(simulate) -> None:
    runs = simulate(known_cells(cell_11=1.55))
    for claim in ("both-best-causal", "neither-suffices-causal", "interaction-causal"):
        assert judged(runs, claim).verdict == "holds", claim


def test_no_effect_fails_and_confirms_that_there_is_none(simulate) -> None:
    wobble = (0.001, -0.001, 0.0005, -0.0005, 0.0, 0.0)
    runs = simulate(known_cells() | {"10": by_seed(1.60, wobble=wobble), "01": by_seed(1.60, wobble=wobble)})
    ega = judged(runs, "ega-improves-causal")
    assert ega.interval is not None and 0 < ega.interval.high < MARGIN_NATS
    assert ega.verdict == "fails"
    assert judged(runs, "mope-alone-does-not").verdict == "holds"


def test_a_wide_interval_is_undecided_and_asks_for_more_seeds(simulate) -> None:
    runs = simulate(known_cells() | {"10": by_seed(1.59, wobble=(0.05, -0.05, 0.04, -0.04, 0.03, -0.03))})
    outcome = judged(runs, "ega-improves-causal")
    assert outcome.verdict == "undecided"
    assert "both no gain and a gain above 0.005 nats are possible" in outcome.reason
    assert "--seeds 0-11" in outcome.commands[0]


@pytest.mark.parametrize("seeds", [1, 2])
def test_too_few_seeds_never_decide_however_large_the_effect(simulate, seeds: int) -> None:
    outcome = judged(simulate(known_cells(seeds, cell_10=0.5)), "ega-improves-causal")
    assert outcome.verdict == "undecided"
    assert outcome.n == seeds and f"share only {seeds} seed" in outcome.reason
    assert "ega-mope sweep --grid study --seeds 0-5" in outcome.commands[0]


def test_the_interaction_is_that_of_superadditivity(simulate) -> None:
    runs = simulate(known_cells())
    found, told = superadditivity(runs).interaction, judged(runs, "interaction-causal")
    assert found is not None
    assert told.estimate == pytest.approx(found.mean)
    assert told.interval == found.interval


def test_deleting_a_run_changes_the_claim(simulate) -> None:
    runs = simulate(known_cells() | {"10": by_seed(1.58, wobble=(0.006, 0, 0, 0, 0, 0))})
    before = judged(runs, "ega-improves-causal")
    gone = next(run for run in runs if run.name == "10-causal-s0")
    shutil.rmtree(gone.path)
    after = judged([run for run in runs if run is not gone], "ega-improves-causal")
    assert (before.n, after.n) == (6, 5)
    assert (before.estimate, after.estimate) == (pytest.approx(0.019), pytest.approx(0.02))


def test_runs_that_do_not_compare_are_kept_apart(simulate, one) -> None:
    """The gain is measured where most seeds are; what has other steps or another device stands beside it."""
    runs = simulate(known_cells(4))
    more = {"device": "cuda"}
    runs += [one(1.60, seed, **more) for seed in range(3)]
    runs += [one(1.50, seed, attention={"name": "ega", "gate_norm": "causal"}, **more) for seed in range(3)]
    runs += [one(1.0, 9, attention={"name": "ega", "gate_norm": "causal"}, training={"steps": 7})]
    outcome = judged(runs, "ega-improves-causal")
    assert (outcome.n, outcome.estimate) == (4, pytest.approx(0.02))
    (other,) = outcome.parts
    assert other.name.startswith("also: ") and "cuda" in other.name
    assert (other.n, other.estimate) == (3, pytest.approx(0.10))


def test_runs_that_are_unfinished_or_diverged_do_not_count(simulate, one) -> None:
    runs = simulate(known_cells(4))
    runs += [one(0.1, 7, state="stopped"), one(0.1, 8, train=[(1, None)])]
    assert judged(runs, "ega-improves-causal").n == 4


def test_losses_are_the_lowest_of_each_run(simulate, one) -> None:
    runs = simulate({"00": by_seed(1.60, 3)})
    for seed in range(3):
        points = [(0, 4.0), (3, 1.50 + 0.01 * seed), (6, 1.70)]
        run = one(0.0, seed, attention={"name": "ega", "gate_norm": "causal"}, validation=points)
        runs.append(run)
    assert judged(runs, "ega-improves-causal").estimate == pytest.approx(0.10)


def test_the_same_training_twice_counts_once(simulate, tmp_path: Path) -> None:
    """A user's run that ships too is no second run, nor is the one that was stopped on the way."""
    runs = simulate(known_cells(4))
    twin = tmp_path / "again" / runs[0].name
    shutil.copytree(runs[0].path, twin)
    stopped = tmp_path / "again" / "stopped"
    shutil.copytree(runs[1].path, stopped)
    (stopped / "status.json").write_text('{"state": "stopped"}')
    assert Evidence([*runs, Run(twin)]).runs == Evidence(runs).runs
    assert Run(stopped).name not in {run.name for run in Evidence([Run(stopped), *runs]).runs}


def test_other_mechanisms_are_held_against_the_baseline(one) -> None:
    runs = [one(1.60 + 0.01 * seed, seed) for seed in range(4)]
    gains = {
        "lags-help": ({"name": "conv"}, 0.02, "holds"),
        "flux-helps": ({"name": "multi_quantity", "phase": False}, -0.01, "fails"),
        "phase-does-not": ({"name": "multi_quantity", "flux": False}, 0.01, "fails"),
        "scale-init-does-not": ({"name": "scale_heads"}, -0.01, "holds"),
    }
    for attention, gain, _ in gains.values():
        runs += [
            one(1.60 + 0.01 * seed - gain + 0.0001 * seed, seed, attention=attention) for seed in range(4)
        ]
    for claim, (_, gain, verdict) in gains.items():
        outcome = judged(runs, claim)
        assert (outcome.verdict, outcome.n) == (verdict, 4), claim
        assert outcome.estimate == pytest.approx(gain, abs=2e-4), claim


def test_a_learned_projection_must_beat_every_fixed_wavelet(one) -> None:
    def ega(signal: str) -> dict[str, str]:
        return {"name": "ega", "gate_norm": "causal", "signal": signal}

    losses = {"linear": 1.50, "daubechies2": 1.52, "morlet": 1.49}
    runs = [
        one(loss + 0.001 * seed * (signal == "linear"), seed, attention=ega(signal))
        for signal, loss in losses.items()
        for seed in range(3)
    ]
    outcome = judged(runs, "learned-beats-fixed")
    assert outcome.verdict == "fails"
    assert outcome.estimate == pytest.approx(-0.011)
    without = judged(
        [run for run in runs if run.config.model.attention["signal"] != "morlet"], "learned-beats-fixed"
    )
    assert without.verdict == "undecided"
    assert "no run yet of ega causal morlet + learned" in without.reason
    assert any("model.attention.signal=morlet" in command for command in without.commands)


def test_learned_scales_against_frozen_ones(one) -> None:
    positions = {"both": 1.55, "nothing": 1.50}
    runs = [
        one(loss + 0.001 * seed * (freeze == "both"), seed, position={"name": "mope", "freeze": freeze})
        for freeze, loss in positions.items()
        for seed in range(3)
    ]
    outcome = judged(runs, "learned-beats-frozen")
    assert (outcome.verdict, outcome.estimate) == ("holds", pytest.approx(0.051))


# A look at the future


def audit(teacher: float, exchanged: float, id: str = "same") -> dict[str, Any]:
    verdict = "causal" if teacher == exchanged else "sees the future"
    return {
        "verdict": verdict,
        "teacher_forced_nats": teacher,
        "exchanged_future_nats": exchanged,
        "sample": {"id": id},
    }


@pytest.fixture
def twins(one) -> Callable[..., list[Run]]:
    """Causal and sequence twins and their baseline: `exchanged` is what `sequence` loses to at the predictions."""

    def write(exchanged: float, *, causal: float = 1.59, id: str = "same", seeds: int = 4) -> list[Run]:
        runs = []
        for seed in range(seeds):
            shift = 0.01 * seed
            runs.append(one(1.60 + shift, seed))
            for norm, loss, told in (
                ("causal", causal + 0.001 * seed, audit(1.60, 1.60)),
                ("sequence", 1.50, audit(1.50, exchanged + 0.003 * seed, id)),
            ):
                runs.append(one(loss + shift, seed, attention={"name": "ega", "gate_norm": norm}, audit=told))
        return runs

    return write


@pytest.mark.parametrize(("exchanged", "verdict"), [(1.80, "holds"), (1.55, "fails"), (1.594, "undecided")])
def test_a_gain_that_goes_with_the_future_was_a_look_at_it(twins, exchanged: float, verdict: str) -> None:
    outcome = judged(twins(exchanged), "sequence-gain-is-future")
    assert outcome.verdict == verdict
    assert outcome.estimate == pytest.approx(0.0915)
    left = {part.name: part.estimate for part in outcome.parts}["left of it with another text's future"]
    assert left == pytest.approx(1.60 - exchanged - 0.0045)
    assert outcome.sees_future


def test_audits_of_other_predictions_are_not_compared(twins) -> None:
    outcome = judged(twins(1.80, id="other"), "sequence-gain-is-future")
    assert outcome.verdict == "undecided"
    assert "only 0 of 4 pairs of twins were audited at the same predictions" in outcome.reason


@pytest.mark.parametrize(("causal", "verdict", "share"), [(1.59, "holds", 91.5), (1.52, "fails", 21.5)])
def test_how_much_of_the_gain_is_the_look(twins, causal: float, verdict: str, share: float) -> None:
    outcome = judged(twins(1.80, causal=causal), "gain-mostly-future")
    assert outcome.verdict == verdict
    assert outcome.parts[0].estimate == pytest.approx(share)


# Cost


def test_overhead_is_counted() -> None:
    outcome = judged([], "overhead")
    assert outcome.verdict == "holds" and outcome.n is None
    assert outcome.estimate == pytest.approx(100 * 12_384 / 4_816_640)
    assert outcome.parts[0].estimate == pytest.approx(100 * 2_080 / 816_512)


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [([0.98, 1.02], "holds"), ([0.90, 0.95], "fails"), ([0.95, 1.01], "undecided"), (None, "undecided")],
)
def test_speed_comes_from_the_benchmark(tmp_path: Path, interval: list[float] | None, verdict: str) -> None:
    rows = [
        {"cell": "baseline", "dropout": 0.0, "ratio_to_baseline": 1.0, "ratio_interval": [1.0, 1.0]},
        {
            "cell": "loop over heads, EGA",
            "dropout": 0.0,
            "ratio_to_baseline": 0.2,
            "ratio_interval": [0.1, 0.3],
        },
        {"cell": "MoPE", "dropout": 0.0, "ratio_to_baseline": 0.5, "ratio_interval": [0.4, 0.6]},
        {"cell": "EGA causal", "dropout": 0.1, "ratio_to_baseline": 0.97, "ratio_interval": interval},
    ]
    path = tmp_path / "train_speed.json"
    path.write_text(json.dumps({"rows": rows, "machine": {"name": "a machine", "threads": 1}}))
    outcome = judged([], "no-compute", path)
    assert outcome.verdict == verdict
    assert outcome.estimate == 0.97 and "a machine" in outcome.reason
    assert judged([], "no-compute", tmp_path / "nothing.json").verdict == "undecided"
    rows[-1] |= {"ratio_to_baseline": 0.5, "ratio_interval": [0.4, 0.6]}
    (tmp_path / "elsewhere").mkdir()
    other = {"rows": rows, "machine": {"name": "another machine"}}
    (tmp_path / "elsewhere" / "another.json").write_text(json.dumps(other))
    both = judged([], "no-compute", path)
    assert both.verdict == "fails" and both.estimate == 0.5 and "another machine" in both.reason
    assert [part.name.partition("(")[2] for part in both.parts] == [
        "name a machine)",
        "name another machine)",
    ]
    path.write_text("{}")
    with pytest.raises(ValueError, match="expected rows with cell"):
        judged([], "no-compute", path)


# What is said of claims


def test_shipped_runs_agree_with_superadditivity() -> None:
    runs = [run for run in list_runs([shipped_folder()]) if isinstance(run, Run)]
    found = superadditivity([run for run in runs if run.name.startswith("tinyshakespeare")]).interaction
    assert found is not None
    outcome = judged(runs, "interaction-causal")
    assert outcome.estimate == pytest.approx(found.mean)
    assert outcome.interval == found.interval == t_interval(list(found.per_seed.values()))


def trains(command: str) -> None:
    """Fails unless the command line takes this command; nothing is trained."""
    if command.startswith("for seed in "):
        seeds, _, line = command.removesuffix("; done").partition("; do ")
        command = line.replace("$seed", seeds.split()[-1])
    program, verb, *arguments = shlex.split(command)
    assert program == "ega-mope"
    context = cli.cli.commands[verb].make_context(verb, arguments)
    if verb == "sweep":
        assert cells_of(context.params["grid"]) and read_seeds(context.params["seeds"])


@pytest.mark.parametrize("where", ["nowhere", "shipped"])
def test_every_undecided_claim_says_why_and_its_commands_are_understood(where: str) -> None:
    runs = list_runs([shipped_folder()]) if where == "shipped" else []
    for one in judge(runs):
        assert one.outcome.reason, one.claim.id
        if one.outcome.verdict == "undecided" and one.claim.id != "no-compute":
            assert one.outcome.commands, one.claim.id
        for command in one.outcome.commands:
            trains(command)


def test_the_command_line_answers_in_four_ways(
    simulate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate(known_cells(3))
    folder = ["--runs", str(tmp_path)]
    assert cli.run(["claims", *folder, "--json"]) == 0
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(BY_ID)
    row = rows["ega-improves-causal"]
    assert {"claim", "verdict", "estimate", "interval", "n", "paper", "runs"} <= set(row)
    assert (row["verdict"], row["n"], row["paper"]) == ("holds", 3, 0.0921)
    assert len(row["runs"]) == 6
    assert cli.run(["claims", *folder, "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CLAIMS) + 1
    assert cli.run(["claims", *folder, "--markdown"]) == 0
    assert (
        "| EGA improves on the baseline (causal gate) | **holds** | +0.0200 nats |" in capsys.readouterr().out
    )
    assert cli.run(["claims", *folder]) == 0
    assert "ega-improves-causal" in capsys.readouterr().out
    assert cli.run(["claims", *folder, "--claim", "ega-improves-causal"]) == 0
    assert "seed, 4.8 M parameters" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--json", "--csv"], "expected one of --json"),
        (["--runs", "no-such-folder"], "expected a folder of runs"),
        (["--claim", "nothing"], "expected one of (mope-alone-does-not"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["claims", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
