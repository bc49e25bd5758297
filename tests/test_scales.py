"""Learned scales: values, reach, bands, movement, clusters, norm by position, their figures and answers."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.mixture import GaussianMixture

from ega_mope.analysis import clusters as grouping
from ega_mope.analysis import scales as analysis
from ega_mope.analysis.clusters import Clusters, clusters, verdict
from ega_mope.analysis.position_norm import embedding_norm, morlet_norm, position_norm
from ega_mope.cli import run as command
from ega_mope.config import ModelConfig
from ega_mope.model import build_model
from ega_mope.plots import scales as plots
from ega_mope.runs import Run, open_run

ROOT = Path(__file__).resolve().parents[1]
PAIR_KEYS = {
    "pair", "omega", "omega_free", "projected", "sigma", "period", "reach_tokens", "band", "cluster",
    "omega_start", "sigma_start",
}  # fmt: skip


@pytest.fixture
def run(tiny_runs) -> Run:
    return open_run(tiny_runs / "ega-causal-mope-s0")


@pytest.fixture
def without_start(run, tmp_path) -> Run:
    """The same run as a folder that has no record of its training's scales."""
    copy = tmp_path / "no-history"
    shutil.copytree(run.path, copy)
    (copy / "learned.jsonl").unlink()
    return open_run(copy)


def pair(**changes) -> analysis.PairScale:
    values = {"pair": 0, "omega": 1.0, "omega_free": 1.0, "sigma": 5.0, "cluster": 1}
    return analysis.PairScale(**{**values, "omega_start": 1.0, "sigma_start": 5.0, **changes})


# Values


def test_the_weights_and_the_record_at_the_best_step_agree(run):
    best = run.best()
    assert best is not None

    from_weights, recorded = analysis.scales(run), analysis.scales(run, best.step)

    assert from_weights.step == best.step
    assert from_weights.to_json() == recorded.to_json()


def test_the_answer_has_the_contract_s_shape_and_the_record_s_values(run):
    last = run.learned()[-1]
    document = analysis.scales(run, last["step"]).to_json()

    assert set(document) == {"run", "pairs", "clusters", "most_log_move"}
    assert [row["pair"] for row in document["pairs"]] == list(range(8))
    assert all(set(row) == PAIR_KEYS for row in document["pairs"])
    for key in ("omega", "sigma", "omega_free"):
        assert [row[key] for row in document["pairs"]] == last["values"][f"position.{key}"]
    start = run.learned()[0]["values"]
    assert [row["sigma_start"] for row in document["pairs"]] == start["position.sigma"]
    assert document["pairs"][0]["omega_start"] == pytest.approx(1.0)
    assert document["pairs"][0]["sigma_start"] == pytest.approx(5.0)
    assert set(document["clusters"]) == {"chosen", "bic"}
    assert list(document["clusters"]["bic"]) == [str(k) for k in range(1, 8)]


def test_a_pair_counts_as_projected_where_its_frequency_in_use_is_not_the_learned_one(run):
    for one in analysis.scales(run).pairs:
        on_line = one.omega * one.sigma == pytest.approx(5.0, rel=1e-6)
        assert one.projected == (one.omega != one.omega_free)
        assert on_line or not one.projected or one.omega == pytest.approx(0.95 * math.pi)
    assert pair(omega=1.0, omega_free=0.9).projected
    assert not pair().projected


def test_reach_is_where_the_envelope_is_down_to_1_e_and_to_1_percent():
    one = pair(sigma=7.0)

    def envelope(b: float) -> float:
        return math.exp(-(b**2) / (2 * 7.0**2))

    assert envelope(one.reach_1e_tokens) == pytest.approx(1 / math.e)
    assert envelope(one.reach_tokens) == pytest.approx(0.01)
    assert pair(omega=0.5).period == pytest.approx(12.566371)


@pytest.mark.parametrize(
    ("sigma", "name"),
    [
        (0.2, "character"), (1.0, "character"), (5.999, "character"), (6.0, "word"), (19.9, "word"),
        (20.0, "clause"), (54.9, "clause"), (55.0, "sentence"), (1e9, "sentence"),
    ],
)  # fmt: skip
def test_bands_begin_at_their_lower_bound(sigma, name):
    assert analysis.band(sigma) == name


def test_moves_are_logarithms_of_ratios():
    one = pair(omega=2.0, sigma=2.5)

    assert one.moved_omega == pytest.approx(math.log(2))
    assert one.moved_sigma == pytest.approx(-math.log(2))


