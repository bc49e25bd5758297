"""Tokenizers: ids and back, and reading any text at all."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ega_mope.text import (
    TOKENIZERS,
    ByteTokenizer,
    CharacterTokenizer,
    Tokenizer,
    normalise_newlines,
    tokenizer_from_json,
)

TRAINING_TEXT = 'First Citizen:\nBefore we proceed - hear me speak\'s "all".'
any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates, NUL and carriage returns included


@pytest.fixture(params=sorted(TOKENIZERS))
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return TOKENIZERS[request.param].fit(TRAINING_TEXT)


@pytest.mark.parametrize("kind", sorted(TOKENIZERS))
@given(text=any_text)
def test_reading_accounts_for_every_character_of_any_text(kind: str, text: str) -> None:
    tokenizer = TOKENIZERS[kind].fit(TRAINING_TEXT)
    reading = tokenizer.read(text)
    count = len(reading.characters)
    assert reading.characters == normalise_newlines(text)
    assert len(reading.read_as) == len(reading.seen) == len(reading.known) == count
    assert len(reading.ids) == len(reading.owner)
    assert (np.diff(reading.owner) >= 0).all()
    assert set(reading.owner) == set(np.flatnonzero(reading.known))
    assert ((reading.ids >= 0) & (reading.ids < tokenizer.vocabulary_size)).all()
    assert not (reading.seen & ~reading.known).any()
    assert sum(times for _, times in reading.unknown()) == count - reading.known.sum()


@given(text=any_text)
def test_characters_get_one_id_each_and_it_is_the_one_of_what_was_read(text: str) -> None:
    tokenizer = CharacterTokenizer.fit(TRAINING_TEXT)
    reading = tokenizer.read(text)
    assert reading.owner.tolist() == np.flatnonzero(reading.known).tolist()
    assert tokenizer.decode(reading.ids) == "".join(part for part in reading.read_as if part is not None)


@given(text=st.text())
def test_bytes_round_trip(text: str) -> None:
    tokenizer = ByteTokenizer.fit("")
    expected = normalise_newlines(text)
    reading = tokenizer.read(text)
    assert reading.known.all()
    assert tokenizer.decode(reading.ids) == tokenizer.decode(tokenizer.encode(text)) == expected
    for index in {0, len(expected) - 1} if expected else set():
        assert tokenizer.decode(reading.ids[reading.owner == index]) == expected[index]


def test_training_text_round_trips_and_is_seen_throughout(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TRAINING_TEXT)
    reading = tokenizer.read(TRAINING_TEXT)
    assert ids.dtype == np.int64
    assert tokenizer.decode(ids) == TRAINING_TEXT
    assert reading.ids.tolist() == ids.tolist()
    assert reading.seen.all() and reading.unknown() == []


def test_empty_text_reads_as_nothing(tokenizer: Tokenizer) -> None:
    reading = tokenizer.read("")
    assert (reading.characters, reading.read_as, reading.unknown()) == ("", (), [])
    assert len(reading.ids) == len(reading.owner) == len(reading.seen) == len(reading.known) == 0
    assert tokenizer.decode([]) == ""


def test_a_million_characters_are_read(tokenizer: Tokenizer) -> None:
    reading = tokenizer.read("Before é\0" * 120_000)
    assert len(reading.characters) == 1_080_000
    assert reading.owner[-1] in (1_079_998, 1_079_999)


def test_character_ids_are_ranks_in_the_sorted_alphabet() -> None:
    tokenizer = CharacterTokenizer.fit("hello\r\nab")
    assert (tokenizer.alphabet, tokenizer.vocabulary_size) == ("\nabehlo", 7)
    assert tokenizer.encode("bab\n").tolist() == [2, 1, 2, 0]
    assert CharacterTokenizer("oba") == CharacterTokenizer("abo")


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("‘a’", ("'", "a", "'")),
        ("“a”", ('"', "a", '"')),
        ("–—−‑", ("-", "-", "-", "-")),
        ("\t\u00a0\u2009\u3000", (" ", " ", " ", " ")),
        ("a\r\nb\rc", ("a", "\n", "b", "\n", "c")),
        ("éÅＢø", ("e", "A", "B", "o")),
        ("e\u0301", ("e", None)),
        ("ﬁ½世\0", (None, None, None, None)),
    ],
)
def test_characters_outside_the_alphabet_read_as_their_plain_form_or_not_at_all(
    text: str, read_as: tuple[str | None, ...]
) -> None:
    tokenizer = CharacterTokenizer("\n '\"-abcefioAB12/")
    assert tokenizer.read(text).read_as == read_as


def test_the_alphabet_comes_before_lookalikes_and_lookalikes_must_be_in_it() -> None:
    assert CharacterTokenizer("'’").read("’").read_as == ("’",)
    assert CharacterTokenizer("ab").read("’é\t").read_as == (None, None, None)


def test_unknown_characters_are_counted_most_frequent_first() -> None:
    reading = CharacterTokenizer("ab").read("a世界界b界")
    assert reading.unknown() == [("界", 3), ("世", 1)]
    assert reading.known.tolist() == [True, False, False, False, True, False]
    assert (reading.ids.tolist(), reading.owner.tolist()) == ([0, 1], [0, 4])


def test_strict_encoding_names_the_first_character_it_has_no_id_for() -> None:
    with pytest.raises(ValueError, match=r"'\\xe9' \(U\+00E9\) at position 2"):
        CharacterTokenizer("ab").encode("abé–")


def test_bytes_own_their_character_and_are_seen_only_if_all_of_them_were() -> None:
    reading = ByteTokenizer.fit("aé").read("aéè😀\ud800")
    assert reading.owner.tolist() == [0, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4]
    assert reading.ids[:5].tolist() == [0x61, 0xC3, 0xA9, 0xC3, 0xA8]
    assert reading.seen.tolist() == [True, True, False, False, False]
    assert reading.read_as == ("a", "é", "è", "😀", "\ud800")


def test_broken_bytes_decode_to_the_replacement_character() -> None:
    assert ByteTokenizer([]).decode([0x61, 0xC3, 0x62]) == "a\ufffdb"


@pytest.mark.parametrize("bad", [-1, 256])
def test_an_id_outside_the_vocabulary_does_not_decode(tokenizer: Tokenizer, bad: int) -> None:
    with pytest.raises(ValueError, match=f"expected ids from 0 to .*, got {bad}"):
        tokenizer.decode([0, bad])


def test_json_round_trip(tokenizer: Tokenizer) -> None:
    data = json.loads(json.dumps(tokenizer.to_json()))
    again = tokenizer_from_json(data)
    assert data["kind"] == tokenizer.kind
    assert again == tokenizer and type(again) is type(tokenizer)
    assert again.read("Bé\0").seen.tolist() == tokenizer.read("Bé\0").seen.tolist()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "words"}, "expected a tokenizer kind of characters, bytes, got 'words'"),
        ({}, "expected a tokenizer kind of characters, bytes, got None"),
        ({"kind": ["bytes"]}, "expected a tokenizer kind"),
        (["bytes"], "expected a tokenizer kind"),
        ({"kind": "characters"}, "expected `alphabet`"),
        ({"kind": "characters", "alphabet": "ba"}, "sorted by code point, got 'ba'"),
        ({"kind": "characters", "alphabet": "aab"}, "distinct characters"),
        ({"kind": "characters", "alphabet": ""}, "at least one character"),
        ({"kind": "bytes", "seen": "abc"}, "expected `seen`"),
        ({"kind": "bytes", "seen": [1.5]}, "expected `seen`"),
        ({"kind": "bytes", "seen": [256]}, "from 0 to 255, got 256"),
    ],
)
def test_malformed_json_is_refused_with_what_was_expected(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tokenizer_from_json(data)
