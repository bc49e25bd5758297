"""Superadditivity on simulated run folders with known effects."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from simulated_runs import write_cells, write_run
from streamlit.testing.v1 import AppTest

from ega_mope import cli
from ega_mope.analysis.factorial import begun, find_families
from ega_mope.analysis.superadditivity import superadditivity
from ega_mope.analysis.superadditivity_report import (
    cells_table,
    course_table,
    gains_table,
    paper_interaction,
    printed_course,
    remarks,
    verdict,
)
from ega_mope.plots.superadditivity import gains_over_training, seed_gains, waterfall
from ega_mope.runs import Run, list_runs
from ega_mope.text import store_corpus

ROOT = Path(__file__).resolve().parents[1]

KNOWN = {"00": 1.60, "10": 1.58, "01": 1.70, "11": 1.64}
"""EGA gains 0.02, MoPE −0.10, both −0.04: interaction +0.04, and both do not beat the baseline."""

WOBBLE = {0: 0.0, 1: 0.004, 2: -0.004, 3: 0.002, 4: -0.002, 5: 0.0}
"""What each seed adds to the interaction (through cell 11, with the sign turned)."""


def known_cells(seeds: int) -> dict[str, dict[int, float]]:
    """All cells of a seed share 0.01·seed, which pairing cancels."""
    return {
        cell: {seed: loss + 0.01 * seed - (WOBBLE[seed] if cell == "11" else 0.0) for seed in range(seeds)}
        for cell, loss in KNOWN.items()
    }


def test_six_seeds_give_the_known_answer(tmp_path: Path, small_text: Path) -> None:
    result = superadditivity(write_cells(tmp_path, small_text, known_cells(6)))
    answer = result.to_json()
    assert set(answer) == {
        "metric", "unit", "compare_point", "family", "cells", "gains", "interaction", "reason", "refused",
    }  # fmt: skip
    assert answer["refused"] is None
    assert answer["unit"] == "nats per character"
    assert answer["cells"]["00"] == {"mean": pytest.approx(1.625), "n": 6}
    assert answer["gains"] == {
        "ega": pytest.approx(0.02), "mope": pytest.approx(-0.10), "both": pytest.approx(-0.04)
    }  # fmt: skip
    interaction = answer["interaction"]
    assert set(interaction) == {
        "mean", "per_seed", "t_interval", "bca_interval", "sign_flip_p", "p_floor", "n",
    }  # fmt: skip
    assert interaction["per_seed"] == {
        str(seed): pytest.approx(0.04 + wobble) for seed, wobble in WOBBLE.items()
    }
    assert interaction["n"] == 6
    assert interaction["sign_flip_p"] == interaction["p_floor"] == 2 / 2**6
    # sd = √(4·10⁻⁵ / 5), t(5) = 2.570582
    assert interaction["t_interval"] == pytest.approx([0.04 - 0.0029683, 0.04 + 0.0029683], abs=1e-6)
    assert interaction["bca_interval"][0] < 0.04 < interaction["bca_interval"][1]


def test_the_verdict_names_both_facts(tmp_path: Path, small_text: Path) -> None:
    said = verdict(superadditivity(write_cells(tmp_path, small_text, known_cells(6))))
    assert said.startswith(
        "More than the sum of the parts: interaction +0.0400 nats per character, N = 6, 95 %"
    )
    assert "both together do not beat the baseline" in said
    assert said.endswith("and EGA alone has the lowest mean loss.")


def test_one_seed_has_no_interval_and_says_so(tmp_path: Path, small_text: Path) -> None:
    result = superadditivity(write_cells(tmp_path, small_text, known_cells(1)))
    interaction = result.to_json()["interaction"]
    assert interaction["mean"] == pytest.approx(0.04)
    assert [interaction[key] for key in ("t_interval", "bca_interval", "sign_flip_p")] == [None] * 3
    assert "N = 1" in (result.to_json()["reason"] or "")
    assert verdict(result).startswith("One seed, so nothing can be said about chance: interaction +0.0400")


def test_few_seeds_say_how_many_are_needed(tmp_path: Path, small_text: Path) -> None:
    result = superadditivity(write_cells(tmp_path, small_text, known_cells(3)))
    interaction = result.to_json()["interaction"]
    assert interaction["bca_interval"] is None
    assert interaction["p_floor"] == 0.25
    assert any("p < 0.05 needs 6 seeds" in line for line in remarks(result))


def test_seeds_that_do_not_match_are_unpaired(tmp_path: Path, small_text: Path) -> None:
    cells = known_cells(4)
    cells["11"] = {seed + 10: loss for seed, loss in cells["11"].items()}
    result = superadditivity(write_cells(tmp_path, small_text, cells))
    interaction = result.to_json()["interaction"]
    assert interaction["mean"] == pytest.approx(0.0405)
    assert interaction["per_seed"] == {} and interaction["sign_flip_p"] is None
    # Unpaired, the 0.01 a seed stays in: four variances of about 0.0129² over n = 4.
    low, high = interaction["t_interval"]
    assert high - low == pytest.approx(2 * 2.18 * 0.0129, rel=0.05)
    assert "unpaired" in result.to_json()["reason"] and "unpaired, 4/4/4/4 runs" in verdict(result)


def test_only_common_seeds_count_and_the_others_are_named(tmp_path: Path, small_text: Path) -> None:
    cells = known_cells(4)
    del cells["01"][3]
    result = superadditivity(write_cells(tmp_path, small_text, cells))
    assert result.seeds == (0, 1, 2)
    assert result.to_json()["cells"]["00"] == {"mean": pytest.approx(1.61), "n": 3}
    assert "not in all four cells: seed 3" in result.to_json()["reason"]


def test_compare_points(tmp_path: Path, small_text: Path) -> None:
    """The best is at step 3, the last is 0.1 worse; one cell's run is still going and has step 3 only."""
    runs = write_cells(tmp_path, small_text, {cell: {0: loss} for cell, loss in KNOWN.items()})
    for run in runs:
        (run.path / "metrics.jsonl").unlink()
        (run.path / "status.json").unlink()
    again = [
        write_run(
            tmp_path / "again",
            run.name,
            small_text,
            attention=run.config.model.attention,
            position=run.config.model.position,
            validation=[(0, 4.0), (3, loss), (6, loss + (0.1 if run.name.startswith("11") else 0.0))],
        )
        for run, loss in zip(runs, KNOWN.values(), strict=True)
    ]
    by_point = {
        point: superadditivity(again, compare_point=point).to_json()
        for point in ("best", "final", "common_step")
    }
    assert by_point["best"]["interaction"]["mean"] == pytest.approx(0.04)
    assert by_point["final"]["interaction"]["mean"] == pytest.approx(-0.06)
    assert by_point["common_step"]["interaction"]["mean"] == pytest.approx(-0.06)
    assert "compared at step 6" in by_point["common_step"]["reason"]


