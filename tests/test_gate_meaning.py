"""What gates go with: a run on a text beside its controls, in sentences, tables and on the command line."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil

import numpy as np
import pytest
from simulated_runs import write_run

import ega_mope as em
from ega_mope.analysis.gate_meaning import words
from ega_mope.analysis.gate_meaning.baseline import baseline_of, unigram_counts
from ega_mope.analysis.gate_meaning.correlates import correlates, shuffled
from ega_mope.analysis.gate_meaning.measure import FEATURES
from ega_mope.analysis.gates import gates, why_no_gates
from ega_mope.cli import run as command
from ega_mope.plots import gate_meaning as plots
from ega_mope.runs import Run, list_runs

TEXT = (
    "Pack my box with five dozen jugs.\nThe quick fox jumps over the lazy dog!\nHow vexingly quick zebras jump;\n"
) * 6


@pytest.fixture(scope="module")
def measured(tiny_runs):
    run = Run(tiny_runs / "ega-causal-learned-s0")
    return correlates(run, TEXT, runs=list_runs([tiny_runs]), draws=40)


def test_controls_stand_beside_and_the_tables_agree(measured):
    rows = words.correlations_table(measured)

    assert measured.baseline_run == "dot-learned-s0" and measured.baseline_note == ""
    counts = rows.groupby(["run", "text", "outcome"]).size().to_dict()
    features = len(measured.text.features)
    assert counts["ega-causal-learned-s0", "as it is", "gate"] == 4 * features
    assert counts["ega-causal-learned-s0", "as it is", "weight change"] == 4 * features
    assert counts["ega-causal-learned-s0", "shuffled", "gate"] == 4 * len(measured.shuffled.features)
    assert counts["dot-learned-s0", "as it is", "attention received"] == 4 * len(measured.baseline.features)
    assert sorted(measured.shuffled.characters) == sorted(TEXT)
    assert measured.shuffled.characters != TEXT

    known = rows.dropna(subset="partial")
    assert ((known["at_once_low"] <= known["partial_low"]) & (known["partial_low"] <= known["partial"])).all()
    assert (
        (known["at_once_high"] >= known["partial_high"]) & (known["partial_high"] >= known["partial"])
    ).all()
    one = rows.query("outcome == 'gate' and text == 'as it is' and layer == 2 and head == 1")
    np.testing.assert_array_equal(one["partial"], measured.text.outcomes["gate"].partial[:, 2])


def test_the_first_token_and_those_with_few_to_compare_with_are_left_out(measured):
    assert measured.text.places.tolist() == list(range(16, len(TEXT)))
    values = dict(zip(measured.text.features, measured.text.values, strict=True))
    table = words.characters_table(measured.text)
    assert table["text"].str.cat() == TEXT[16:]
    np.testing.assert_array_equal(table["rarity"], values["rarity"])


def planted(found, gate_of, shuffled_of=lambda partial: partial):
    """The same answer with planted correlations of the gates, intervals ± 0.1 and widened ± 0.2 on Fisher's scale."""

    def replaced(measured, fill):
        pairs = measured.outcomes["gate"]
        partial = np.zeros_like(pairs.partial)
        fill(partial, measured.features)
        made = dataclasses.replace(
            pairs, partial=partial, partial_error=np.full_like(partial, 0.05), pointwise=2.0, simultaneous=4.0
        )
        return dataclasses.replace(measured, outcomes=measured.outcomes | {"gate": made})

    return dataclasses.replace(
        found, text=replaced(found.text, gate_of), shuffled=replaced(found.shuffled, shuffled_of)
    )


