"""Correlation: kernels against sums, query-key correlation against loops, their figures and answers."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from ega_mope.analysis import kernels as analysis
from ega_mope.analysis.correlation import (
    MOST_WINDOWS,
    correlate,
    even_attention,
    lag_correlation,
    score_by_distance,
)
from ega_mope.analysis.scales import scales
from ega_mope.cli import run as command
from ega_mope.plots import kernels as plots
from ega_mope.positions.mope import morlet_table
from ega_mope.runs import open_run

TEXT = "The quick brown fox jumps over the lazy dog.\nPack my box with five dozen liquor jugs!\n"


@pytest.fixture
def run(tiny_runs):
    return open_run(tiny_runs / "ega-causal-mope-s0")


@pytest.fixture
def measured(run):
    return correlate(run.model("cpu"), run.tokenizer, TEXT)


# Kernels


def test_the_kernel_is_the_autocorrelation_of_the_pair_over_all_positions():
    omega, sigma = np.array([0.3, 1.0, 2.5]), np.array([16.0, 5.0, 2.0])
    lags = np.arange(12)
    b = torch.arange(-400, 401)
    for i in range(3):
        # exp(−b²/2σ²) with b of either sign is what `morlet_table` computes, so the sum needs no formula of ours.
        pair = [
            morlet_table(b + int(tau), *map(torch.from_numpy, (omega[i : i + 1], sigma[i : i + 1])))
            for tau in lags
        ]
        products = np.array([float((pair[0] * shifted).sum()) for shifted in pair])

        expected = products / (sigma[i] * math.sqrt(math.pi))

        assert analysis.kernel(omega, sigma, lags)[i] == pytest.approx(expected, abs=1e-6)


def test_the_limits_are_a_cosine_and_a_window():
    lags = np.arange(20)

    wide = analysis.kernel(np.array([0.7]), np.array([math.inf]), lags)[0]
    still = analysis.kernel(np.array([0.0]), np.array([5.0]), lags)[0]

    assert wide == pytest.approx(np.cos(0.7 * lags))
    assert still == pytest.approx(np.exp(-(lags**2) / 100))


def test_the_answer_has_the_contract_s_shape(run):
    document = analysis.kernels(run, 9).to_json()

    assert set(document) == {"run", "lags", "pairs", "mean"}
    assert document["lags"] == list(range(10))
    assert np.array(document["pairs"]).shape == (8, 10)
    assert document["mean"] == pytest.approx(np.mean(document["pairs"], axis=0))
    assert document["mean"][0] == 1.0
    assert len(analysis.kernels(run).lags) == 32


def test_a_run_without_scales_has_no_kernels(tiny_runs):
    with pytest.raises(ValueError, match="no learned scales"):
        analysis.kernels(open_run(tiny_runs / "dot-learned-s0"))
    with pytest.raises(ValueError, match="0 or more"):
        analysis.kernels(open_run(tiny_runs / "dot-mope-s0"), -1)


def test_the_gram_matrix_is_the_product_of_the_model_s_own_encodings(run):
    encoding = run.model("cpu").position.encode(torch.arange(32)).double().numpy()

    found = analysis.gram(scales(run), 32)

    assert found == pytest.approx(encoding @ encoding.T, abs=1e-5)
    assert found[0, 0] == pytest.approx(8.0)


def test_the_table_has_the_means_of_all_and_of_the_chosen_and_their_limits(run):
    found = scales(run)
    every = analysis.kernels(run, 5)

    table = analysis.kernels_table(found, 5, [1, 6])

    assert table["pair 6"].tolist() == every.pairs[6].tolist()
    assert table["mean of chosen"].to_numpy() == pytest.approx(every.pairs[[1, 6]].mean(axis=0))
    assert table["mean of all"].to_numpy() == pytest.approx(every.mean)
    lags = np.arange(6)[:, None]
    assert table["σ → ∞"].to_numpy() == pytest.approx(np.cos(found.omega[[1, 6]] * lags).mean(axis=1))
    assert table["ω = 0"].to_numpy() == pytest.approx(
        np.exp(-(lags**2) / (4 * found.sigma[[1, 6]] ** 2)).mean(axis=1)
    )


def test_a_cluster_s_kernel_is_the_mean_of_its_pairs(run):
    found = scales(run)
    two = dataclasses.replace(
        found, clusters=dataclasses.replace(found.clusters, chosen=2, labels=(1, 1, 1, 2, 2, 2, 2, 2))
    )

    table = analysis.cluster_table(two, 5)

    assert table["cluster 2"].to_numpy() == pytest.approx(analysis.kernels(run, 5).pairs[3:].mean(axis=0))


def test_pairs_across_run_from_the_narrowest_to_the_widest(run):
    sigma = scales(run).sigma

    chosen = analysis.across(scales(run), 3)

    assert chosen[0] == sigma.argmin()
    assert chosen[-1] == sigma.argmax()
    assert len(set(chosen)) == 3


# On a text


def test_lags_and_distances_against_loops():
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 7, 4))

    pair = lag_correlation(query, key, 5, 3)
    assert pair == pytest.approx([query[5] @ key[3 - lag] / 2 for lag in range(4)])

    score = score_by_distance(query, key)
    for distance in range(7):
        terms = [query[i] @ key[i - distance] / 2 for i in range(distance, 7)]
        assert score[distance] == pytest.approx(sum(terms) / len(terms))


@pytest.mark.parametrize("position", ["mope", "learned"])
def test_queries_and_keys_are_those_that_the_model_scores(tiny_runs, position):
    run = open_run(tiny_runs / f"dot-{position}-s0")
    found = correlate(run.model("cpu"), run.tokenizer, TEXT)

    scores = found.query @ np.swapaxes(found.key, -1, -2) / math.sqrt(8)
    scores[..., ~np.tri(32, dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))

    assert found.weight == pytest.approx(weights / weights.sum(axis=-1, keepdims=True), abs=1e-6)


def test_queries_and_keys_of_rotated_positions_are_the_rotated_ones():
    from ega_mope.config import ModelConfig
    from ega_mope.model import build_model

    model = build_model(
        ModelConfig(
            vocabulary_size=5, context_length=8, n_layers=1, n_heads=1, d_model=4, position={"name": "rope"}
        )
    ).eval()
    _, trace = model.trace(torch.full((1, 8), 3), ("query", "key"))

    # One repeated token: rotated scores depend on the distance alone, and they do change with it.
    scores = (trace["query"] @ trace["key"].transpose(-1, -2))[0, 0, 0]
    for distance in range(3):
        diagonal = scores.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert not torch.isclose(scores[4, 4], scores[4, 3], rtol=1e-3, atol=0)


def test_means_run_over_all_whole_windows_and_the_rest_is_counted(run, measured):
    model, ids = run.model("cpu"), run.tokenizer.read(TEXT).ids
    assert (measured.windows, measured.tokens_read, measured.tokens_in_all) == (2, 64, len(ids))
    assert "".join(measured.tokens) == TEXT[:32]

    _, trace = model.trace(torch.from_numpy(ids[:64].reshape(2, 32)), ("weight", "query", "key"))
    weight = trace["weight"].double().numpy()
    layer, head = 1, 0
    for distance in (0, 3, 31):
        terms = [weight[w, layer, head, i, i - distance] for w in range(2) for i in range(distance, 32)]
        assert measured.attention[layer, head, distance] == pytest.approx(np.mean(terms))
    back = [
        sum(weight[w, layer, head, i, j] * (i - j) for j in range(i + 1))
        for w in range(2)
        for i in range(16, 32)
    ]
    assert measured.distance[layer, head] == pytest.approx(np.mean(back))
    query, key = (trace[kind].double().numpy()[:, layer, head] for kind in ("query", "key"))
    terms = [query[w, i] @ key[w, i - 3] / math.sqrt(8) for w in range(2) for i in range(3, 32)]
    assert measured.score[layer, head, 3] == pytest.approx(np.mean(terms))


def test_a_long_text_is_read_up_to_a_number_of_windows_that_is_said(run):
    found = correlate(run.model("cpu"), run.tokenizer, TEXT * 40)

    assert found.windows == MOST_WINDOWS
    assert found.tokens_read == MOST_WINDOWS * 32 < found.tokens_in_all


def test_a_short_text_is_one_window_and_an_unreadable_one_an_instruction(run):
    found = correlate(run.model("cpu"), run.tokenizer, "The fox")

    assert found.weight.shape[-1] == 7
    assert found.windows == 1
    with pytest.raises(ValueError, match="at least 2 characters that the run reads, got 1"):
        correlate(run.model("cpu"), run.tokenizer, "T안녕")


def test_even_attention_is_the_mean_of_one_over_what_a_query_sees():
    assert even_attention(3) == pytest.approx([(1 + 1 / 2 + 1 / 3) / 3, (1 / 2 + 1 / 3) / 2, 1 / 3])


def test_a_pair_s_table_names_the_key_at_each_lag(measured):
    table = measured.at_lags(0, 1, 10, 4)

    assert table["lag"].tolist() == [0, 1, 2, 3, 4]
    assert table["token"].tolist() == list(TEXT[4::-1])
    expected = measured.query[0, 1, 10] @ measured.key[0, 1, 4] / math.sqrt(8)
    assert table["correlation"].iloc[0] == pytest.approx(expected)


# Figures


def test_chosen_pairs_their_mean_and_limits_are_lines_by_lag(run):
    table = analysis.kernels_table(scales(run), 9, [2, 5])

    traces = {trace.name: trace for trace in plots.kernel_lines(table, ["ω = 0"]).data}

    assert set(traces) == {"pair 2", "pair 5", "mean of all", "mean of chosen", "ω = 0"}
    assert list(traces["pair 5"].y) == table["pair 5"].tolist()
    assert traces["ω = 0"].line.dash == "dash"
    many = plots.kernel_lines(analysis.kernels_table(scales(run), 9, range(8)), [])
    assert [trace.name for trace in many.data if trace.showlegend] == ["mean of all", "mean of chosen"]


def test_a_cluster_s_line_is_its_column(run):
    table = analysis.cluster_table(scales(run), 9)

    (line,) = plots.cluster_lines(table).data

    assert list(line.y) == table["cluster 1"].tolist()


def test_the_gram_figure_puts_zero_in_the_page_s_colour():
    values = np.array([[2.0, -1.0], [-1.0, 0.5]])

    heat = plots.gram_matrix(values, dark=True).data[0]

    assert (heat.zmin, heat.zmax) == (-2.0, 2.0)
    assert heat.colorscale[1] == (0.5, "#12171d")
    assert heat.z.tolist() == values.tolist()


def test_the_grid_has_a_point_to_click_for_each_pair_and_shows_text_as_text():
    weight = np.tril(np.full((3, 3), 0.25))

    figure = plots.pair_grid(weight, ["<", " ", "b"], (2, 1))

    heat, points = figure.data
    assert list(map(list, points.customdata)) == [[0, 0], [1, 0], [1, 1], [2, 0], [2, 1], [2, 2]]
    assert math.isnan(heat.z[0][1])
    assert heat.z[1][0] == pytest.approx(math.log10(0.25))
    assert points.text[1] == "query 1 ␣<br>key 0 &lt;<br>weight 0.2500"
    assert list(figure.layout.xaxis.ticktext) == ["&lt;", "␣", "b"]
    frame = figure.layout.shapes[0]
    assert (frame.x0, frame.y0) == (0.5, 1.5)


def test_lag_zero_stands_apart(measured):
    table = measured.at_lags(0, 0, 10, 4)

    markers = [trace for trace in plots.lag_stems(table).data if trace.mode == "markers"]

    assert list(markers[0].x) == [0]
    assert list(markers[1].x) == [1, 2, 3, 4]
    assert markers[0].marker.color != markers[1].marker.color
    assert list(markers[1].y) == table["correlation"].tolist()[1:]


def test_every_head_has_a_line_by_distance_and_shares_a_reference(measured):
    table = measured.by_distance(1)

    score = plots.by_distance(table, "score", "S(δ)")
    attention = plots.by_distance(table, "attention", "weight", reference="even attention")

    assert [trace.name for trace in score.data] == ["head 1", "head 2"]
    assert list(score.data[1].y) == measured.score[1, 1].tolist()
    assert list(attention.data[-1].y) == even_attention(32).tolist()
    assert attention.layout.yaxis.type == "log"
    assert score.data[0].customdata.tolist() == (2 * np.arange(32, 0, -1)).tolist()


# Command line


def test_the_command_prints_the_same_as_the_function(run, capsys):
    assert command(["kernels", str(run.path), "--lags", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == analysis.kernels(run, 3).to_json()

    assert command(["kernels", str(run.path), "--lags", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "ω = 0" in lines[0]