def test_an_unfinished_run_counts_only_at_the_common_step(tmp_path: Path, small_text: Path) -> None:
    losses = {cell: {0: loss} for cell, loss in KNOWN.items()}
    finished = {cell: losses[cell] for cell in ("00", "10", "01")}
    runs = write_cells(tmp_path, small_text, finished)
    runs += write_cells(
        tmp_path, small_text, {"11": losses["11"]}, validation=[(0, 4.0), (3, 1.9)], state="stopped"
    )
    best = superadditivity(runs)
    assert best.refused is not None and "none in 11 (not finished (stopped))" in best.refused
    common = superadditivity(runs, compare_point="common_step").to_json()
    # Three cells are 0.5 above their best at step 3.
    assert common["interaction"]["mean"] == pytest.approx(1.58 + 0.5 + 1.70 + 0.5 - 1.60 - 0.5 - 1.9)


def cells_that_turn(folder: Path, corpus: Path) -> list[Run]:
    """Three seeds that gain less than the sum at step 3, by 0.12, and more at step 6, by 0.04; a fourth seed's run of
    both was stopped at step 3."""
    runs = write_cells(
        folder, corpus, {cell: dict.fromkeys(range(4), KNOWN[cell]) for cell in ("00", "10", "01")}
    )
    for seed in range(3):
        course = [(0, 3.60), (3, KNOWN["11"] + 0.66 + 0.001 * seed), (6, KNOWN["11"])]
        runs += write_cells(folder, corpus, {"11": {seed: KNOWN["11"]}}, validation=course)
    return runs + write_cells(
        folder, corpus, {"11": {3: 2.0}}, validation=[(0, 3.60), (3, 2.0)], state="stopped"
    )