def test_a_head_is_said_to_follow_what_counts_most_and_nothing_where_all_intervals_cover_zero(measured):
    def gate(partial, features):
        partial[features.index("word end"), 0] = 0.41
        partial[features.index("rarity"), 0] = -0.30
        partial[features.index("word start"), 1] = -0.5
        partial[features.index("rarity"), 1] = 0.25
        partial[features.index("surprisal"), 2] = 0.19  # widened, it covers zero

    def control(partial, features):
        partial[features.index("word end"), 0] = 0.4
        partial[features.index("word start"), 1] = -0.1

    found = planted(measured, gate, control)

    said = [v.sentence for v in words.verdicts(found)]
    assert said == [
        "follows word ends, ρ = 0.41 [0.23, 0.56] (also on the shuffled text: 0.40); "
        "next it shuns rarity, ρ = −0.30 [−0.47, −0.11]",
        "shuns word starts, ρ = −0.50 [−0.63, −0.34] (not on the shuffled text: −0.10); "
        "next it follows rarity, ρ = 0.25 [0.06, 0.43]",
        "follows nothing that was measured here: every interval covers zero",
        "follows nothing that was measured here: every interval covers zero",
    ]
    assert words.summary(found) == (
        "What the gates of 4 heads go with most: 1 with word starts, 1 with word ends, "
        "2 with nothing that was measured."
    )
    assert "here the gates do in 2 of 4" in words.rarity_sentence(found)


def test_a_feature_that_few_characters_have_is_named_and_not_measured(tiny_runs):
    text = "pack my box with five dozen jugs " * 10 + "\nThe fox. "
    found = correlates(Run(tiny_runs / "ega-causal-learned-s0"), text, draws=4)

    assert "line end" not in found.text.features
    assert found.text.not_measured["line end"].startswith("only 1 of 324 characters differ in it")
    assert set(found.text.features) | set(found.text.not_measured) == set(FEATURES)
    assert found.baseline is None and "ega-mope train --attention dot" in found.baseline_note
    assert words.rarity_sentence(found).startswith("No baseline beside it")


def test_a_run_that_sees_the_future_says_so_everywhere(tiny_runs):
    found = correlates(Run(tiny_runs / "ega-sequence-learned-s0"), TEXT, draws=4)

    assert found.sees_future is True and "later ones included" in str(found.notice)
    assert "sees the future" in words.notes(found)[0]
    assert words.to_json(found)["sees_future"] is True


def test_progress_ends_at_one_and_an_exception_from_it_stops_the_work(tiny_runs):
    run, seen = Run(tiny_runs / "ega-causal-learned-s0"), []
    runs = list_runs([tiny_runs])
    correlates(run, TEXT, runs=runs, draws=5, progress=lambda share, doing: seen.append((share, doing)))
    assert [share for share, _ in seen] == sorted(share for share, _ in seen)
    assert seen[-1] == (1.0, "the baseline")

    def cancel(share, doing):
        if share > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        correlates(run, TEXT, draws=5, progress=cancel)


def test_the_baseline_shares_all_but_the_gates_and_prefers_position_then_seed(tmp_path, small_text):
    def made(name, **settings):
        run = write_run(tmp_path, name, small_text, **settings)
        (run.path / "model.safetensors").touch()
        return run

    gated = made("gated", attention={"name": "ega"}, position={"name": "mope"})
    assert baseline_of(gated, [gated])[0] is None
    other = made("other-position", seed=0)
    longer = made("longer", position={"name": "mope"}, training={"steps": 12})
    seed = made("other-seed", position={"name": "mope"}, seed=3)
    bare = write_run(tmp_path, "no-weights", small_text, position={"name": "mope"})

    assert baseline_of(gated, [longer, bare])[0] is None
    assert baseline_of(gated, [other, longer]) == (other, "its position is learned, not mope")
    assert baseline_of(gated, [other, seed]) == (seed, "its seed is 3, not 0")
    best = made("best", position={"name": "mope"})
    assert baseline_of(gated, [other, seed, best]) == (best, "")


def test_rarity_is_counted_in_the_training_text_where_it_is_here(tiny_runs, tmp_path, small_text):
    run = Run(tiny_runs / "ega-causal-learned-s0")
    counts, where = unigram_counts(run, "zzz")
    whole = small_text.read_text()
    assert counts["Q"] == whole[: int(0.9 * len(whole))].count("Q") and "training text" in where

    alone = shutil.copytree(run.path, tmp_path / "alone" / run.name)
    counts, where = unigram_counts(Run(alone), "zzz")
    assert counts == {"z": 3} and where.startswith("this text itself (3 characters), since its training text")


