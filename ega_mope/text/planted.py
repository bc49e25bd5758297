"""A generated language whose answers are known: which lag predicts a token, and which tokens are needed later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DISTANCES = (4, 12, 36)
"""The planted lags, in tokens: all fit a context of 128 several times over."""

TAGS = {"A": 4, "B": 12, "C": 36}
"""The first token of a sentence says its lag."""

CONSONANTS, VOWELS = "bdkmst", "aeiouy"
MARKER, QUESTION, VALUES = "M", "?", "0123456789"
CHANCE = 1 / len(CONSONANTS)
"""How often two letters of one kind agree that were drawn apart."""

_SHORTEST, _LENGTHS = 64, 17
"""The body of a sentence has 64, 66 … 96 tokens: one even number of these."""
_QUESTIONS = 3


@dataclass(frozen=True)
class Planted:
    """A text with the truth about each of its tokens (one character each).

    `distance_of_token[t]` is the planted lag D at which text[t] repeats text[t − D], 0 where none is planted.
    `marker[t]` is True where the token is a value that the same sentence asks for again later.
    """

    text: str
    distances: tuple[int, ...]
    distance_of_token: NDArray[np.int64]
    marker: NDArray[np.bool_]


def planted(length: int = 300_000, seed: int = 0) -> Planted:
    """`length` tokens of the planted language; the same on every machine, a longer one begins with a shorter.

    A sentence is a tag, a body and a newline: `Bkatosu…M7…deba?7…`. The tag (A, B, C) gives the lag D (4, 12, 36).
    Body letters alternate between consonants and vowels, 6 of each. Where a letter stands D tokens before, three
    in four repeat it and are labelled D; all other letters are drawn freely and agree with any other of their kind
    by chance, 1 in 6. Three times a sentence says `M` and a value, a digit, and asks for it again with `?` after 2
    tokens or up to some 30: the answer is the latest digit, and nothing else tells it. The answer itself is the same
    kind of token and is needed by nobody, a control for whoever looks at what gates keep.

    A lag's multiples agree more often than chance too, since a repeat may be repeated: at 12 tokens
    under tag A, for one. Only the planted lag agrees always. A marker whose question lies beyond the end of
    the text is not labelled. Raises ValueError for a length below 1 or a negative seed.
    """
    if length < 1:
        raise ValueError(f"planted: expected a length of at least 1 token, got {length}; ask for more")
    if seed < 0:
        raise ValueError(f"planted: expected a seed of at least 0, got {seed}; choose another")
    draws = _draws(seed)
    text: list[str] = []
    distances: list[int] = []
    marker: list[bool] = []
    while len(text) < length:
        sentence, lags, answer_of = _sentence(draws)
        marker += [
            place in answer_of and len(text) + answer_of[place] < length for place in range(len(sentence))
        ]
        text += sentence
        distances += lags
    return Planted(
        text="".join(text[:length]),
        distances=DISTANCES,
        distance_of_token=np.array(distances[:length], np.int64),
        marker=np.array(marker[:length], np.bool_),
    )


def _sentence(draws: Iterator[int]) -> tuple[list[str], list[int], dict[int, int]]:
    """Tokens, the planted lag of each (0: none), and where each value that is asked for again is answered."""
    tag = tuple(TAGS)[next(draws) % len(TAGS)]
    lag = TAGS[tag]
    body = _SHORTEST + 2 * (next(draws) % _LENGTHS)
    asked, answer_of = _questions(body, draws)
    tokens, lags = [tag], [0]
    for place in range(1, body + 1):
        # Both draws are taken for every letter, so that none depends on how the others fell.
        repeats, fresh = next(draws) % 4 > 0, next(draws)
        letters = CONSONANTS if place % 2 else VOWELS
        before = tokens[place - lag] if place > lag else ""
        if place in asked:
            planted_token, planted_lag = asked[place], 0
        elif repeats and before and before in letters:
            planted_token, planted_lag = before, lag
        else:
            planted_token, planted_lag = letters[fresh % len(letters)], 0
        tokens.append(planted_token)
        lags.append(planted_lag)
    return [*tokens, "\n"], [*lags, 0], answer_of


def _questions(body: int, draws: Iterator[int]) -> tuple[dict[int, str], dict[int, int]]:
    """What stands where in a body: in each third `M`, value in its first half and `?`, value in its second; and
    the place of each answer by the place of its value. Pairs start at odd places, where a consonant would."""
    asked: dict[int, str] = {}
    answer_of: dict[int, int] = {}
    quarter = body // (4 * _QUESTIONS)
    for start in range(1, 4 * quarter * _QUESTIONS, 4 * quarter):
        value = VALUES[next(draws) % len(VALUES)]
        marked_at = start + 2 * (next(draws) % quarter)
        question_at = start + 2 * (quarter + next(draws) % quarter)
        asked |= {marked_at: MARKER, marked_at + 1: value, question_at: QUESTION, question_at + 1: value}
        answer_of[marked_at + 1] = question_at + 1
    return asked, answer_of


def _draws(seed: int) -> Iterator[int]:
    """PCG64's raw 64-bit integers: the one stream that numpy promises never to change."""
    source = np.random.PCG64(seed)
    while True:
        yield from source.random_raw(4096).tolist()