def test_nothing_moved_further_than_adam_allows(run):
    assert run.config.training is not None
    found = analysis.scales(run, 6)

    assert found.most_log_move == run.config.training.most_log_move(1.0)
    assert found.largest_log_move is not None
    assert found.most_log_move is not None
    assert 0 < found.largest_log_move <= found.most_log_move
    assert f"factor of {math.exp(found.largest_log_move):.3g}" in analysis.movement(found)


def test_the_limit_s_corners_are_the_starts_moved_by_the_most(run):
    found = analysis.scales(run)
    corners = analysis.limit_area(found)
    assert corners is not None
    assert found.most_log_move is not None

    factor = math.exp(found.most_log_move)
    sigmas = [one.sigma_start for one in found.pairs if one.sigma_start]
    assert corners[:, 0].max() == pytest.approx(max(sigmas) * factor)
    assert corners[:, 0].min() == pytest.approx(min(sigmas) / factor)


def test_a_run_without_scales_is_refused_in_one_line_that_names_one_with(tiny_runs, monkeypatch, capsys):
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))

    with pytest.raises(ValueError, match="position learned has no learned scales") as refused:
        analysis.scales(open_run("ega-causal-learned-s1"))

    assert str(refused.value).endswith("-mope-s1")
    assert "\n" not in str(refused.value)
    assert command(["scales", "ega-causal-learned-s1"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_step_without_a_record_is_refused_with_those_that_have_one(run):
    assert analysis.recorded_steps(run) == [0, 3, 6]
    with pytest.raises(ValueError, match=r"expected a recorded step \(0, 3, 6\), got 4"):
        analysis.scales(run, 4)


def test_at_step_0_nothing_has_moved(run):
    assert analysis.scales(run, 0).largest_log_move == 0.0


def test_where_the_start_is_not_recorded_it_is_said_and_not_made_up(without_start):
    found = analysis.scales(without_start)

    assert found.start_clusters is None
    assert all(row["omega_start"] is None for row in found.to_json()["pairs"])
    assert "could not be computed" in analysis.movement(found)
    assert "not recorded" in verdict(found.clusters, None)
    assert analysis.limit_area(found) is None
    table = analysis.pairs_table(found)
    ranges = plots.plane_ranges([table])
    figure = plots.plane(table, bands=analysis.BANDS, limit=None, ranges=ranges)
    assert "start not recorded" in figure.data[-1].text[0]
    assert "start" not in [trace.name for trace in figure.data]


# Clusters


def draw(rng: np.random.Generator, groups: int, layout: str) -> np.ndarray:
    """64 points in groups of sd 0.3 whose neighbouring centres are 1.5 apart, along ω·σ = constant or on a square."""
    if layout == "square":
        centres = 1.5 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[:groups]
    else:
        centres = 1.5 * np.arange(groups)[:, None] * np.array([-1.0, 1.0]) / math.sqrt(2)
    return centres[np.arange(64) % groups] + 0.3 * rng.standard_normal((64, 2))


def right(groups: int, layout: str, draws: int) -> float:
    rng = np.random.default_rng(groups)
    return float(np.mean([clusters(draw(rng, groups, layout)).chosen == groups for _ in range(draws)]))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_number_of_groups_is_found(groups):
    assert right(groups, "line", 20) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "layout"), [(1, "line"), (2, "line"), (4, "line"), (4, "square")])
def test_the_number_of_groups_is_found_in_95_of_100_draws(groups, layout):
    assert right(groups, layout, 200) >= 0.95


@pytest.mark.parametrize("init", ["paper", "multiscale"])
def test_a_smear_along_a_line_is_one_group_and_its_width_of_zero_breaks_nothing(init):
    model = build_model(ModelConfig(position={"name": "mope", "init": init, "admissibility": "free"}))
    start = model.position.learned()
    points = np.log(np.stack([start["omega"].numpy(), start["sigma"].numpy()], axis=1).astype(float))

    found = clusters(points)

    assert found.chosen == 1
    assert all(math.isfinite(value) for value in found.bic.values())


def test_long_groups_are_scikit_learn_s_tied_mixture():
    points = draw(np.random.default_rng(7), 2, "square") @ np.array([[1.0, 0.8], [0.0, 0.3]])
    tied = GaussianMixture(
        2, covariance_type="tied", reg_covar=grouping.SMALLEST_SPREAD**2, n_init=5, tol=1e-6, random_state=0
    )

    expected = tied.fit(points).bic(points)

    assert grouping.fit(points, 2).bic == pytest.approx(expected, abs=0.05)


def test_labels_count_from_1_by_rising_sigma_and_repeat():
    centres = np.tile([[0.0, 3.0], [0.0, 0.0], [0.0, -3.0]], (20, 1))
    points = centres + 0.1 * np.random.default_rng(3).standard_normal((60, 2))

    found = clusters(points)

    assert found.labels == (3, 2, 1) * 20
    assert clusters(points.copy()) == found