def test_a_run_without_gates_or_without_weights_is_refused(tmp_path, small_text, tiny_runs):
    quantities = write_run(tmp_path, "quantities", small_text, attention={"name": "multi_quantity"})
    bare = write_run(tmp_path, "bare", small_text, attention={"name": "ega"})

    assert why_no_gates(quantities) == "attention multi_quantity has no gates"
    assert why_no_gates(bare) == "its weights are not here"
    with pytest.raises(ValueError, match="bare: expected a run with energy gates, got one where its weights"):
        correlates(bare, TEXT)
    with pytest.raises(ValueError, match="text: expected one with at least 10 characters"):
        correlates(Run(tiny_runs / "ega-causal-learned-s0"), "The fox")


def test_the_shuffled_text_leaves_out_what_is_not_read(tiny_runs):
    run = Run(tiny_runs / "ega-causal-learned-s0")
    reading = gates(run, "fox 한 dog", weight_change=False).reading
    assert sorted(shuffled(reading, 0)) == sorted("fox  dog")


def test_figures_show_the_rows_they_are_given(measured):
    rows = words.correlations_table(measured)
    gate = rows.query("outcome == 'gate' and text == 'as it is'")
    grid = plots.correlation_grid(gate, chosen=(1, 0))
    heat, points = grid.data
    assert heat.z.shape == (4, len(measured.text.features))
    np.testing.assert_array_equal(heat.z, measured.text.outcomes["gate"].partial.T)
    low, high = measured.text.outcomes["gate"].partial_at_once()
    np.testing.assert_array_equal(heat.text.T != "", (low > 0) | (high < 0))
    assert list(points.customdata[-1]) == [1, 1]
    assert grid.layout.shapes[0].y0 == 1.5

    one = plots.head_intervals(rows.query("run == 'ega-causal-learned-s0' and layer == 1 and head == 2"))
    named = [trace.name for trace in one.data if trace.name]
    assert named == ["gate", "weight change", "gate, text shuffled"]
    rarity = rows[(rows["feature"] == "rarity") & (rows["text"] == "as it is")]
    assert [trace.name for trace in plots.rarity_by_head(rarity).data] == [
        "gate",
        "weight change",
        "attention received",
    ]


def test_the_commands_answer_in_sentences_csv_and_json(tiny_runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    begin = ["correlates", "ega-causal-learned-s0", "--text-file", str(file), "--draws", "10"]

    assert command([*begin, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["run"], answer["baseline"]["run"]) == ("ega-causal-learned-s0", "dot-learned-s0")
    assert len(answer["heads"]) == 4 and answer["bootstrap"]["draws"] == 10

    assert command([*begin, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == len(answer["correlations"])
    assert float(rows[0]["partial"]) == pytest.approx(answer["correlations"][0]["partial"])

    assert command([*begin, "--characters", "300"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 5 and "measured of the first 300 of" in said.err

    assert command(["spectral", "ega-causal-mope-s0", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["heads"]) == 4

    begin = ["surprise", "ega-sequence-learned-s0", "--text-file", str(file), "--layer", "2", "--head", "1"]
    assert command([*begin, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["rows"]) == len(TEXT) and answer["sees_future"] is True
    assert answer["rows"][0]["surprisal (nats)"] is None and answer["rows"][5]["difference"] is not None
    assert command([*begin, "--at", "9", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert sum(float(row["with the gate"]) for row in rows) == pytest.approx(1, rel=1e-5)
    assert len(rows) == 10
    assert command(begin) == 0
    assert len(capsys.readouterr().out.splitlines()) == 13


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["correlates", "dot-learned-s0", "--text", TEXT], "attention dot has no gates"),
        (["correlates", "ega-causal-learned-s0", "--text", "a", "--csv", "--json"], "got both"),
        (["surprise", "ega-causal-learned-s0", "--text", "The fox", "--at", "9"], "position: expected that"),
        (["surprise", "dot-mope-s0", "--text", "The fox"], "attention dot has no gates"),
        (["spectral", "dot-mope-s0"], "attention dot has no gates"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, said, tiny_runs, monkeypatch, capsys):
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))
    assert command(arguments) == 2
    output = capsys.readouterr()
    assert said in output.err and output.err.count("\n") == 1 and output.out == ""
    assert em.open_run("dot-mope-s0")