def test_gains_over_training(tmp_path: Path, small_text: Path) -> None:
    runs = cells_that_turn(tmp_path, small_text)
    course = course_table(superadditivity(runs))
    interaction = course[course["gain"] == "interaction"].set_index("step")
    assert dict(interaction["mean"]) == pytest.approx({0: 0.08, 3: -0.121, 6: 0.04})
    assert set(course["N"]) == {3}, "the run that was stopped does not count, as at the best step"
    # sd 0.001, t(2) = 4.302653
    assert interaction[["95 % from", "95 % to"]].to_numpy()[1].tolist() == pytest.approx(
        [-0.121 - 0.0024841, -0.121 + 0.0024841], abs=1e-6
    )
    common = course_table(superadditivity(runs, compare_point="common_step"))
    assert sorted(set(common["step"])) == [0, 3] and set(common["N"]) == {4}
    assert course_table(superadditivity([])).empty
    shown = printed_course(course)
    assert shown["step"].tolist() == ["3", "6"]
    assert shown["interaction"].tolist() == [
        "-0.1210 [-0.1235, -0.1185]",
        "+0.0400 [+0.0400, +0.0400]",
    ]


def test_a_course_is_drawn_with_its_band(tmp_path: Path, small_text: Path) -> None:
    course = course_table(superadditivity(cells_that_turn(tmp_path, small_text)))
    drawn = {trace.name: trace for trace in gains_over_training(course, "nats").data if trace.name}
    assert list(drawn) == ["EGA alone", "MoPE alone", "both", "interaction"]
    assert list(drawn["interaction"].x) == [0, 3, 6]
    assert list(drawn["interaction"].y) == pytest.approx([0.08, -0.121, 0.04])
    bands = [trace for trace in gains_over_training(course, "nats").data if trace.fill == "toself"]
    assert list(bands[-1].x) == [0, 3, 6, 6, 3, 0]
    interval = course[course["gain"] == "interaction"]
    around = [*interval["95 % to"], *interval["95 % from"][::-1]]
    assert list(bands[-1].y) == pytest.approx(around), "up one side, back along the other"


def test_one_seed_has_a_course_without_a_band(tmp_path: Path, small_text: Path) -> None:
    course = course_table(superadditivity(write_cells(tmp_path, small_text, known_cells(1))))
    assert course["95 % from"].isna().all()
    assert [trace.name for trace in gains_over_training(course, "nats").data] == [
        "EGA alone", "MoPE alone", "both", "interaction",
    ]  # fmt: skip
    assert printed_course(course)["EGA alone"].tolist() == ["+0.0200", "+0.0200"]


def test_a_diverged_seed_is_left_out_and_named(tmp_path: Path, small_text: Path) -> None:
    cells = known_cells(3)
    runs = write_cells(tmp_path, small_text, {**cells, "11": {0: cells["11"][0], 1: cells["11"][1]}})
    runs += write_cells(
        tmp_path, small_text, {"11": {2: 1.0}}, validation=[(0, 4.0), (3, 1.0), (6, None)], state="diverged"
    )
    result = superadditivity(runs)
    assert result.seeds == (0, 1)
    assert "11-causal-s2 is left out: diverged" in result.to_json()["reason"]


def test_a_second_run_of_a_seed_is_no_second_sample(tmp_path: Path, small_text: Path) -> None:
    runs = write_cells(tmp_path, small_text, known_cells(2))
    runs.append(write_run(tmp_path, "again", small_text, seed=0, validation=[(0, 4.0), (6, 9.0)]))
    result = superadditivity(runs)
    assert result.n == 2
    assert "again is left out: the cell has seed 0 already" in result.to_json()["reason"]


