"""Ablation: opened gates are plain attention, removed pairs are no position, and what is ranked is measured."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from ega_mope.analysis.ablation import FAMILIES, Ablation, Effect, ablate, changes, why_nothing_to_ablate
from ega_mope.analysis.ablation.measure import effects
from ega_mope.analysis.scales import scales
from ega_mope.attention.ega import EnergyGatedAttention
from ega_mope.attention.trace import Trace
from ega_mope.cli import run as command
from ega_mope.config import ModelConfig
from ega_mope.model import build_model
from ega_mope.plots.ablation import ranked
from ega_mope.runs import open_run

TEXT = "The quick brown fox jumps over the lazy dog.\nPack my box with five dozen liquor jugs!\n"


@pytest.fixture
def run(tiny_runs):
    return open_run(tiny_runs / "ega-causal-mope-s0")


@pytest.fixture(scope="module")
def whole(tiny_runs) -> Ablation:
    """Every change of one run on its whole validation split."""
    return ablate(open_run(tiny_runs / "ega-causal-mope-s0"), most_windows=None, device="cpu")


def gated_and_plain(gate_norm: str, apply: str):
    """A model with lively gates, and one of plain attention with the same other weights."""
    plain_config = ModelConfig(vocabulary_size=11, context_length=16, n_layers=2, n_heads=2, d_model=16)
    attention = {"name": "ega", "gate_norm": gate_norm, "apply": apply}
    gated_config = dataclasses.replace(plain_config, attention=attention)
    gated = build_model(gated_config, seed=3).eval().requires_grad_(False)
    for layer in gated.attentions:
        assert isinstance(layer, EnergyGatedAttention)
        layer.sharpness.copy_(torch.tensor([3.0, -2.0]))
        layer.threshold.copy_(torch.tensor([0.5, 0.2]))
        layer.qkv.weight.mul_(20)
    plain = build_model(plain_config, seed=3).eval()
    state = gated.state_dict()
    plain.load_state_dict({name: state[name] for name in plain.state_dict()})
    return gated, plain


IDS = torch.randint(11, (3, 16), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("apply", ["renormalised", "plain"])
@pytest.mark.parametrize("gate_norm", ["causal", "visible", "sequence", "none"])
def test_with_all_gates_open_the_model_is_the_baseline_and_afterwards_itself_again(gate_norm, apply):
    gated, plain = gated_and_plain(gate_norm, apply)
    every = changes.gate_changes(gated)[-1]
    assert every.count == 4
    with torch.no_grad():
        before, expected = gated(IDS), plain(IDS)
        assert (before - expected).abs().max() > 1e-3
        with every.made(gated):
            torch.testing.assert_close(gated(IDS), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gated(IDS), before, rtol=0, atol=0)


def test_one_opened_gate_is_1_for_every_token_and_the_others_stay():
    gated, _ = gated_and_plain("causal", "renormalised")
    (one,) = [change for change in changes.gate_changes(gated) if change.part == "L2 H1"]
    with torch.no_grad():
        _, before = gated.trace(IDS, ("gate",))
        with one.made(gated):
            _, after = gated.trace(IDS, ("gate",))
    assert (after["gate"][:, 1, 0] == 1).all()
    assert (after["gate"][:, 0] == before["gate"][:, 0]).all()
    assert (after["gate"][:, 1, 1] == before["gate"][:, 1, 1]).all()
    assert one.first_layer == 1


def test_a_gate_is_closed_again_when_something_fails_meanwhile():
    gated, _ = gated_and_plain("causal", "renormalised")
    before = copy.deepcopy(gated.state_dict())
    with pytest.raises(RuntimeError, match="halfway"), changes.gate_changes(gated)[-1].made(gated):
        raise RuntimeError("halfway")
    for name, value in gated.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_removed_pairs_add_nothing_and_pairs_at_their_start_add_what_they_did(run):
    model = run.model("cpu")
    found = scales(run)
    at = torch.arange(32)
    own = model.position.encode(at)

    without = changes.WithoutPairs(model.position, (0, 3)).encode(at)
    reset = changes.at_their_start(model.position, tuple(range(8)), found).encode(at)

    assert (without[:, [0, 1, 6, 7]] == 0).all()
    assert (without[:, [2, 3, 4, 5, *range(8, 16)]] == own[:, [2, 3, 4, 5, *range(8, 16)]]).all()
    untrained = build_model(run.config.model, run.seed).position.encode(at)
    torch.testing.assert_close(reset, untrained, rtol=1e-5, atol=1e-6)
    assert (own - untrained).abs().max() > 1e-3
    assert torch.equal(model.position.encode(at), own)


def test_bands_hold_every_pair_once_and_are_named_by_their_bounds(run):
    found = scales(run)
    for by in changes.BANDS_BY:
        members = [pair for _, pairs in changes.bands_of(found, by) for pair in pairs]
        assert sorted(members) == list(range(8))
    periods = dict(changes.bands_of(found, "omega"))
    for pair in periods["period 4–8"]:
        assert 4 <= found.pairs[pair].period < 8
    with pytest.raises(ValueError, match=r"one of \(sigma, omega\), got 'tau'"):
        changes.bands_of(found, "tau")


def test_skipping_unchanged_layers_changes_no_number(run):
    model = run.model("cpu")
    windows = torch.from_numpy(run.tokenizer.read(TEXT).ids[:66].reshape(2, 33))
    deep = [change for change in changes.gate_changes(model) if change.first_layer == 1]
    assert deep
    found = effects(model, windows, deep)

    for number, change in enumerate(deep):
        with torch.no_grad(), change.made(model):
            logits = model._run(windows[:, :-1], Trace(()))
        log_q = logits.double().log_softmax(-1)
        losses = -log_q.gather(-1, windows[:, 1:, None])[..., 0].mean(dim=1)
        assert found.after[number] == pytest.approx(losses.numpy(), rel=1e-5)
        log_p = model(windows[:, :-1]).double().log_softmax(-1)
        kl = (log_p.exp() * (log_p - log_q)).sum(-1).mean(1)
        assert found.kl[number] == pytest.approx(kl.numpy(), rel=1e-5, abs=1e-9)


def test_the_whole_split_has_the_loss_of_the_training_s_record(run, whole):
    assert whole.windows == whole.windows_in_all == run.evaluation["windows"]
    assert whole.loss_nats == pytest.approx(run.best().loss_nats, rel=1e-5)
    assert "the whole validation split" in whole.what_was_read


def test_a_row_is_the_paired_change_with_its_interval(run, whole):
    model = run.model("cpu")
    from ega_mope.analysis.ablation import _validation_windows

    (change,) = [one for one in changes.gate_changes(model) if one.part == "layer 1"]
    found = effects(model, _validation_windows(run), [change])
    moved = found.after[0] - found.before
    (row,) = [one for one in whole.effects if one.part == "layer 1"]

    assert row.loss_change == pytest.approx(moved.mean())
    expected = stats.ttest_1samp(moved, 0).confidence_interval()
    assert (row.low, row.high) == pytest.approx((expected.low, expected.high))
    assert row.clear == (expected.low > 0 or expected.high < 0)


def test_the_ranking_has_every_part_and_falls(whole):
    table = whole.table()
    assert table["loss_change"].is_monotonic_decreasing
    assert table["rank"].tolist() == list(range(1, len(table) + 1))
    kinds = table["kind"].value_counts()
    assert (kinds["gate opened"], kinds["layer's gates opened"], kinds["all gates opened"]) == (4, 2, 1)
    assert len(whole.family("gates")) == 7
    removed = table[table["kind"] == "pairs removed"]
    assert removed.set_index("part")["count"]["all pairs"] == 8
    assert (table["kl_nats"] >= 0).all()


def test_controls_have_the_size_of_their_band_and_are_not_the_answer():
    def effect(kind: str, part: str, change: float) -> Effect:
        return Effect(
            kind=kind, part=part, count=2, loss_change=change, standard_error=0.1,
            low=change - 0.2, high=change + 0.2, kl_nats=0.1,
        )  # fmt: skip

    found = Ablation(
        run="x", sees_future=False, loss_nats=1.0, windows=2, windows_in_all=9, text_tokens=None, notes=(),
        effects=(
            effect("random pairs removed", "word", 5.0),
            effect("pairs removed", "all pairs", 3.0),
            effect("pairs removed", "word", 1.0),
            effect("gate opened", "L1 H1", 0.1),
            effect("gate opened", "L1 H2", -0.5),
        ),
    )  # fmt: skip
    gates, pairs, counted = found.findings
    assert gates.startswith("Gates: L1 H1 (gate opened) +0.1000")
    assert pairs == (
        "Pairs: word (pairs removed) +1.0000 nats per token [+0.8000, +1.2000]; "
        "all pairs (pairs removed) +3.0000 nats per token [+2.8000, +3.2000]."
    )
    assert counted.startswith(
        "3 of 4 changes move the loss clearly (95 % interval off 0), 1 of them downwards"
    )


def test_random_pairs_are_as_many_as_the_band_has(run):
    model, found = run.model("cpu"), scales(run)
    made = changes.pair_changes(model, found, "omega")
    sizes = {change.part: change.count for change in made if change.kind == "pairs removed"}
    controls = {change.part: change.count for change in made if change.kind == "random pairs removed"}
    assert controls == {part: size for part, size in sizes.items() if part != "all pairs"}


def test_predictions_are_compared_on_the_text_where_there_is_one(run, whole):
    few = ablate(run, TEXT, most_windows=2, device="cpu")

    assert (few.windows, few.text_tokens) == (2, 64)
    everything = {one.part: one for one in few.effects if one.kind == "pairs removed"}["all pairs"]
    model = run.model("cpu")
    ids = torch.from_numpy(run.tokenizer.read(TEXT).ids[:66].reshape(2, 33))[:, :-1]
    log_p = model(ids).double().log_softmax(-1)
    with changes.position_replaced(model, changes.WithoutPairs(model.position, tuple(range(8)))):
        log_q = model(ids).double().log_softmax(-1)
    assert everything.kl_nats == pytest.approx(
        float((log_p.exp() * (log_p - log_q)).sum(-1).mean()), rel=1e-4
    )


def test_a_shared_model_stays_as_it_is(run):
    model = run.model("cpu")
    before = copy.deepcopy(model.state_dict())
    ablate(run, model=model, most_windows=1)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_one_window_has_no_interval_and_says_null(run):
    document = ablate(run, most_windows=1, device="cpu").to_json()
    assert all(row["low"] is None and not row["clear"] for row in document["changes"])
    json.dumps(document, allow_nan=False)


def test_what_cannot_be_ablated_says_why_in_one_line(tiny_runs, tmp_path, capsys):
    assert why_nothing_to_ablate(open_run(tiny_runs / "dot-mope-s0")) is None
    assert why_nothing_to_ablate(open_run(tiny_runs / "ega-causal-learned-s0")) is None
    assert command(["ablate", str(tiny_runs / "dot-learned-s0")]) == 2
    assert "attention dot has no gates and position learned has no" in capsys.readouterr().err
    bare = shutil.copytree(tiny_runs / "ega-causal-mope-s0", tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    assert command(["ablate", str(bare)]) == 2
    line = capsys.readouterr().err
    assert "weights are not in its folder" in line
    assert line.count("\n") == 1


def test_without_a_recorded_start_no_pair_is_put_back(tiny_runs, tmp_path, monkeypatch):
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))  # where the text is
    copied = shutil.copytree(tiny_runs / "dot-mope-s0", tmp_path / "no-start")
    (copied / "learned.jsonl").unlink()
    found = ablate(open_run(copied), most_windows=1, device="cpu")
    assert all(one.kind != "pairs at their start" for one in found.effects)
    assert "no record" in found.notes[0]


def test_the_figure_has_a_marker_and_an_interval_for_each_row(whole):
    table = whole.family("gates")

    fig = ranked(table, "nats per character")

    traces = {trace.name: trace for trace in fig.data}
    assert set(traces) == set(FAMILIES["gates"])
    opened = table[table["kind"] == "gate opened"]
    assert list(traces["gate opened"].x) == opened["loss_change"].tolist()
    assert list(traces["gate opened"].error_x.array) == pytest.approx(
        (opened["high"] - opened["loss_change"]).tolist()
    )
    assert [symbol.endswith("-open") for symbol in traces["gate opened"].marker.symbol] == [
        not clear for clear in opened["clear"]
    ]
    assert list(fig.layout.yaxis.categoryarray)[-1] == table["part"].iloc[0]
    pairs = ranked(whole.family("pairs"), "nats per character")
    assert len(set(pairs.layout.yaxis.categoryarray)) == len(whole.family("pairs"))


def test_the_command_prints_the_same_as_the_function(run, capsys):
    assert command(["ablate", str(run.path), "--windows", "2", "--device", "cpu", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    expected = ablate(run, most_windows=2, device="cpu").to_json()
    assert document == expected
    assert document["kl_on"] == "validation windows"

    assert command(["ablate", str(run.path), "--whole", "--device", "cpu", "--text", TEXT, "--csv"]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert np.isfinite(table["loss_change"]).all()
    assert math.isclose(table["loss_change"].max(), table["loss_change"][0])

    assert command(["ablate", str(run.path), "--windows", "2", "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0].split()[:3] == ["rank", "kind", "part"]
    assert "2 of" in said.err
    assert command(["ablate", str(run.path), "--json", "--csv"]) == 2
