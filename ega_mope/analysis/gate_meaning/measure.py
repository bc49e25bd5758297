"""One model on one text: what each character is, against what each head does with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from ega_mope.analysis.gate_meaning import features as of_text
from ega_mope.analysis.gate_meaning.rank_correlation import Associations, Progress, associate
from ega_mope.analysis.windows import windows_over
from ega_mope.text import Reading

LEAST_MARKS = 10
"""A feature that fewer characters have, or lack, is not measured: with 7, a 95 % interval covers 87 %."""

FEATURES = (
    "rarity",
    "surprisal",
    "word start",
    "word end",
    "line end",
    "sentence end",
    "function word",
    "suffix start (approximate)",
    "earlier repeat",
    "position in window",
)

PerHead = Float[np.ndarray, "layer head character"]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Features of a text's characters, and how each head's outcomes go with them.

    `places` are the characters measured, `values` their features [feature, character]; `not_measured` says why
    not of the features left out. The pairs of each outcome are [feature, layer · heads + head].
    """

    characters: str
    places: Int[np.ndarray, " n"]
    features: tuple[str, ...]
    values: Float[np.ndarray, "feature n"]
    not_measured: dict[str, str]
    shape: tuple[int, int]
    outcomes: dict[str, Associations]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How intervals are made: bootstrap draws and their seed."""

    draws: int
    seed: int


def features_of(
    reading: Reading, surprisal: Float[np.ndarray, " character"], counts: Counter[str], context_length: int
) -> dict[str, Float[np.ndarray, " character"]]:
    """Every feature of FEATURES by character, NaN where unknown.

    Rarity and surprisal in nats, repeats in characters, the position in tokens from the start of the window that
    the character is taken from; the others are 1 or 0.
    """
    text = reading.characters
    values = (
        of_text.rarity(reading.read_as, counts),
        surprisal,
        of_text.word_starts(text),
        of_text.word_ends(text),
        of_text.line_ends(text),
        of_text.sentence_ends(text),
        of_text.function_words(text),
        of_text.suffix_starts(text),
        of_text.earlier_repeat(text),
        position_in_window(reading, context_length),
    )
    return {name: column.astype(np.float64) for name, column in zip(FEATURES, values, strict=True)}


def position_in_window(reading: Reading, context_length: int) -> Float[np.ndarray, " character"]:
    """Tokens before a character's first one in the window it is taken from; NaN where nothing is read."""
    found = np.full(len(reading.characters), np.nan)
    for window in windows_over(len(reading.ids), context_length):
        taken = np.arange(
            window.stop - 1, window.first - 1, -1
        )  # backwards, so a character's first token stays
        found[reading.owner[taken]] = taken - window.start
    return found


def measure(
    reading: Reading,
    features: dict[str, Float[np.ndarray, " character"]],
    outcomes: dict[str, PerHead],
    among: Bool[np.ndarray, " character"],
    sampling: Sampling,
    progress: Progress | None = None,
) -> Measured:
    """Correlate over the characters of `among` for which every feature and outcome is known.

    Each outcome, all heads together, is one family: its simultaneous intervals hold at once.
    """
    columns = [
        *features.values(),
        *(head for values in outcomes.values() for layer in values for head in layer),
    ]
    places = np.flatnonzero(among & np.isfinite(np.stack(columns)).all(axis=0))
    reasons = {name: _why_not(values[places]) for name, values in features.items()}
    names = tuple(name for name, reason in reasons.items() if reason is None)
    if not names:
        raise ValueError(
            f"text: expected one with at least {LEAST_MARKS} characters that differ in what is measured, got "
            f"{len(places)} characters that can be measured; choose a longer text"
        )
    chosen = np.stack([features[name][places] for name in names])
    found, total = {}, len(outcomes)
    for number, (outcome, values) in enumerate(outcomes.items()):
        found[outcome] = associate(
            chosen,
            values[..., places].reshape(-1, len(places)).astype(np.float64),
            draws=sampling.draws,
            seed=sampling.seed,
            progress=_part(progress, number, total),
        )
    first = next(iter(outcomes.values()))
    return Measured(
        characters=reading.characters,
        places=places,
        features=names,
        values=chosen,
        not_measured={name: reason for name, reason in reasons.items() if reason is not None},
        shape=(first.shape[0], first.shape[1]),
        outcomes=found,
    )


def _part(progress: Progress | None, number: int, total: int) -> Progress | None:
    return progress and (lambda done, draws: progress(number * draws + done, total * draws))


def _why_not(values: Float[np.ndarray, " n"]) -> str | None:
    """None, or why a feature with these values is not measured."""
    common = max(np.unique(values, return_counts=True)[1], default=0)
    if len(values) - common >= LEAST_MARKS:
        return None
    return f"only {len(values) - common} of {len(values):,} characters differ in it; {LEAST_MARKS} are needed"
