"""How far back heads look: heads whose range is known, the shuffled control, the fit of a kernel, the command."""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ega_mope.analysis.correlation import Correlation, correlate, profile_by_distance
from ega_mope.analysis.kernels import kernels
from ega_mope.analysis.locality import (
    INNER,
    HeadRange,
    even_distance,
    head_ranges,
    kernel_fit,
    locality,
    locality_in_words,
    ranges_table,
)
from ega_mope.cli import run as command
from ega_mope.plots import locality as plots
from ega_mope.runs import open_run

TEXT = "The quick brown fox jumps over the lazy dog.\nPack my box with five dozen liquor jugs!\n"


@pytest.fixture
def run(tiny_runs):
    return open_run(tiny_runs / "dot-mope-s0")


def attending(distances: list[list[int]], time: int = 16) -> Correlation:
    """Heads of one layer; head h attends in window w at exactly distances[w][h], or to the first token."""
    windows, heads = len(distances), len(distances[0])
    profiles = np.zeros((windows, 1, heads, time))
    for window, row in enumerate(distances):
        for head, distance in enumerate(row):
            weight = np.zeros((time, time))
            weight[np.arange(time), np.maximum(np.arange(time) - distance, 0)] = 1.0
            profiles[window, 0, head] = profile_by_distance(weight[time // 2 :])
    nothing = np.zeros((1, heads, time, 1))
    return Correlation(
        tokens=("x",) * time, query=nothing, key=nothing, weight=np.zeros((1, heads, time, time)),
        scores=np.zeros_like(profiles), attentions=profiles, profiles=profiles,
        tokens_read=windows * time, tokens_in_all=windows * time,
    )  # fmt: skip


def head_range(**changes) -> HeadRange:
    values = {
        "layer": 1, "head": 1, "mean_distance": 2.0, "low": 1.5, "high": 2.5, "half_within": 1, "even_distance": 10.0,
        "shuffled_distance": 9.0, "shuffled_low": 8.0, "shuffled_high": 10.0,
    }  # fmt: skip
    return HeadRange(**{**values, **changes})


def test_a_profile_is_where_the_weight_of_the_last_queries_goes():
    weight = np.random.default_rng(0).dirichlet(np.ones(6), size=6)
    weight = np.tril(weight) / np.tril(weight).sum(axis=1, keepdims=True)

    profile = profile_by_distance(weight[3:])

    for distance in range(6):
        terms = [weight[i, i - distance] if i >= distance else 0.0 for i in (3, 4, 5)]
        assert profile[distance] == pytest.approx(np.mean(terms))
    assert profile.sum() == pytest.approx(1.0)


def test_a_head_that_looks_d_tokens_back_has_range_d_with_its_interval_over_windows():
    found = head_ranges(attending([[1, 3], [2, 3], [6, 3]]), attending([[5, 3], [5, 3], [5, 3]]))

    first, second = found
    expected = stats.ttest_1samp([1.0, 2.0, 6.0], 0).confidence_interval()
    assert first.mean_distance == pytest.approx(3.0)
    assert (first.low, first.high) == pytest.approx((expected.low, expected.high))
    assert first.shuffled_distance == pytest.approx(5.0)
    assert (second.mean_distance, second.half_within, second.low) == (
        pytest.approx(3.0),
        3,
        pytest.approx(3.0),
    )


def test_even_attention_s_distance_is_what_even_attention_has():
    time = 10
    even = np.tril(np.ones((time, time))) / np.arange(1, time + 1)[:, None]
    profile = profile_by_distance(even[time // 2 :])
    assert even_distance(time) == pytest.approx(profile @ np.arange(time))


def test_verdicts_need_the_whole_interval_and_the_control():
    assert head_range().verdict == "local by content"
    assert head_range(shuffled_distance=2.0, shuffled_high=3.0).verdict == "local by place"
    assert head_range(shuffled_distance=4.0, shuffled_high=5.5).verdict == "local by content"
    assert head_range(mean_distance=4.0, high=5.1).verdict == "between"
    assert head_range(mean_distance=11.0, low=9.9, high=12.0).verdict == "between"
    assert head_range(mean_distance=11.0, low=10.1, high=12.0).verdict == "far"
    assert head_range(low=None, high=None).verdict == "local by content"
    said = locality_in_words([head_range(), head_range(mean_distance=11.0, low=10.1, high=12.0)])
    assert said.startswith("1 of 2 heads are local")
    assert "0 on shuffled text too, 1 on this text alone" in said
    assert "65% as far" in said
    assert "no intervals" in locality_in_words([head_range(low=None, high=None)])


def test_the_control_reads_the_same_tokens_in_another_order(run):
    model = run.model("cpu")
    text = correlate(model, run.tokenizer, TEXT)
    shuffled = correlate(model, run.tokenizer, TEXT, shuffled=True)
    again = correlate(model, run.tokenizer, TEXT, shuffled=True)

    whole = correlate(model, run.tokenizer, TEXT[:32], shuffled=True)
    assert sorted(whole.tokens) == sorted(TEXT[:32])
    assert "".join(whole.tokens) != TEXT[:32]
    assert (shuffled.windows, shuffled.tokens_read) == (text.windows, text.tokens_read)
    assert (again.scores == shuffled.scores).all()
    assert np.abs(shuffled.profiles - text.profiles).max() > 1e-6
    with pytest.raises(ValueError, match="the same text shuffled, got 64 and 32 tokens"):
        head_ranges(text, whole)


def test_a_score_made_of_the_kernel_is_explained_whole_and_noise_is_not():
    lags = np.arange(200)
    kernel = np.exp(-(lags**2) / 400) * np.cos(0.4 * lags)

    made = kernel_fit(0.3 - 2.5 * kernel, kernel)
    noise = kernel_fit(np.random.default_rng(0).standard_normal(200), kernel)

    assert (made.offset, made.slope, made.r_squared) == pytest.approx((0.3, -2.5, 1.0))
    assert noise.r_squared is not None
    assert noise.r_squared < 0.05
    assert kernel_fit(np.full(200, 2.0), kernel).r_squared is None
    weighted = np.polyfit(kernel, lags + 0.0, 1, w=np.sqrt(np.arange(200, 0, -1)))
    assert kernel_fit(lags + 0.0, kernel).slope == pytest.approx(weighted[0])


def test_a_run_s_locality_is_that_of_its_own_heads_beside_its_own_kernel(run, tiny_runs):
    found = locality(run, TEXT, device="cpu")

    assert found.kernel is not None
    assert found.kernel.tolist() == kernels(run).mean.tolist()
    table = found.table()
    assert table["mean_distance"].to_numpy() == pytest.approx(found.text.distance.ravel())
    by_distance = found.by_distance()
    one = by_distance[(by_distance["layer"] == 2) & (by_distance["head"] == 1)]
    values = found.text.scores[:, 1, 0]
    assert one["score"].to_numpy() == pytest.approx(values.mean(axis=0))
    assert one["score low"].to_numpy() == pytest.approx(np.quantile(values, INNER[0], axis=0))
    assert one["attention shuffled"].to_numpy() == pytest.approx(found.shuffled.attention[1, 0])
    plain = locality(open_run(tiny_runs / "dot-learned-s0"), TEXT, device="cpu")
    assert plain.kernel is None
    assert plain.table()["kernel_r_squared"].isna().all()
    assert plain.to_json()["heads"][0]["kernel_r_squared"] is None


def test_the_figures_show_ranges_controls_and_references(run):
    found = locality(run, TEXT, device="cpu")
    table = ranges_table([head_range(), dataclasses.replace(head_range(), head=2, mean_distance=4.0)])

    shuffled, text = plots.head_ranges(table, 0.5).data

    assert list(text.x) == [2.0, 4.0]
    assert next(iter(text.error_x.array)) == pytest.approx(0.5)
    assert list(shuffled.x) == [9.0, 9.0]
    lines = [shape.x0 for shape in plots.head_ranges(table, 0.5).layout.shapes]
    assert lines == [10.0, 5.0]
    one = found.by_distance().query("layer == 1 and head == 2")
    score = {trace.name: trace for trace in plots.one_head(one, "score", "S").data}
    assert set(score) == {"80 % of windows", "this text", "shuffled text", "mean kernel, fitted"}
    assert list(score["this text"].y) == one["score"].tolist()
    attention = {trace.name for trace in plots.one_head(one, "attention", "weight").data}
    assert "even attention" in attention
    assert "mean kernel, fitted" not in attention


def test_the_command_prints_the_same_as_the_function(run, tiny_runs, capsys):
    both = [str(run.path), str(tiny_runs / "ega-sequence-learned-s0")]
    assert command(["correlation", *both, "--text", TEXT, "--json", "--device", "cpu"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document[0] == locality(run, TEXT, device="cpu").to_json()
    assert [one["sees_future"] for one in document] == [False, True]

    assert command(["correlation", *both, "--text", TEXT, "--csv"]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert table["run"].value_counts().to_dict() == {run.name: 4, "ega-sequence-learned-s0": 4}
    assert command(["correlation", both[0], "--text", TEXT, "--csv", "--by-distance"]) == 0
    assert len(pd.read_csv(io.StringIO(capsys.readouterr().out))) == 4 * 32

    assert command(["correlation", *both, "--text", TEXT]) == 0
    said = capsys.readouterr()
    assert "ega-sequence-learned-s0 (sees the future): " in said.err
    for wrong in ([both[0]], [both[0], "--text", TEXT, "--by-distance"], ["--text", TEXT]):
        assert command(["correlation", *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1
