"""Are groups stable, how scales moved through training, and the record in place of weights."""

from __future__ import annotations

import io
import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score
from test_scales import draw

from ega_mope.analysis.clusters import all_fits, clusters
from ega_mope.analysis.learned import learned_at_best
from ega_mope.analysis.scales import scales
from ega_mope.analysis.stability import REFITS, Stability, groups_table, stability, wins_table
from ega_mope.analysis.trajectories import trajectories
from ega_mope.cli import run as command
from ega_mope.plots import trajectories as plots
from ega_mope.runs import open_run


@pytest.fixture
def run(tiny_runs):
    return open_run(tiny_runs / "ega-causal-mope-s0")


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_true_groups_win_most_draws_and_come_back_whole(groups):
    points = draw(np.random.default_rng(groups), groups, "line")

    found = stability(points, clusters(points), refits=20)

    assert max(found.wins, key=found.wins.__getitem__) == groups
    assert sum(found.wins.values()) == 20
    assert found.holds
    if groups > 1:
        assert found.agreement is not None
        assert found.agreement > 0.9
        assert min(found.jaccard) > 0.9
        assert len(found.jaccard) == groups
    else:
        assert (found.agreement, found.jaccard) == (None, ())


def test_groups_that_are_not_there_do_not_come_back():
    """One smear cut into three by force: its borders move with every draw."""
    points = draw(np.random.default_rng(1), 1, "line")
    cut = clusters(points)
    labels = tuple((all_fits(points)[3].labels + 1).tolist())
    forced = type(cut)(3, cut.bic, labels)

    found = stability(points, forced, refits=20)

    assert found.wins == {1: 20}
    assert not found.holds
    assert min(found.jaccard) < 0.75
    assert found.in_words.startswith("Not stable. On 20 bootstrap draws: one group 20×.")


def test_a_draw_compares_the_pairs_it_drew_each_once():
    points = draw(np.random.default_rng(4), 1, "line")
    one = clusters(points)
    whole = type(one)(2, one.bic, tuple((all_fits(points)[2].labels + 1).tolist()))
    drawn = np.unique(np.random.default_rng(0).integers(0, 64, 64))
    again = all_fits(points[drawn])[2].labels
    labels = np.array(whole.labels)[drawn]

    found = stability(points, whole, refits=1)

    assert found.agreement == pytest.approx(adjusted_rand_score(labels, again))
    matches = []
    for group in (1, 2):
        mine = set(drawn[labels == group])
        matches.append(
            max(len(mine & other) / len(mine | other) for other in (set(drawn[again == k]) for k in (0, 1)))
        )
    assert found.jaccard == pytest.approx(matches)
    assert min(matches) < 1
    assert stability(points, whole, refits=1) == found


