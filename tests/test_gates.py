"""Gates of a text: windows, characters, weight change, the JSON answer and the command line."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import numpy as np
import pytest
import torch

import ega_mope as em
from ega_mope.analysis import gate_tables as tables
from ega_mope.analysis.gates import gates
from ega_mope.cli import run as command
from ega_mope.config import ModelConfig
from ega_mope.model import build_model
from ega_mope.text import ByteTokenizer, CharacterTokenizer

ALPHABET = "abcdefgh \n"
LETTERS = CharacterTokenizer(ALPHABET)


def model_of(tokenizer=LETTERS, *, context=8, norm="causal", dtype=torch.float64, **settings):
    """A small model whose gates differ from token to token, in evaluation mode."""
    config = ModelConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        context_length=context,
        n_layers=2,
        n_heads=2,
        d_model=16,
        attention={"name": "ega", "gate_norm": norm, **settings},
    )
    model = build_model(config, seed=3).to(dtype).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.mul_(10)  # fresh weights are so small that all attention is nearly even
    return model


def letters(count, seed=0):
    return "".join(np.random.default_rng(seed).choice(list(ALPHABET), count))


def window_of(position, context, stride):
    """The earliest window on the stride that holds the position: counted out, not looked up."""
    start = 0
    while start + context <= position:
        start += stride
    return start


@pytest.mark.parametrize("count", [1, 7, 8, 9, 12, 13, 50])
@pytest.mark.parametrize("norm", ["causal", "sequence", "none", "visible"])
def test_each_token_comes_from_the_half_context_window_where_it_has_most_past(count, norm):
    model, text = model_of(norm=norm), letters(count)
    ids = torch.from_numpy(LETTERS.encode(text))

    found = gates(model, text, tokenizer=LETTERS)

    for position in range(count):
        start = window_of(position, 8, 4)
        _, trace = model.trace(ids[None, start : start + 8], ("gate", "z", "weight", "share"))
        at = position - start
        place = (at, at) if norm == "visible" else (at,)
        weight, share = trace["weight"][0], trace["share"][0]
        change = share[:, :, at:, at].sum(-1) / weight[:, :, at:, at].sum(-1)
        expected = {
            "gate": trace["gate"][0][..., *place],
            "z": trace["z"][0][..., *place],
            "weight_change": change,
        }
        for name, values in expected.items():
            np.testing.assert_allclose(getattr(found, name)[..., position], values, rtol=1e-6, atol=1e-12)
    assert (found.length, found.stride) == (8, 4)


def test_only_a_sequence_gate_depends_on_what_comes_later_and_it_says_so():
    first = "abcdefg"
    for norm, moves in (("sequence", True), ("causal", False), ("none", False)):
        model = model_of(norm=norm)
        one, other = (gates(model, first + last, tokenizer=LETTERS) for last in "hb")
        moved = np.abs(one.gate[..., :7] - other.gate[..., :7]).max()
        assert (moved > 1e-4) if moves else (moved == 0)
        assert (one.notice is not None) is moves
    notice = gates(model_of(norm="sequence"), "abc", tokenizer=LETTERS).notice
    assert notice is not None and "later ones included" in notice


@pytest.mark.parametrize("norm", ["causal", "sequence", "visible"])
def test_the_beginning_of_a_text_has_the_gates_it_has_in_the_whole(norm):
    """What the page shows of a long text before all of it is read: the first half of a beginning."""
    model, text = model_of(norm=norm), letters(200)
    beginning, whole = (
        gates(model, part, tokenizer=LETTERS, weight_change=False) for part in (text[:40], text)
    )
    assert (beginning.gate[..., :20] == whole.gate[..., :20]).all()


def test_gates_alone_are_the_same_gates_and_have_no_weight_change():
    model, text = model_of(), letters(40)
    whole, alone = (gates(model, text, tokenizer=LETTERS, weight_change=flag) for flag in (True, False))

    np.testing.assert_allclose(alone.gate, whole.gate, rtol=1e-12)
    assert alone.weight_change is None
    assert alone.to_json()["weight_change"] is None


def test_open_gates_change_no_weight():
    model = model_of()
    for attention in model.attentions:
        attention.threshold.fill_(-1e4)
    found = gates(model, letters(30), tokenizer=LETTERS)

    np.testing.assert_allclose(found.gate, 1.0)
    assert found.weight_change is not None
    np.testing.assert_allclose(found.weight_change, 1.0, rtol=1e-6)


def test_where_weights_are_not_renormalised_the_change_is_the_gate():
    found = gates(model_of(apply="plain"), letters(30), tokenizer=LETTERS)

    assert found.weight_change is not None
    np.testing.assert_allclose(found.weight_change, found.gate, rtol=1e-6)


def test_unknown_characters_keep_their_place_and_change_no_other_gate():
    model = model_of()
    plain = gates(model, "abcdefgh", tokenizer=LETTERS)
    mixed = gates(model, "ab한cd👩e\u0301fgh", tokenizer=LETTERS)

    known = [0, 1, 3, 4, 6, 8, 9, 10]
    np.testing.assert_array_equal(mixed.gate[..., known], plain.gate)
    assert mixed.weight_change is not None
    for values in (mixed.gate, mixed.weight_change):
        assert np.isnan(values[..., [2, 5, 7]]).all()
    assert mixed.known.tolist() == [place in known for place in range(11)]


def test_a_text_of_unknown_characters_alone_has_null_gates():
    found = gates(model_of(), "한국", tokenizer=LETTERS)

    assert found.to_json()["gates"] == [[[None, None]] * 2] * 2
    assert str(tables.kept_above(found.gate[0, 0], 0.5)) == "no character is read by this run"
    assert np.isnan(found.spread()).all() and found.widest() == (0, 0)


def test_a_character_of_several_bytes_has_the_mean_over_its_bytes():
    tokenizer = ByteTokenizer(b"abc")
    model, text = model_of(tokenizer, context=64), "a한b👩c"
    found = gates(model, text, tokenizer=tokenizer)
    _, trace = model.trace(torch.tensor([list(text.encode())]), ("gate",))

    places = [[0], [1, 2, 3], [4], [5, 6, 7, 8], [9]]
    expected = np.stack([trace["gate"][0][..., group].mean(-1) for group in places], axis=-1)
    np.testing.assert_allclose(found.gate, expected, rtol=1e-12)
    assert found.seen.tolist() == [True, False, True, False, True]
    assert [token["seen"] for token in found.to_json()["tokens"]] == [True, False, True, False, True]


def test_the_first_sixteen_tokens_are_marked_where_the_gate_compares_with_the_past():
    text = "한" + letters(60)
    marked = {
        norm: gates(model_of(context=64, norm=norm), text, tokenizer=LETTERS).few
        for norm in ("causal", "none")
    }
    short = gates(model_of(context=64, norm="sequence"), letters(16), tokenizer=LETTERS)
    long = gates(model_of(context=64, norm="sequence"), letters(17), tokenizer=LETTERS)

    assert np.flatnonzero(marked["causal"]).tolist() == list(range(1, 17))
    assert not marked["none"].any()
    assert short.few.all() and not long.few.any()


def test_the_widest_head_is_the_one_with_the_largest_spread_over_comparable_characters():
    found = gates(model_of(context=64), letters(40), tokenizer=LETTERS)
    planted = np.full(found.gate.shape, 0.5)
    planted[0, 1, :16] = np.tile([0.0, 1.0], 8)  # wide, but among the first 16 alone
    planted[1, 0, 20:30] = 0.9
    found = dataclasses.replace(found, gate=planted)

    assert found.widest() == (1, 0)
    assert found.spread()[1, 0] == pytest.approx(np.std([0.9] * 10 + [0.5] * 14))


def test_json_keeps_every_digit_of_the_models_precision():
    for dtype, numpy_dtype in ((torch.float32, np.float32), (torch.float64, np.float64)):
        found = gates(model_of(dtype=dtype), letters(30), tokenizer=LETTERS)
        read = json.loads(json.dumps(found.to_json(), allow_nan=False))
        np.testing.assert_array_equal(np.array(read["gates"], numpy_dtype), found.gate)


def test_a_hundred_thousand_characters_come_back_in_order():
    model = model_of(context=64, dtype=torch.float32)
    text = letters(99_990) + "한" * 10
    seen = []

    found = gates(model, text, tokenizer=LETTERS, progress=lambda done, total: seen.append((done, total)))

    answer = found.to_json()
    assert "".join(token["text"] for token in answer["tokens"]) == text
    assert [token["position"] for token in answer["tokens"]] == list(range(100_000))
    assert {len(head) for layer in answer["gates"] for head in layer} == {100_000}
    assert np.isfinite(found.gate[..., :99_990]).all() and answer["unknown"] == [{"text": "한", "count": 10}]
    assert seen[-1] == (99_990, 99_990)


def test_what_cannot_be_read_is_one_clear_line(tiny_runs, monkeypatch):
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))
    model = model_of()
    for arguments, options, said in (
        ((model, ""), {"tokenizer": LETTERS}, "text: expected at least one character"),
        ((model, "abc"), {}, "tokenizer: expected one beside a bare model"),
        ((model, "abc"), {"tokenizer": CharacterTokenizer("ab")}, "expected 10 ids as the model has, got 2"),
        ((model_of().train(), "abc"), {"tokenizer": LETTERS}, "call model.eval"),
        (
            (em.open_run("dot-learned-s0"), "abc"),
            {},
            "dot-learned-s0: .*dot has no gates; .*ega-causal-learned-s0",
        ),
        (
            (em.open_run("dot-learned-s0").model(), "abc"),
            {"tokenizer": LETTERS},
            "got attention dot; .*ega-causal",
        ),
    ):
        with pytest.raises(ValueError, match=said) as error:
            em.gates(*arguments, **options)
        assert "\n" not in str(error.value)


def test_tables_count_what_is_read():
    found = gates(model_of(context=64), "abc 한 abc\n\nd-e f", tokenizer=LETTERS)
    gate = np.full(found.gate.shape, np.nan)
    gate[0, 0] = [0.2, 0.4, 0.6, 0.5, np.nan, 0.5, 0.6, 0.8, 1.0, 0.1, 0.1, 0.3, np.nan, 0.5, 0.0, 0.9]
    found = dataclasses.replace(found, gate=gate, weight_change=gate * 2)

    words = tables.word_averages(found, 0, 0)
    assert words[["word", "count"]].values.tolist() == [["f", 1], ["abc", 2], ["d-e", 1]]
    assert words["mean gate"].tolist() == pytest.approx([0.9, 0.6, 0.4])
    assert words["mean weight change"].tolist() == pytest.approx([1.8, 1.2, 0.8])
    lines = tables.line_averages(found, 0, 0)
    assert lines[["line", "text"]].values.tolist() == [[1, "abc 한 abc"], [3, "d-e f"]]
    assert lines["mean gate"].tolist() == pytest.approx(
        [np.mean([0.2, 0.4, 0.6, 0.5, 0.5, 0.6, 0.8, 1.0]), 1.7 / 4]
    )
    assert str(tables.kept_above(gate[0, 0], 0.5)) == "5 of 14 characters kept (35.7 %)"
    assert tables.unknown_table(found).values.tolist() == [
        ["한", "U+D55C", "HANGUL SYLLABLE HAN", 1],
        ["-", "U+002D", "HYPHEN-MINUS", 1],
    ]
    np.testing.assert_allclose(tables.profile(gate[0, 0], 8)[:3], [0.3, 0.55, 0.5])
    assert tables.across_heads(found, 1)["gate"].iloc[0] == 0.4


def test_the_command_answers_with_the_documented_json(tiny_runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))
    file = tmp_path / "text.txt"
    file.write_bytes("The <b>fox</b>\r\n한 jumps over".encode())

    assert command(["gates", "ega-causal-mope-s0", "--text-file", str(file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)

    text = "The <b>fox</b>\n한 jumps over"
    assert "".join(token["text"] for token in answer["tokens"]) == text
    assert (answer["run"], answer["layers"], answer["heads"]) == ("ega-causal-mope-s0", 2, 2)
    assert answer["windows"] == {"length": 32, "stride": 16}
    assert answer["tokens"][4] == {
        "position": 4, "text": "<", "known": False, "read_as": None, "seen": False, "few_to_compare_with": False,
    }  # fmt: skip
    assert answer["unknown"] == [
        {"text": t, "count": n} for t, n in (("<", 2), (">", 2), ("/", 1), ("한", 1))
    ]
    found = em.gates(em.open_run("ega-causal-mope-s0"), text)
    for name, values in (("gates", found.gate), ("weight_change", found.weight_change)):
        np.testing.assert_allclose(np.array(answer[name], float), values, rtol=1e-6)


def test_the_commands_csv_html_and_ansi_show_the_asked_head(tiny_runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))
    begin = ["gates", "ega-causal-learned-s0", "--text", "The fox, 한 jumps"]
    found = em.gates(em.open_run("ega-causal-learned-s0"), "The fox, 한 jumps")

    assert command([*begin, "--csv", "--layer", "2", "--head", "1"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert "".join(row["text"] for row in rows) == "The fox, 한 jumps"
    assert {(row["layer"], row["head"]) for row in rows} == {("2", "1")}
    assert rows[9]["gate"] == "" and float(rows[0]["gate"]) == pytest.approx(found.gate[1, 0, 0], rel=1e-6)

    assert command([*begin, "--html", str(tmp_path / "g.html"), "--layer", "2"]) == 0
    page = (tmp_path / "g.html").read_text(encoding="utf-8")
    widest = int(found.spread()[1].argmax()) + 1
    assert page.startswith("<!doctype html>") and f"<p>Layer 2, head {widest}." in page

    capsys.readouterr()
    assert command([*begin, "--ansi"]) == 0
    assert "\x1b[48;2;" in capsys.readouterr().out
    assert command([*begin, "--keep-above", "0.5"]) == 0
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 5 and "of 15 characters kept" in output.err


@pytest.mark.parametrize(
    ("run", "options", "said"),
    [
        ("ega-causal-learned-s0", ["--text", ""], "text: expected at least one character"),
        ("ega-causal-learned-s0", [], "expected --text or --text-file, got none"),
        ("ega-causal-learned-s0", ["--text", "a", "--layer", "3"], "layer: expected 1 to 2, got 3"),
        ("ega-causal-learned-s0", ["--text", "a", "--json", "--csv"], "got several"),
        (
            "ega-causal-learned-s0",
            ["--text", "a", "--ansi", "--shade", "pink"],
            "shade: expected one of (gate, z, change)",
        ),
        ("ega-causal-learned-s0", ["--text", "a\udcff"], "expected UTF-8"),
        ("ega-causal-learned-s0", ["--text-file", "/no/such/file"], "does not exist"),
        ("dot-learned-s0", ["--text", "a"], "has no gates"),
    ],
)
def test_bad_input_to_the_command_is_one_line_and_status_2(
    run, options, said, tiny_runs, monkeypatch, capsys
):
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))

    assert command(["gates", run, *options]) == 2
    output = capsys.readouterr()
    assert said in output.err and len(output.err.splitlines()) == 1 and output.out == ""
