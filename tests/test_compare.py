"""Comparing runs: configurations, panels, curves, tables, bits per byte, the figure."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from simulated_runs import write_run

from ega_mope import cli
from ega_mope.analysis.bits_per_byte import byte_panels, covered_table, measured, token_bytes
from ega_mope.analysis.compare import (
    configurations,
    counted,
    curves_table,
    differences,
    labels,
    means_table,
    panels,
    summary_table,
)
from ega_mope.analysis.curves import mean_table, member_table, smooth
from ega_mope.analysis.losses import curve
from ega_mope.plots.compare import MOST_POINTS, loss_curves
from ega_mope.runs import Run
from ega_mope.text import store_corpus

MIXED_TEXT = "Wir grüßen 东京, naïve café – ok.\n" * 200


def three_seeds(folder: Path, corpus: Path) -> list[Run]:
    """Losses 2.0, 2.1, 2.3 at step 6."""
    return [
        write_run(folder, f"s{seed}", corpus, seed=seed, validation=[(0, 4.0), (3, 3.0 + seed), (6, loss)])
        for seed, loss in enumerate((2.0, 2.1, 2.3))
    ]


def test_runs_that_differ_in_their_seed_are_one_configuration(tmp_path: Path, small_text: Path) -> None:
    runs = three_seeds(tmp_path, small_text)
    other = write_run(tmp_path, "slow", small_text, training={"learning_rate": 5e-4})
    found = configurations([*runs, other])
    assert [[run.name for run in one.runs] for one in found] == [["s0", "s1", "s2"], ["slow"]]
    assert list(labels(found).values()) == [
        "dot + learned, learning_rate 0.001",
        "dot + learned, learning_rate 0.0005",
    ]
    table = differences(found, labels(found))
    assert table["setting"].tolist() == ["training.learning_rate"]
    assert table.iloc[0, 1:].tolist() == ["0.001", "0.0005"]


def test_labels_name_mechanisms_and_mark_the_future(tmp_path: Path, small_text: Path) -> None:
    runs = [
        write_run(tmp_path, name, small_text, attention=attention, position=position)
        for name, attention, position in (
            ("a", {"name": "dot"}, {"name": "mope", "init": "multiscale"}),
            ("b", {"name": "ega", "gate_norm": "sequence"}, {"name": "learned"}),
        )
    ]
    found = configurations(runs)
    assert list(labels(found).values()) == ["dot + mope multiscale", "ega sequence + learned ⚠"]
    assert "1 with gates that see the future" in counted(found)


def test_the_summary_is_the_mean_with_students_interval(tmp_path: Path, small_text: Path) -> None:
    found = configurations(three_seeds(tmp_path, small_text))
    row = summary_table(found, labels(found)).iloc[0]
    values = np.array([2.0, 2.1, 2.3])
    half = 4.302653 * values.std(ddof=1) / math.sqrt(3)
    assert (row["N"], row["mean"], row["sd"]) == (3, pytest.approx(values.mean()), pytest.approx(0.1527525))
    assert (row["95 % from"], row["95 % to"]) == pytest.approx((values.mean() - half, values.mean() + half))
    assert math.isnan(summary_table(configurations(found[0].runs[:1]), labels(found)).iloc[0]["sd"])


def test_diverged_and_unfinished_runs_are_counted_and_do_not_enter_the_mean(
    tmp_path: Path, small_text: Path
) -> None:
    runs = three_seeds(tmp_path, small_text)
    runs.append(
        write_run(tmp_path, "nan", small_text, seed=3, validation=[(0, 4.0), (3, None)], state="diverged")
    )
    runs.append(
        write_run(tmp_path, "half", small_text, seed=4, validation=[(0, 4.0), (3, 1.0)], state="stopped")
    )
    found = configurations(runs)
    row = summary_table(found, labels(found)).iloc[0]
    assert (row["N"], row["diverged"], row["not counted"]) == (3, 1, "half: not finished (stopped)")
    assert row["mean"] == pytest.approx(6.4 / 3)
    common = summary_table(found, labels(found), "common_step").iloc[0]
    assert (common["step"], common["N"], common["mean"]) == (3, 4, pytest.approx((3 + 4 + 5 + 1) / 4))
    assert "1 of them diverged" in counted(found)


def test_losses_of_different_evaluations_never_share_a_panel(tmp_path: Path, small_text: Path) -> None:
    runs = three_seeds(tmp_path, small_text)
    runs.append(write_run(tmp_path, "bytes", small_text, tokenizer="bytes"))
    runs.append(write_run(tmp_path, "batches", small_text, training={"validation_batches": 2}))
    found = panels(configurations(runs))
    assert [[one.example.name for one in panel.configurations] for panel in found] == [
        ["s0"], ["bytes"], ["batches"],
    ]  # fmt: skip
    assert [panel.tokenizer for panel in found] == ["characters", "bytes", "characters"]
    assert "2 random batches of 4 windows" in found[2].title


def test_the_same_text_under_another_name_is_the_same_configuration(tmp_path: Path, small_text: Path) -> None:
    copy = tmp_path / "renamed.txt"
    copy.write_text(small_text.read_text())
    runs = [write_run(tmp_path, "a", small_text, seed=0), write_run(tmp_path, "b", copy, seed=1)]
    assert len(configurations(runs)) == 1


def test_smoothing_is_tensorboards() -> None:
    """Worked by hand at weight 0.5: (½·4)/½ = 4, (½·2 + ½·2)/¾, a gap stays, then (½·2 + ½·1)/⅞."""
    values = np.array([4.0, 2.0, np.nan, 1.0])
    smoothed = smooth(values, 0.5)
    assert smoothed[[0, 1, 3]] == pytest.approx([4.0, 2.0 / 0.75, 1.5 / 0.875])
    assert math.isnan(smoothed[2])
    assert smooth(np.full(50, 3.0), 0.99) == pytest.approx(np.full(50, 3.0)), "a constant stays itself"
    assert smooth(values[:2], 0.0).tolist() == [4.0, 2.0]
    with pytest.raises(ValueError, match=r"expected 0 to 0\.999, got 1"):
        smooth(values, 1.0)


def test_means_and_bands(tmp_path: Path, small_text: Path) -> None:
    members = member_table(three_seeds(tmp_path, small_text), "validation")
    last = mean_table(members, "range").iloc[-1]
    assert (last["n"], last["mean"], last["low"], last["high"]) == (3, pytest.approx(6.4 / 3), 2.0, 2.3)
    half = 4.302653 * 0.152753 / math.sqrt(3)
    last = mean_table(members, "t").iloc[-1]
    assert last["high"] - last["mean"] == pytest.approx(half, rel=1e-5)
    assert mean_table(members, "none")["low"].isna().all()


def test_a_mean_stops_where_one_of_its_runs_does(tmp_path: Path, small_text: Path) -> None:
    runs = three_seeds(tmp_path, small_text)
    runs.append(
        write_run(tmp_path, "nan", small_text, seed=3, validation=[(0, 4.0), (3, None)], state="diverged")
    )
    assert mean_table(member_table(runs, "validation"))["step"].tolist() == [0]


def test_time_is_the_mean_of_the_runs_seconds(tmp_path: Path, small_text: Path) -> None:
    members = member_table(three_seeds(tmp_path, small_text), "validation", "seconds")
    members.loc[members["run"] == "s0", "x"] += 3.0
    assert mean_table(members)["x"].tolist() == pytest.approx([1.0, 2.5, 4.0])


def test_a_curve_is_read_again_when_its_file_grows(tmp_path: Path, small_text: Path) -> None:
    run = write_run(tmp_path, "a", small_text)
    assert curve(run, "validation").loss_nats.tolist() == [4.0, 3.0, 2.0]
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(
            json.dumps({"step": 9, "tokens": 1, "seconds": 1.0, "split": "validation", "loss_nats": 1.5})
        )
        file.write('\n{"step": 12, "spl')  # a kill in the middle of a line
    assert curve(run, "validation").loss_nats.tolist() == [4.0, 3.0, 2.0, 1.5]


def test_bits_per_byte_counts_the_bytes_that_are_predicted(tmp_path: Path) -> None:
    """nats per token × tokens / ln 2 / bytes, against the definition spelled out character by character."""
    text = tmp_path / "mixed.txt"
    text.write_text(MIXED_TEXT)
    store_corpus(MIXED_TEXT, tmp_path / "runs" / ".corpora")
    runs = [
        write_run(tmp_path / "runs", kind, text, tokenizer=kind, validation=[(0, 4.0), (6, 2.0)])
        for kind in ("characters", "bytes")
    ]
    by_kind = {run.name: measured(run) for run in runs}
    start, windows = int(0.9 * len(MIXED_TEXT)), runs[0].evaluation["windows"]
    predicted = MIXED_TEXT[start + 1 : start + 1 + windows * 32]
    assert by_kind["characters"].tokens == windows * 32
    assert by_kind["characters"].bytes == len(predicted.encode())
    assert by_kind["characters"].bits_per_nat == pytest.approx(
        len(predicted) / math.log(2) / len(predicted.encode())
    )
    assert by_kind["bytes"].bits_per_nat == pytest.approx(1 / math.log(2))
    (panel,), left_out = byte_panels(configurations(runs))
    assert len(panel.configurations) == 2 and not left_out
    assert set(covered_table(panel)["tokenizer"]) == {"characters", "bytes"}


def test_bits_per_byte_without_the_text_says_so(tmp_path: Path, small_text: Path) -> None:
    run = write_run(tmp_path, "a", small_text)
    shown, left_out = byte_panels(configurations([run]))
    assert shown == []
    (reason,) = left_out.values()
    assert "sentences.txt" in reason


def test_a_characters_bytes_are_shared_among_its_tokens() -> None:
    owner = np.array([0, 1, 1, 2, 2, 2, 3, 3, 3, 3])
    assert token_bytes("aé东😀", owner).tolist() == [1.0] * 10
    assert token_bytes("aé东😀", np.arange(4)).tolist() == [1.0, 2.0, 3.0, 4.0]


def draw(runs: list[Run], **more: object) -> tuple[pd.DataFrame, object]:
    found = configurations(runs)
    (panel,) = panels(found)
    members = curves_table(panel, labels(found), ["validation"], smoothing=0.0)
    keys = [one.key for one in found]
    colours, dashes = dict.fromkeys(keys, "#0072B2"), dict.fromkeys(keys, "solid")
    return members, loss_curves(members, means_table(members), colours, dashes, "step", "loss", **more)  # type: ignore[arg-type]


def test_the_figure_has_a_line_a_band_faint_runs_and_a_cross_where_one_diverged(
    tmp_path: Path, small_text: Path
) -> None:
    runs = three_seeds(tmp_path, small_text)
    runs.append(
        write_run(
            tmp_path, "nan", small_text, seed=3, validation=[(0, 4.0), (3, 3.5), (6, None)], state="diverged"
        )
    )
    _, fig = draw(runs)
    band, members, mean, cross = fig.data  # type: ignore[attr-defined]
    assert band.fill == "toself" and list(band.y) == [4.0, 5.0, 3.0, 4.0]
    assert members.y[:4] == (4.0, 3.0, 2.0, None)
    assert list(mean.x) == [0, 3] and mean.y[1] == pytest.approx((3 + 4 + 5 + 3.5) / 4)
    assert cross.marker.symbol == "x" and (cross.x[0], cross.y[0]) == (3, 3.5)
    assert mean.line.color == "#0072B2"


def test_a_thousand_runs_stay_drawable(tmp_path: Path, small_text: Path) -> None:
    run = write_run(tmp_path, "a", small_text)
    members, _ = draw([run])
    n_runs, n_steps = 200, 500
    many = pd.DataFrame(
        {
            **members.iloc[0].to_dict(),
            "run": np.repeat([f"r{number}" for number in range(n_runs)], n_steps),
            "step": np.tile(np.arange(n_steps), n_runs),
            "loss": np.random.default_rng(0).normal(2, 0.1, n_runs * n_steps),
        }
    ).assign(x=lambda table: table["step"].astype(float), smoothed=lambda table: table["loss"])
    many.loc[777, "loss"] = 50.0
    key = many["key"].iloc[0]
    fig = loss_curves(many, means_table(many), {key: "#0072B2"}, {key: "solid"}, "step", "loss")
    faint = fig.data[1]
    assert len(faint.y) < 2 * MOST_POINTS
    assert 50.0 in faint.y, "a spike survives"


def test_log_axes_and_left_out_start(tmp_path: Path, small_text: Path) -> None:
    runs = three_seeds(tmp_path, small_text)
    _, fig = draw(runs, x_log=True, y_log=True, leave_out=0.5)
    assert fig.layout.xaxis.type == fig.layout.yaxis.type == "log"  # type: ignore[attr-defined]
    low, high = fig.layout.yaxis.range  # type: ignore[attr-defined]
    # From step 3 on the losses lie between 2 and 5.
    assert low < math.log10(2.0) and math.log10(5.0) < high < math.log10(6.0)
    assert 0 not in fig.data[0].x, "a polygon cannot reach log 0"  # type: ignore[attr-defined]


def test_the_command_line_prints_a_table_for_each_evaluation(
    tmp_path: Path, small_text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path))
    three_seeds(tmp_path, small_text)
    assert cli.run(["compare", "s0", "s1", "s2", "--json"]) == 0
    (part,) = json.loads(capsys.readouterr().out)
    assert part["unit"] == "nats per character"
    assert part["rows"][0]["mean"] == pytest.approx(6.4 / 3) and part["rows"][0]["N"] == 3
    assert cli.run(["compare", "s0", "--metric", "bits"]) == 0
    assert f"{2.0 / math.log(2):.4f}" in capsys.readouterr().out
    assert cli.run(["compare", "s0", "--compare-point", "middle"]) == 2
    assert "expected one of (best, final, common_step)" in capsys.readouterr().err
