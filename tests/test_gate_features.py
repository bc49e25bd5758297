"""What a character is: boundaries, words, repeats, rarity, surprisal, attention received; all counted out by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ega_mope.analysis.gate_meaning import features
from ega_mope.analysis.gate_meaning.measure import position_in_window
from ega_mope.analysis.gate_meaning.received import attention_received, received_of_weights
from ega_mope.analysis.gate_meaning.surprisal import surprisal
from ega_mope.analysis.windows import windows_over
from ega_mope.config import ModelConfig
from ega_mope.model import build_model
from ega_mope.text import ByteTokenizer, CharacterTokenizer

LETTERS = CharacterTokenizer("abcdefgh \n")


def model_of(tokenizer, context=8):
    config = ModelConfig(
        vocabulary_size=tokenizer.vocabulary_size, context_length=context, n_layers=2, n_heads=2, d_model=16
    )
    model = build_model(config, seed=3).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.mul_(10)  # fresh weights are so small that all predictions are nearly even
    return model


def test_boundaries_words_and_suffixes_of_a_line_known_by_eye():
    text = "Who's␣there?␣The␣sailing␣3.2␣“Go!”␣he⏎"
    expected = {
        features.word_starts: "W_____t______T___s_______3_2__G____h__",
        features.word_ends: "_____␣_____?____␣_______␣_._␣___!____⏎",
        features.line_ends: "_____________________________________⏎",
        features.sentence_ends: "___________?____________________!_____",
        features.function_words: "______there__The___________________he_",
        features.suffix_starts: "___'_________________i________________",
    }
    for find, line in expected.items():
        marks = find(text.replace("␣", " ").replace("⏎", "\n"))
        shown = "".join(character if mark else "_" for character, mark in zip(text, marks, strict=True))
        assert shown == line, find.__name__


@given(st.text(alphabet="ab ", max_size=24))
def test_the_longest_earlier_repeat_is_what_searching_finds(text):
    def searched(end):
        lengths = range(end + 1, 0, -1)
        return next((n for n in lengths if text.find(text[end + 1 - n : end + 1], 0, end) >= 0), 0)

    assert features.earlier_repeat(text).tolist() == [searched(end) for end in range(len(text))]


def test_rarity_is_minus_log_frequency_and_an_uncounted_character_is_rare_not_infinite():
    found = features.rarity(("a", "b", "z", None), Counter({"a": 5, "b": 1}))

    np.testing.assert_allclose(found[:3], -np.log(np.array([6, 2, 1]) / 9))
    assert np.isnan(found[3])


@pytest.mark.parametrize("count", [2, 8, 13, 30])
def test_surprisal_is_the_loss_in_the_window_with_most_past(count):
    model = model_of(LETTERS)
    text = "".join(np.random.default_rng(count).choice(list("abcdefgh \n"), count))
    found = surprisal(model, LETTERS.read(text))

    ids = torch.from_numpy(LETTERS.encode(text))
    assert np.isnan(found[0])
    for place in range(1, count):
        start = next(start for start in range(0, count, 4) if start + 8 > place)
        logits = model(ids[None, start : start + 8])[0]
        expected = -logits[place - start - 1].log_softmax(-1)[ids[place]]
        assert found[place] == pytest.approx(expected.item(), rel=1e-9)


def test_a_character_of_several_bytes_has_the_sum_of_their_surprisals():
    tokenizer = ByteTokenizer(b"abc")
    model = model_of(tokenizer, context=64)
    found = surprisal(model, tokenizer.read("a한b"))

    ids = torch.tensor(list("a한b".encode()))
    each = -model(ids[None])[0, :-1].log_softmax(-1)[range(4), ids[1:]].numpy()
    assert found[1:] == pytest.approx([each[:3].sum(), each[3]])


def test_even_attention_is_received_evenly_and_twice_the_share_twice():
    time = 12
    even = np.tril(np.ones((time, time))) / np.arange(1, time + 1)[:, None]
    got, expected = received_of_weights(even)
    np.testing.assert_allclose(got[:-1] / expected[:-1], 1.0)
    assert (got[-1], expected[-1]) == (0, 0)

    favoured = even.copy()
    favoured[:, 3] *= 2
    got, expected = received_of_weights(favoured)
    np.testing.assert_allclose((got / np.where(expected > 0, expected, 1))[:5], [1, 1, 1, 2, 1])


def test_a_model_that_spreads_its_attention_evenly_favours_no_character_in_any_window():
    model = model_of(LETTERS)
    for attention in model.attentions:
        attention.qkv.weight.zero_()
    found = attention_received(model, LETTERS.read("abcdefgh" * 4 + "abc"))

    assert found.shape == (2, 2, 35)
    np.testing.assert_allclose(found[..., :-1], 1.0)
    assert np.isnan(found[..., -1]).all()


def test_the_position_is_counted_in_the_window_a_character_is_taken_from():
    found = position_in_window(LETTERS.read("a한" + "b" * 14), 8)

    expected = [window.first - window.start for window in windows_over(15, 8)]
    assert expected == [0, 4, 4]
    assert np.isnan(found[1])
    assert np.delete(found, 1).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6]
