"""Gate beside surprisal by rank, and what one character attends to with the gate and without it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from ega_mope.analysis.gate_meaning.attended import attended
from ega_mope.analysis.gate_meaning.surprise import beside_surprisal, surprise
from ega_mope.analysis.gates import gates
from ega_mope.config import ModelConfig
from ega_mope.model import build_model
from ega_mope.plots.text import shaded_html
from ega_mope.text import ByteTokenizer, CharacterTokenizer

LETTERS = CharacterTokenizer("abcdefgh \n")


def model_of(tokenizer=LETTERS, *, context=8, **settings):
    config = ModelConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        context_length=context,
        n_layers=2,
        n_heads=2,
        d_model=16,
        attention={"name": "ega", **settings},
    )
    model = build_model(config, seed=3).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.mul_(10)  # fresh weights are so small that all attention is nearly even
    return model


def test_ranks_are_the_share_of_characters_below_and_the_difference_theirs():
    found = surprise(model_of(), "abX cd", LETTERS)  # X is not read, a has no surprisal
    nan = np.nan
    gate = np.broadcast_to(np.array([0.9, 0.1, nan, 0.3, 0.3, 0.7]), found.gate.shape)
    found = dataclasses.replace(found, gate=gate, surprisal=np.array([nan, 4.0, nan, 3.0, 2.0, 1.0]))

    np.testing.assert_allclose(found.gate_rank[1, 0], [nan, 1 / 8, nan, 1 / 2, 1 / 2, 7 / 8])
    np.testing.assert_allclose(found.surprisal_rank[0, 1], [nan, 7 / 8, nan, 5 / 8, 3 / 8, 1 / 8])
    np.testing.assert_allclose(found.difference[1, 1], [nan, -3 / 4, nan, -1 / 8, 1 / 8, 3 / 4])
    table = found.surprise_table(1, 0)
    assert table["text"].tolist() == list("abX cd") and set(table["layer"]) == {2}
    for shade in ("gate rank", "surprisal", "difference"):
        assert 'class="none' in shaded_html(found, layer=0, head=0, shade=shade)


def test_a_reading_beside_surprisal_keeps_its_gates():
    model, text = model_of(), "abcdefgh abc"
    reading = gates(model, text, tokenizer=LETTERS)
    found = beside_surprisal(model, reading)
    np.testing.assert_array_equal(found.gate, reading.gate)
    assert (
        found.characters == text and np.isnan(found.surprisal[0]) and np.isfinite(found.surprisal[1:]).all()
    )


@pytest.mark.parametrize(
    "settings", [{}, {"apply": "plain"}, {"gate_norm": "sequence"}, {"gate_norm": "visible"}]
)
def test_what_a_character_attends_to_is_its_row_of_the_trace(settings):
    model, text = model_of(**settings), "abcdXefgh abc"
    reading = gates(model, text, tokenizer=LETTERS)

    found = attended(model, reading, 11)  # token 10, from the window of tokens 4 to 11

    ids = torch.from_numpy(LETTERS.read(text).ids)
    _, trace = model.trace(ids[None, 4:12], ("weight", "share"))
    places = [5, 6, 7, 8, 9, 10, 11]
    for kind in ("weight", "share"):
        values = getattr(found, kind)
        np.testing.assert_allclose(values[..., places], trace[kind][0, :, :, 6, :7])
        assert np.isnan(np.delete(values, places, axis=-1)).all()
    assert (found.first, found.query) == (5, 11)
    table = found.table(1, 0)
    assert sorted(table["position"]) == places
    assert table["without the gate"].sum() == pytest.approx(1)
    if settings.get("apply") == "plain":
        own = places[4:]  # the others' gates are read in an earlier window
        np.testing.assert_allclose(found.gating[..., own], reading.gate[..., own])
    else:
        assert table["with the gate"].sum() == pytest.approx(1)


def test_a_character_of_several_bytes_asks_as_its_last_byte_and_is_asked_as_all():
    tokenizer = ByteTokenizer(b"abc")
    model, text = model_of(tokenizer, context=64), "a한b"
    reading = gates(model, text, tokenizer=tokenizer)
    _, trace = model.trace(torch.tensor([list(text.encode())]), ("weight",))
    weight = trace["weight"][0]

    np.testing.assert_allclose(attended(model, reading, 1).weight[..., 1], weight[..., 3, 1:4].sum(-1))
    np.testing.assert_allclose(attended(model, reading, 2).weight[..., 1], weight[..., 4, 1:4].sum(-1))


def test_a_character_that_is_not_read_attends_to_nothing():
    model = model_of()
    reading = gates(model, "abX", tokenizer=LETTERS)
    for position in (2, 7):
        with pytest.raises(ValueError, match=f"position: expected that of a character .* got {position}"):
            attended(model, reading, position)