def test_a_value_that_is_not_finite_has_no_groups():
    with pytest.raises(ValueError, match="finite"):
        clusters(np.array([[0.0, 1.0], [math.nan, 1.0]]))


def test_the_verdict_stands_beside_the_start_s():
    def counted(groups: int) -> Clusters:
        return Clusters(groups, {groups: 0.0}, ())

    assert "same verdict" in verdict(counted(3), counted(3))
    assert verdict(counted(1), counted(1)).startswith("One group")
    changed = verdict(counted(2), counted(1))
    assert changed.startswith("Two groups")
    assert changed.endswith("The starting values give one group.")


def test_pieces_of_a_bent_line_are_said_to_touch_and_groups_apart_are_not():
    x, noise = np.linspace(-2.2, 2.2, 64), 0.1 * np.random.default_rng(0).standard_normal(64)
    bent = clusters(np.stack([-x, x + 0.2 * x**2 + noise], axis=1))
    apart = clusters(draw(np.random.default_rng(5), 4, "square"))

    assert bent.chosen > 1
    assert bent.touch
    assert "groups touch" in verdict(bent, None)
    assert apart.separation == pytest.approx(1.5 / 0.3, rel=0.25)
    assert "groups touch" not in verdict(apart, None)


# Norm by position


def test_the_norm_is_that_of_the_model_s_own_encoding(run):
    model = run.model("cpu")

    from_scales = morlet_norm(analysis.scales(run), 32)

    torch.testing.assert_close(
        torch.from_numpy(from_scales.norm), torch.from_numpy(position_norm(model).norm), rtol=1e-5, atol=1e-6
    )
    assert embedding_norm(model) == pytest.approx(
        float(np.linalg.norm(model.token_embedding.weight.numpy(), axis=1).mean()), rel=1e-5
    )


def test_the_paper_s_start_says_nothing_after_the_first_tokens():
    config = ModelConfig(context_length=256, n_heads=8, d_model=256, position={"name": "mope"})

    found = position_norm(build_model(config))

    assert found.norm[[0, 5, 10]] == pytest.approx([11.3, 3.5, 0.47], rel=0.02)
    assert found.norm[20] == pytest.approx(0.0007, rel=0.1)
    assert found.norm[found.carried - 1] > 0.01 * found.norm[0] > found.norm[found.carried]
    assert found.share == found.carried / 256
    assert f"{found.carried} of 256 positions" in found.in_words


def test_sinusoids_say_the_same_everywhere_and_rotations_have_no_norm():
    sinusoidal = position_norm(build_model(ModelConfig(position={"name": "sinusoidal", "amplitude": 1.0})))

    assert sinusoidal.norm == pytest.approx(np.full(128, 8.0))
    assert sinusoidal.share == 1.0
    with pytest.raises(ValueError, match="rope, which acts on query_key"):
        position_norm(build_model(ModelConfig(position={"name": "rope"})))


# Tables and figures


def test_the_spectrum_counts_every_pair_once_in_its_bin(run):
    found = analysis.scales(run)
    table = analysis.spectrum_table(found)

    for quantity in ("sigma", "omega"):
        bins = table[table["quantity"] == quantity]
        assert bins["pairs now"].sum() == bins["pairs at start"].sum() == 8
        values = getattr(found, quantity)
        for low, high, count in zip(bins["from"], bins["to"], bins["pairs now"], strict=True):
            assert ((values >= low) & (values < high)).sum() == count


def moved_pairs() -> pd.DataFrame:
    """Two pairs in two clusters, one of which moved."""
    found = analysis.Scales(
        run="x",
        step=1,
        pairs=(
            pair(omega=2.0),
            pair(pair=1, sigma=60.0, sigma_start=60.0, omega=0.1, omega_start=0.1, cluster=2),
        ),
        clusters=Clusters(2, {1: 3.0, 2: 0.0}, (1, 2)),
        start_clusters=Clusters(1, {1: 0.0, 2: 3.0}, (1, 1)),
        most_log_move=1.0,
    )
    return analysis.pairs_table(found)


