"""How far each kind of position encoding carries: reaches worked out by hand, and runs with and without weights."""

from __future__ import annotations

import io
import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from ega_mope.analysis.position_norm import position_norm
from ega_mope.analysis.position_reach import (
    FIXED,
    curves,
    fixed_reaches,
    reaches,
    run_reaches,
    summary,
)
from ega_mope.cli import run as command
from ega_mope.config import ModelConfig
from ega_mope.model import build_model
from ega_mope.plots.position import what_is_left
from ega_mope.positions import POSITIONS
from ega_mope.runs import open_run


def model(name: str, **settings):
    return build_model(ModelConfig(position={"name": name, **settings})).requires_grad_(False)


def only(name: str, **settings):
    (found,) = reaches(model(name, **settings).position, 128)
    return found


@pytest.mark.parametrize("name", POSITIONS)
def test_every_encoding_has_a_measure_that_starts_whole(name):
    for one in reaches(model(name).position, 128):
        assert one.left.shape == (len(one.reach_1e), 128)
        assert one.overall.max() == pytest.approx(1.0)
        assert one.left.max() <= 1 + 1e-9
        for part in range(len(one.left)):
            reach = one.reach_1pct[part]
            if reach < 127:  # what is left falls through 1 % there
                assert one.left[part, math.floor(reach)] >= 0.01 > one.left[part, math.floor(reach) + 1]


def test_morlet_pairs_fade_at_the_reaches_of_their_sigma_and_together_as_the_norm():
    mope = model("mope", init="multiscale")
    (found,) = reaches(mope.position, 128)
    sigma = mope.position.scales()[1].numpy()
    norm = position_norm(mope)

    assert found.reach_1e == pytest.approx(sigma * math.sqrt(2), rel=1e-6)
    assert found.left[10, 7] == pytest.approx(math.exp(-49 / (2 * sigma[10] ** 2)), rel=1e-5)
    assert found.overall == pytest.approx(norm.norm / norm.norm[0], rel=1e-4)
    assert found.share == norm.share
    assert only("mope").share < 0.15


def test_sinusoids_and_rotations_never_fade():
    for name in ("sinusoidal", "rope"):
        found = only(name)
        assert found.share == 1.0
        assert (found.reach_1pct == math.inf).all()
    turned = torch.randn(1, 1, 5, 32)
    rotated = model("rope").position.rotate(turned, torch.arange(5))
    torch.testing.assert_close(
        rotated.unflatten(-1, (-1, 2)).norm(dim=-1), turned.unflatten(-1, (-1, 2)).norm(dim=-1)
    )


def test_alibi_heads_fade_by_their_own_bias():
    position = model("alibi").position
    found = only("alibi")
    bias = position.bias(torch.tensor([127]), torch.arange(128))[:, 0].numpy()[:, ::-1]

    assert found.left == pytest.approx(np.exp(bias), rel=1e-5)
    assert found.reach_1e == pytest.approx([4, 16, 64, 256])
    assert found.axis == "lag τ"


def test_relative_morlet_heads_fade_by_their_own_bias_and_turn_without_fading():
    position = model("mope_relative").position
    window, rotation = reaches(position, 128)
    bias = position.bias(torch.tensor([127]), torch.arange(128))[:, 0].numpy()[:, ::-1]

    assert window.left == pytest.approx(np.exp(bias), rel=1e-4, abs=1e-9)
    assert np.exp(-(window.reach_1e**2) / (4 * position.log_sigma.exp().numpy() ** 2)) == pytest.approx(
        1 / math.e
    )
    assert rotation.share == 1.0


def test_a_table_is_measured_by_its_rows_and_none_by_nothing():
    learned = model("learned")
    table = learned.position.encode(torch.arange(128))
    table[60:] = 0.0
    learned.position.encode = lambda positions: table[positions]
    (found,) = reaches(learned.position, 128)
    norm = table.norm(dim=-1).numpy()

    assert found.overall == pytest.approx(norm / norm.max())
    assert found.share == pytest.approx(60 / 128)
    assert reaches(model("none").position, 128) == []
    both = reaches(model("rope", learned_table=True).position, 128)
    assert [one.axis for one in both] == ["lag τ", "position b"]


def test_a_run_without_weights_is_measured_from_its_record_but_for_a_table(tiny_runs, tmp_path):
    own = open_run(tiny_runs / "ega-causal-mope-s0")
    copies = {}
    for name in ("ega-causal-mope-s0", "dot-learned-s0"):
        copies[name] = shutil.copytree(tiny_runs / name, tmp_path / name)
        (copies[name] / "model.safetensors").unlink()

    (recorded,) = run_reaches(open_run(copies["ega-causal-mope-s0"]))

    (weights,) = run_reaches(own)
    assert recorded.left == pytest.approx(weights.left, rel=1e-5)
    with pytest.raises(ValueError, match="expected its weights, for a learned table"):
        run_reaches(open_run(copies["dot-learned-s0"]))


def test_the_figure_has_a_line_an_encoding_dashed_by_lag():
    config = ModelConfig()
    found = {name: curves(fixed_reaches(config, name)) for name in FIXED}

    lines = what_is_left({"<run>": curves([only("mope")]), **found}).data

    assert [line.line.dash for line in lines] == ["solid", "solid", "dash", "dash"]
    assert lines[0].name == "&lt;run&gt;: mope, by position"
    assert min(lines[0].y) >= 1e-4


def test_the_command_prints_the_run_beside_fixed_encodings(tiny_runs, capsys):
    path = str(tiny_runs / "dot-mope-s0")
    assert command(["position", path, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["position"] for row in answer] == ["mope", *FIXED]
    expected = summary(run_reaches(open_run(path))).iloc[0]
    assert answer[0]["share_of_context"] == expected["share_of_context"]
    assert answer[1]["median_reach_1pct"] is None

    assert command(["position", path, "--csv"]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert len(table) == 4 * 32
    assert command(["position", path]) == 0
    assert "any of its size" in capsys.readouterr().out
    assert command(["position", path, "--json", "--csv"]) == 2
