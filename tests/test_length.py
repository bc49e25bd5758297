"""Loss by position beyond the training length: numbers, refusals, figure and command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ega_mope import cli
from ega_mope.analysis.length import bin_losses, cannot_read, loss_by_position, window_losses
from ega_mope.plots import length as plots
from ega_mope.runs import open_run
from ega_mope.training import token_losses, windows


def test_bins_split_the_training_length_into_eight() -> None:
    losses = np.arange(2 * 36, dtype=float).reshape(2, 36)
    table = bin_losses(losses, losses - np.array([[1.0], [3.0]]), context=16)
    assert table["from"].tolist() == list(range(0, 36, 2))
    assert table["to"].tolist() == list(range(1, 36, 2))
    assert table["loss_nats"][1] == np.mean([2, 3, 38, 39])
    assert table["standard_error"][1] == pytest.approx(18.0)
    assert table["restarted_nats"][1] == table["loss_nats"][1] - 2
    assert table["excess_nats"].tolist() == [2.0] * 18
    assert table["excess_error"].tolist() == pytest.approx([1.0] * 18)
    assert table["beyond"].tolist() == [False] * 8 + [True] * 10
    assert bin_losses(losses[:1], losses[:1], context=16)["standard_error"].isna().all()


def test_short_contexts_and_broken_factors_have_bins_too() -> None:
    table = bin_losses(np.ones((2, 13)), np.ones((2, 13)), context=5)
    assert table["from"].iloc[0] == 0
    assert table["to"].iloc[-1] == 12
    assert (table["from"].iloc[1:].to_numpy() == table["to"].iloc[:-1].to_numpy() + 1).all()
    assert table["beyond"].tolist() == (table["from"] >= 5).tolist()


def test_window_losses_start_afresh_where_told(tiny_runs: Path) -> None:
    run = open_run(tiny_runs / "dot-mope-s0")
    model = run.model("cpu")
    ids = torch.as_tensor(run.tokenizer.encode(run.corpus().text)[:390])
    chosen = windows(ids, 96)
    on = window_losses(model, chosen, 96)
    with torch.no_grad():
        np.testing.assert_allclose(on, token_losses(model(chosen[:, :-1]), chosen[:, 1:]).numpy(), atol=1e-5)
        afresh = token_losses(model(chosen[:, 64:96]), chosen[:, 65:97]).numpy()
    np.testing.assert_allclose(window_losses(model, chosen, 32)[:, 64:], afresh, atol=1e-5)
    assert np.abs(on[:, 64:] - afresh).max() > 1e-4


def test_a_reading_beyond_the_training_length(tiny_runs: Path) -> None:
    reading = loss_by_position(
        open_run(tiny_runs / "ega-causal-mope-s1"), factor=4, most_windows=3, device="cpu"
    )
    assert (reading.context_length, reading.length, reading.windows) == (32, 128, 3)
    assert reading.table["to"].iloc[-1] == 127
    within = reading.table[~reading.table["beyond"]]
    np.testing.assert_allclose(within["loss_nats"], within["restarted_nats"], atol=1e-5)
    beyond = reading.mean_nats("loss_nats", beyond=True)
    assert beyond == pytest.approx(reading.table.loc[reading.table["beyond"], "loss_nats"].mean())
    assert (
        loss_by_position(open_run(tiny_runs / "dot-mope-s0"), factor=1).mean_nats("loss_nats", beyond=True)
        is None
    )


def test_progress_counts_every_token_twice(tiny_runs: Path) -> None:
    run, seen = open_run(tiny_runs / "dot-mope-s0"), list[tuple[int, int]]()
    model = run.model("cpu")
    reading = loss_by_position(
        run,
        factor=2,
        most_windows=3,
        model=model,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert {total for _, total in seen} == {2 * 3 * 64}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == 2 * 3 * 64
    again = loss_by_position(run, factor=2, most_windows=3, device="cpu")
    assert reading.table.equals(again.table)


def test_learned_positions_are_refused_beyond_their_table(tiny_runs: Path) -> None:
    run = open_run(tiny_runs / "dot-learned-s0")
    assert cannot_read(run, 32) is None
    reason = cannot_read(run)
    assert reason is not None
    assert "learned" in reason
    with pytest.raises(ValueError, match=r"reach 64 tokens, got learned, which knows 32; .*rope.*alibi"):
        loss_by_position(run, factor=2)


def test_a_text_too_short_for_the_window_says_what_would_fit(tiny_runs: Path) -> None:
    with pytest.raises(ValueError, match="choose a factor of at most"):
        loss_by_position(open_run(tiny_runs / "dot-mope-s0"), factor=100)


def test_figure_draws_each_run_and_its_fresh_reading(tiny_runs: Path) -> None:
    reading = loss_by_position(open_run(tiny_runs / "dot-mope-s0"), most_windows=3)
    fig = plots.loss_by_position({"<b>": reading.table}, 32, {"<b>": "#0072B2"}, "nats per character")
    band, line, afresh = fig.data
    assert line.y.tolist() == reading.table["loss_nats"].tolist()
    assert afresh.y.tolist() == reading.table["restarted_nats"].tolist()
    assert line.name == "&lt;b&gt;"
    assert len(band.x) == 2 * len(reading.table)
    assert fig.layout.yaxis.title.text == "validation loss (nats per character)"
    assert fig.layout.shapes[0].x0 == 32


def test_the_command_answers_in_json_and_as_a_table(
    tiny_runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tiny_runs / "dot-mope-s0")
    assert cli.run(["length", path, "--factor", "2", "--windows", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["context_length"], answer["length"], answer["windows"]) == (32, 64, 1)
    assert [row["from"] for row in answer["positions"]] == list(range(0, 64, 4))
    assert answer["positions"][0]["standard_error"] is None
    assert answer["beyond_nats"] > 0
    assert cli.run(["length", path, "--factor", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:3] == ["from", "to", "loss_nats"]
    assert cli.run(["length", str(tiny_runs / "dot-learned-s0")]) == 2