def test_the_plane_has_every_pair_where_it_is_and_an_arrow_from_its_start():
    table = moved_pairs()
    limit = np.array([[1.0, 1.0], [2.0, 1.0], [2.0, 2.0]])

    figure = plots.plane(table, bands=analysis.BANDS, limit=limit, ranges=plots.plane_ranges([table]))

    traces = {trace.name: trace for trace in figure.data}
    assert list(traces["cluster 1"].x) == [5.0]
    assert list(traces["cluster 1"].y) == [2.0]
    assert list(map(list, traces["cluster 2"].customdata)) == [[1]]
    assert traces["cluster 1"].marker.color != traces["cluster 2"].marker.color
    assert traces["cluster 1"].marker.symbol != traces["cluster 2"].marker.symbol
    assert list(traces["start"].y) == [1.0, 0.1]
    assert traces["move"].y[:2].tolist() == [1.0, 2.0]
    line = traces["ω·σ = 5"]
    assert np.asarray(line.x) * np.asarray(line.y) == pytest.approx([5, 5])
    outline = traces["most it could have moved"]
    assert [*outline.x] == [1.0, 2.0, 2.0, 1.0]
    labels = [annotation.text for annotation in figure.layout.annotations]
    assert labels == ["character", "word", "clause", "sentence"]
    bottom, top = figure.layout.yaxis.range
    assert (math.log10(0.1) - bottom) / (top - bottom) > 0.1, "no point lies on the names of the bands"
    assert "chosen beforehand" in figure.layout.xaxis.title.text


def test_the_hover_says_the_numbers_of_the_answer():
    row = next(moved_pairs().itertuples())

    assert plots.hover_text(row).split("<br>") == [
        "pair 0",
        "ω 2.0000 rad/token",
        "period 3.142 tokens",
        "σ 5.000 tokens",
        "reach 15.174 tokens (1 % left)",
        "band character",
        "cluster 1",
        "moved by ω +0.6931, σ +0.0000 log units",
    ]


def test_the_bic_curve_marks_the_number_taken_now_and_at_the_start():
    table = pd.DataFrame({"clusters": [1, 2, 3], "now": [5.0, 1.0, 2.0], "start": [0.0, 4.0, 9.0]})

    now, start = plots.bic_curve(table, 2, 1, "#0072B2").data

    assert list(now.marker.symbol) == ["circle", "star", "circle"]
    assert list(start.marker.symbol) == ["circle-open", "circle", "circle"]
    assert len(plots.bic_curve(table, 2, None, "#0072B2").data) == 1


def test_the_spectrum_s_outline_returns_to_zero_on_both_sides(run):
    table = analysis.spectrum_table(analysis.scales(run))

    now, start = plots.spectrum(table, "sigma", "#0072B2", (1.0, 10.0)).data

    counts = table.loc[table["quantity"] == "sigma", "pairs now"]
    assert [*now.y] == [0, *counts, counts.iloc[-1], 0]
    assert start.line.dash == "dash"


def test_the_norm_s_figure_has_a_line_and_a_reference_for_each_run(run):
    norm = morlet_norm(analysis.scales(run), 32)

    line, reference = plots.norm_by_position({"a<b>": norm.table()}, {"a<b>": 0.5}, {"a<b>": "#0072B2"}).data

    assert list(line.y) == norm.norm.tolist()
    assert list(reference.y) == [0.5, 0.5]
    assert "<" not in line.name


# The page


def test_the_page_opens_on_the_multiscale_run_beside_the_paper_s_start(tiny_runs, tmp_path, monkeypatch):
    from streamlit.testing.v1 import AppTest

    own = tmp_path / "runs"
    monkeypatch.setenv("EGA_MOPE_RUNS", str(own))
    monkeypatch.setattr("ega_mope.runs.shipped_folder", lambda: tmp_path / "none-shipped")
    for name in ("dot-mope-s1", "ega-causal-mope-s0", "ega-causal-learned-s0"):
        shutil.copytree(tiny_runs / name, own / name)
    wide = shutil.copytree(tiny_runs / "ega-causal-mope-s0", own / "ega-causal-wide-s0")
    document = json.loads((wide / "config.json").read_text())
    document["model"]["position"]["init"] = "multiscale"
    (wide / "config.json").write_text(json.dumps(document))

    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=180)
    at = at.switch_page("pages/Learned_scales.py").run()

    assert not at.exception
    assert [box.value for box in at.selectbox] == ["ega-causal-wide-s0", "ega-causal-mope-s0"]
    assert any("same verdict" in text.value for text in at.markdown)


# Command line


def test_the_command_prints_the_same_as_the_function(run, capsys):
    assert command(["scales", str(run.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == analysis.scales(run).to_json()

    assert command(["scales", str(run.path), "--step", "3", "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9
    sigma = lines[0].split(",").index("sigma")
    assert float(lines[1].split(",")[sigma]) == run.learned()[1]["values"]["position.sigma"][0]

    assert command(["scales", str(run.path)]) == 0
    said = capsys.readouterr()
    assert "reach_1e_tokens" in said.out
    assert "One group" in said.err
    assert "Position is carried at" in said.err
    assert command(["scales", str(run.path), "--json", "--csv"]) == 2