def test_progress_counts_the_draws():
    seen: list[tuple[int, int]] = []
    points = draw(np.random.default_rng(4), 2, "line")
    stability(points, clusters(points), refits=3, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_tables_count_wins_and_name_groups():
    now = Stability(2, 10, {2: 6, 3: 4}, 0.8, (0.9, 0.55))
    start = Stability(1, 10, {1: 10}, None, ())

    won = wins_table(now, start)

    assert won["now"].tolist() == [0, 6, 4]
    assert won["start"].tolist() == [10, 0, 0]
    assert wins_table(now, None)["start"].isna().all()
    found = type(clusters(np.arange(8.0).reshape(4, 2)))(2, {}, (1, 1, 1, 2))
    assert groups_table(found, now).to_numpy().tolist() == [[1, 3, 0.9], [2, 1, 0.55]]
    assert "group 2, comes back with a Jaccard similarity of 0.55 (not to be trusted)" in now.in_words
    bars, rings = plots.wins(won, 2, "#0072B2").data
    assert list(bars.y) == [0, 6, 4]
    assert list(rings.y) == [10, 0, 0]
    assert bars.marker.color[1] != bars.marker.color[0]


# Through training


def test_moves_are_against_the_recorded_start_and_the_rates_so_far(run):
    found = trajectories(run)
    training = run.config.training
    assert training is not None

    assert found.steps == (0, 3, 6)
    values = [record["values"] for record in run.learned()]
    assert found.moves("sigma")[2] == pytest.approx(
        np.log(np.array(values[2]["position.sigma"]) / values[0]["position.sigma"])
    )
    rates = [training.learning_rate_at(step) for step in range(6)]
    largest = 0.1 / math.sqrt(0.05 * (1 - 0.81 / 0.95))
    assert found.most is not None
    assert found.most == pytest.approx([0.0, largest * sum(rates[:3]), largest * sum(rates)])
    assert found.most[-1] == pytest.approx(training.most_log_move(1.0))
    by_step = found.by_step()
    moved = np.abs(np.concatenate([found.moves("omega"), found.moves("sigma")], axis=1))
    assert by_step["largest"].tolist() == moved.max(axis=1).tolist()
    assert (by_step["largest"] <= by_step["most"] + 1e-9).all()
    table = found.table()
    assert len(table) == 3 * 8
    assert table.query("step == 6 and pair == 5")["sigma"].item() == values[2]["position.sigma"][5]


def test_without_records_there_are_no_trajectories(run, tiny_runs, tmp_path):
    with pytest.raises(ValueError, match="from step 0 on, got 0"):
        trajectories(open_run(tiny_runs / "dot-learned-s0"))
    copy = shutil.copytree(run.path, tmp_path / "cut")
    lines = (copy / "learned.jsonl").read_text().splitlines(keepends=True)
    (copy / "learned.jsonl").write_text("".join(lines[1:]))
    with pytest.raises(ValueError, match="from step 0 on, got 2"):
        trajectories(open_run(copy))


def test_the_figures_draw_every_pair_and_the_bound(run):
    found = trajectories(run)
    clusters_of = {pair: 1 + pair % 2 for pair in range(8)}

    lines = plots.ways(found.table(), "sigma", clusters_of).data

    assert [line.name for line in lines] == ["cluster 1", "cluster 2"]
    drawn: dict[int, list[float]] = {}
    for line in lines:
        for pair, y in zip(line.customdata, line.y, strict=True):
            drawn.setdefault(int(pair), []).append(float(y))
    assert sorted(drawn) == list(range(8))
    for pair, y in drawn.items():
        # The empty point at its end keeps a pair's line from running on into the next.
        assert y[:-1] == found.sigma[:, pair].tolist() and np.isnan(y[-1])
    moves = {trace.name: trace for trace in plots.moves_by_step(found.by_step(), "#0072B2").data}
    assert list(moves["most possible"].x) == [3, 6]
    assert list(moves["largest"].y) == found.by_step()["largest"].tolist()[1:]
    unbounded = found.by_step().assign(most=np.nan)
    assert "most possible" not in [trace.name for trace in plots.moves_by_step(unbounded, "#0072B2").data]


# Without weights


def test_scales_of_a_run_without_weights_are_those_on_record(run, tmp_path):
    bare = shutil.copytree(run.path, tmp_path / run.name)
    (bare / "model.safetensors").unlink()

    assert scales(open_run(bare)).to_json() == scales(run).to_json()
    recorded = learned_at_best(open_run(bare))
    assert set(recorded) == set(learned_at_best(run))
    (bare / "learned.jsonl").unlink()
    with pytest.raises(ValueError, match="got neither"):
        scales(open_run(bare))


# Command line


def test_the_command_says_how_stable_and_gives_the_way_as_csv(run, capsys):
    assert command(["scales", str(run.path), "--refits", "5"]) == 0
    assert "On 5 bootstrap draws: one group" in capsys.readouterr().err
    assert command(["scales", str(run.path), "--refits", "5", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    found = scales(run)
    assert answer["stability"] == stability(found.points, found.clusters, 5).to_json()
    assert REFITS == 40

    assert command(["scales", str(run.path), "--csv", "--trajectories"]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert table["step"].tolist() == [step for step in (0, 3, 6) for _ in range(8)]
    assert command(["scales", str(run.path), "--trajectories"]) == 2
