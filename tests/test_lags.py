"""Learned lags of convolutional attention: shares, start, what cannot be shown, figure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from simulated_runs import write_run

from ega_mope.analysis.lags import lag_table, lags_in_words, why_no_lags
from ega_mope.attention.conv import ConvolutionalAttention
from ega_mope.config import ModelConfig
from ega_mope.model import build_model
from ega_mope.plots.lags import lag_shares
from ega_mope.runs import Run, RunWriter

CONV = {"name": "conv", "lags": 2}


@pytest.fixture
def run(tmp_path, small_text) -> Run:
    """A run without weights, best at step 3, whose record says what its one layer's two heads hear."""
    losses = ((0, 4.0), (3, 2.0), (6, 3.0))
    made = write_run(tmp_path, "conv", small_text, attention=CONV, validation=losses)
    writer = RunWriter(made.path)
    start, best, last = [[0.9, 0.05, 0.05]] * 2, [[0.5, 0.3, 0.2], [0.97, 0.02, 0.01]], [[1.0, 0.0, 0.0]] * 2
    for step, heads in ((0, start), (3, best), (6, last)):
        writer.append("learned.jsonl", {"step": step, "values": {"attention.lag_weight": [heads]}})
    writer.close()
    return made


def test_shares_are_those_recorded_at_the_best_step_beside_the_start(run):
    table = lag_table(run)

    assert table["lag"].tolist() == [0, 1, 2, 0, 1, 2]
    assert table["share"].tolist() == [0.5, 0.3, 0.2, 0.97, 0.02, 0.01]
    assert table["start"].tolist() == [0.9, 0.05, 0.05] * 2
    said = lags_in_words(table)
    assert "26.5% of the weight" in said
    assert "(10.0% at the start)" in said
    assert "layer 1, head 1: 50.0%" in said


def test_shares_of_weights_are_those_of_the_model(run):
    from safetensors.torch import save_file

    model = build_model(run.config.model, seed=1)
    attention = model.attentions[0]
    assert isinstance(attention, ConvolutionalAttention)
    attention.lag_logit.data.copy_(torch.tensor([1.0, 0.5, 0.0, 2.0, 0.0, 1.0]))
    save_file(
        {name: value.contiguous() for name, value in model.state_dict().items()},
        run.path / "model.safetensors",
    )
    shares = lag_table(run)["share"].to_numpy().reshape(2, 3)

    assert shares == pytest.approx(attention.lag_weight().detach().numpy())
    assert shares.sum(axis=1) == pytest.approx([1, 1])


def test_what_has_no_lags_says_why(tmp_path, small_text):
    plain = write_run(tmp_path, "dot", small_text)
    assert why_no_lags(plain) == "attention dot has no learned lags (conv has)"
    with pytest.raises(ValueError, match="expected a run with attention conv"):
        lag_table(plain)
    none = write_run(tmp_path, "lag-0", small_text, attention={"name": "conv", "lags": 0})
    assert "lag 0 alone" in str(why_no_lags(none))
    lost = write_run(tmp_path, "nothing-kept", small_text, attention=CONV)
    with pytest.raises(ValueError, match="got neither"):
        lag_table(lost)


def test_the_start_on_record_is_the_mechanism_s_own(run):
    start = build_model(ModelConfig(n_layers=1, attention={"name": "conv", "lags": 4})).learned()
    assert float(start["attention.lag_weight"][0, 0, 0]) == pytest.approx(0.93, abs=0.005)


def test_a_line_a_head_with_rings_at_the_start_and_the_limit_marked():
    table = pd.DataFrame(
        {
            "head": [1, 1, 2, 2],
            "lag": [0, 1, 0, 1],
            "share": [0.6, 0.4, 0.7, 0.3],
            "start": [0.9, 0.1, 0.9, 0.1],
        }
    )

    traces = {trace.name: trace for trace in lag_shares(table).data}

    assert set(traces) == {"head 1", "head 2", "start", "dot product"}
    assert list(traces["head 2"].y) == [0.7, 0.3]
    assert list(traces["start"].y) == [0.9, 0.1] * 2
    assert (list(traces["dot product"].x), list(traces["dot product"].y)) == ([0], [1.0])
    assert "start" not in [trace.name for trace in lag_shares(table.assign(start=np.nan)).data]