def test_metrics_and_the_warning_that_the_scale_can_turn_the_sign(tmp_path: Path, small_text: Path) -> None:
    # In nats +0.02; the perplexities 10, 8, 4, 3.137… interact at −1.137.
    losses = {"00": 2.3026, "10": 2.0794, "01": 1.3863, "11": 1.1431}
    runs = write_cells(tmp_path, small_text, {cell: {0: loss} for cell, loss in losses.items()})
    nats, bits, perplexity = (superadditivity(runs, metric=m) for m in ("nats", "bits", "perplexity"))
    mean = {
        result.metric.name: result.to_json()["interaction"]["mean"] for result in (nats, bits, perplexity)
    }
    assert mean["nats"] == pytest.approx(0.02)
    assert mean["bits"] == pytest.approx(0.02 / 0.6931472)
    assert mean["perplexity"] == pytest.approx(8 + 4 - 10 - 3.1365, abs=1e-3)
    assert "it does here: +0.0200 in nats" in perplexity.to_json()["reason"]
    assert perplexity.unit == "perplexity per character"


def test_unknown_choices_are_refused(tmp_path: Path, small_text: Path) -> None:
    runs = write_cells(tmp_path, small_text, known_cells(1))
    for choice in ({"metric": "nat"}, {"compare_point": "last"}, {"family": "none"}):
        with pytest.raises(ValueError, match="expected one of"):
            superadditivity(runs, **choice)


def test_the_causal_family_with_most_seeds_comes_first(tmp_path: Path, small_text: Path) -> None:
    runs = write_cells(tmp_path, small_text, known_cells(3), gate_norm="sequence")
    runs += write_cells(tmp_path, small_text, {c: v for c, v in known_cells(2).items() if c in ("10", "11")})
    families = find_families(runs)
    assert [(family.gate_norm, len(family.seeds), family.sees_future) for family in families] == [
        ("causal", 2, False),
        ("sequence", 3, True),
    ]
    assert superadditivity(runs).n == 2
    assert superadditivity(runs, family=families[1].key).n == 3


def test_a_missing_cell_is_named_with_the_command_that_makes_it(
    tmp_path: Path, small_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command is run, and then the 2×2 is complete."""
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path))
    store_corpus(small_text.read_text(), tmp_path / ".corpora")
    runs = write_cells(tmp_path, small_text, {c: {3: KNOWN[c]} for c in ("00", "10", "01")})
    result = superadditivity(runs)
    assert result.refused is not None and "none in 11 (ega causal + mope)" in result.refused
    assert result.to_json()["cells"]["11"] == {"mean": None, "n": 0}
    assert result.family is not None
    (command,) = result.family.commands
    assert command in result.refused
    program, *arguments = shlex.split(command)
    assert (program, cli.run(arguments)) == ("ega-mope", 0)
    made = [run for run in list_runs([tmp_path]) if isinstance(run, Run)]
    assert len(made) == 4 and superadditivity(made).seeds == (3,)


def test_devices_never_mix(tmp_path: Path, small_text: Path) -> None:
    cells = known_cells(2)
    runs = write_cells(tmp_path, small_text, {c: cells[c] for c in ("00", "10")})
    runs += write_cells(tmp_path, small_text, {c: cells[c] for c in ("01", "11")}, device="cuda")
    result = superadditivity(runs)
    assert result.refused is not None
    assert "one kind of device, got 00 on cpu, 10 on cpu, 01 on cuda, 11 on cuda" in result.refused
    assert result.to_json()["interaction"]["mean"] is None


def test_different_evaluations_never_mix(tmp_path: Path, small_text: Path) -> None:
    cells = known_cells(1)
    runs = write_cells(tmp_path, small_text, {c: cells[c] for c in ("00", "10", "01")})
    runs += write_cells(
        tmp_path,
        small_text,
        {"11": cells["11"]},
        change=lambda document: document["evaluation"].update(windows=3),
    )
    refused = superadditivity(runs).refused
    assert refused is not None and "different `evaluation`" in refused


def test_other_settings_make_another_family(tmp_path: Path, small_text: Path) -> None:
    runs = write_cells(tmp_path, small_text, {c: known_cells(1)[c] for c in ("00", "10", "01")})
    runs += write_cells(tmp_path, small_text, {"11": {0: 1.0}}, training={"learning_rate": 5e-3})
    assert all(family.refused for family in find_families(runs))


def test_what_one_run_would_complete_comes_before_what_takes_two(tmp_path: Path, small_text: Path) -> None:
    cells = known_cells(2)
    runs = write_cells(tmp_path, small_text, cells)
    runs += write_cells(tmp_path, small_text, {"10": cells["10"]}, gate_norm="none")
    runs += write_cells(tmp_path, small_text, {"10": {0: 1.0}}, gate_norm="sequence")
    elsewhere = {"learning_rate": 5e-3}
    runs += write_cells(tmp_path / "one", small_text, {"00": {5: 1.0}}, training=elsewhere)
    alone = begun(find_families(runs))
    assert [(family.gate_norm, len(family.commands)) for family in alone] == [("sequence", 1), ("none", 2)]
    # A 2×2 of four cells on two devices lacks no run that could be named: it comes last.
    mixed = {"learning_rate": 5e-4}
    halves = ({c: cells[c] for c in ("00", "10")}, {c: cells[c] for c in ("01", "11")})
    runs += write_cells(tmp_path / "mixed", small_text, halves[0], training=mixed)
    runs += write_cells(tmp_path / "mixed", small_text, halves[1], training=mixed, device="cuda")
    assert [len(family.commands) for family in begun(find_families(runs))] == [1, 2, 0]


def test_the_page_shows_what_the_chosen_2x2_lacks(
    tmp_path: Path, small_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path))
    runs = write_cells(tmp_path, small_text, known_cells(2))
    runs += write_cells(tmp_path, small_text, {"10": {0: 1.5, 1: 1.5}}, gate_norm="none")
    runs += write_cells(tmp_path, small_text, {"10": {0: 1.5}}, gate_norm="sequence")
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=180)
    at.switch_page("pages/Superadditivity.py").run()
    for family in begun(find_families(runs)):
        label = f"{len(family.commands)} to train · {family.label}"
        assert label in at.selectbox(key="incomplete").options
        at.selectbox(key="incomplete").select(family.key).run()
        assert not at.exception
        assert at.main.code[-1].value == "\n".join(family.commands)
        assert f"--position mope --gate-norm {family.gate_norm} " in at.main.code[-1].value
        assert "missing: 11 (EGA + MoPE); to train:" in [text.value for text in at.markdown]


def test_command_line_answers_in_json(
    tmp_path: Path, small_text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path))
    runs = write_cells(tmp_path, small_text, known_cells(2))
    names = [run.name for run in runs]
    assert cli.run(["superadditivity", *names, "--json", "--metric", "bits"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == superadditivity(runs, metric="bits").to_json()
    assert cli.run(["superadditivity", *names]) == 0
    printed = capsys.readouterr().out
    assert "interaction +0.0420" in printed and "0.0589" in printed
    assert cli.run(["superadditivity", *names, "--over-training"]) == 0
    assert capsys.readouterr().out.startswith(printed)
    assert cli.run(["superadditivity", *names, "--json", "--over-training"]) == 0
    course = json.loads(capsys.readouterr().out)["over_training"]
    assert [row["step"] for row in course if row["gain"] == "both"] == [0, 3, 6]
    assert cli.run(["superadditivity", *names[2:], "--json"]) == 2
    out, err = capsys.readouterr()
    assert "none in 00" in json.loads(out)["refused"] and len(err.strip().splitlines()) == 1


def test_the_papers_interaction_is_computed_from_its_cells() -> None:
    assert paper_interaction() == pytest.approx(0.0589)


def test_figures_draw_the_numbers(tmp_path: Path, small_text: Path) -> None:
    result = superadditivity(write_cells(tmp_path, small_text, known_cells(3)))
    cells, gains = cells_table(result), gains_table(result)
    bars = [trace for trace in waterfall(cells, gains, "loss").data if trace.type == "bar"]
    ends = [bar.base[0] + bar.y[0] for bar in bars]
    assert [bar.x[0] for bar in bars] == ["EGA<br>alone", "MoPE<br>alone", "inter-<br>action"]
    assert ends == pytest.approx([1.59, 1.69, 1.65])  # L10, L10 + L01 − L00, L11
    assert ends[-1] == pytest.approx(result.cells["11"].mean)
    points = [trace for trace in seed_gains(gains, "nats").data if trace.marker.symbol != "diamond"]
    assert list(points[-1].y) == pytest.approx([0.04, 0.044, 0.036])
