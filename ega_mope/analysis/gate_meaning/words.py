"""Correlates in words and tables: a sentence a head, a row a correlation, one plain document."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from ega_mope.analysis.gate_meaning.correlates import Correlates
from ega_mope.analysis.gate_meaning.measure import FEATURES, Measured
from ega_mope.analysis.plain import plain_rows
from ega_mope.config import Plain

MANY = (
    "ρ is the partial rank correlation, all other features held. A sentence counts it only where its interval excludes "
    "zero after widening, so that those of all heads and features hold at once in about 95 of 100 texts (Bonferroni); a row's "
    "other intervals are for that row alone."
)
"""How the many comparisons are treated."""

PLURAL = {
    "rarity": "rarity",
    "surprisal": "surprisal",
    "word start": "word starts",
    "word end": "word ends",
    "line end": "line ends",
    "sentence end": "sentence ends",
    "function word": "function words",
    "suffix start (approximate)": "suffix starts (approximate)",
    "earlier repeat": "earlier repeats",
    "position in window": "the position in the window",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one head's gate goes with most, all other features held; layer and head count from 1.

    `feature` is None where every widened interval covers zero. `partial`, `low` and `high` are the correlation
    and its widened interval, `shuffled` the same correlation on the shuffled text, NaN where there is none.
    """

    layer: int
    head: int
    sentence: str
    feature: str | None = None
    partial: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    shuffled: float = float("nan")


def verdicts(found: Correlates) -> list[Verdict]:
    """One a head, in order of layers and heads."""
    pairs, heads = found.text.outcomes["gate"], found.text.shape[1]
    low, high = pairs.partial_at_once()
    counted = (low > 0) | (high < 0)  # NaN counts as no
    answers = []
    for place in range(pairs.partial.shape[1]):
        at_head = partial(Verdict, layer=place // heads + 1, head=place % heads + 1)
        column = pairs.partial[:, place]
        ranked = sorted(np.flatnonzero(counted[:, place]).tolist(), key=lambda at: -abs(column[at]))
        ends = [(float(column[at]), float(low[at, place]), float(high[at, place])) for at in ranked]
        names = [found.text.features[at] for at in ranked]
        if not ranked:
            nothing = "follows nothing that was measured here: every interval covers zero"
            answers.append(at_head(sentence=nothing))
            continue
        again, counts = _on_shuffled(found.shuffled, names[0], place)
        sentence = f"{_clause(names[0], ends[0])}{_shuffled_clause(ends[0][0], again, counts)}"
        sentence += f"; next it {_clause(names[1], ends[1])}" if len(ranked) > 1 else ""
        answers.append(
            at_head(
                sentence=sentence,
                feature=names[0],
                partial=ends[0][0],
                low=ends[0][1],
                high=ends[0][2],
                shuffled=again,
            )
        )
    return answers


def _on_shuffled(control: Measured, feature: str, place: int) -> tuple[float, bool]:
    """The same correlation on the shuffled text, and whether its widened interval excludes zero."""
    if feature not in control.features:
        return float("nan"), False
    at = control.features.index(feature)
    low, high = control.outcomes["gate"].partial_at_once()
    return float(control.outcomes["gate"].partial[at, place]), bool(low[at, place] > 0 or high[at, place] < 0)


def _clause(feature: str, ends: tuple[float, float, float]) -> str:
    verb = "follows" if ends[0] > 0 else "shuns"
    return f"{verb} {PLURAL[feature]}, ρ = {_rho(ends[0])} [{_rho(ends[1])}, {_rho(ends[2])}]"


def _shuffled_clause(partial: float, again: float, counts: bool) -> str:
    if np.isnan(again):
        return " (not measurable on the shuffled text)"
    return f" ({'also' if counts and again * partial > 0 else 'not'} on the shuffled text: {_rho(again)})"


def _rho(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def summary(found: Correlates) -> str:
    """How many heads go with what, in a sentence."""
    every = verdicts(found)
    tally = [(sum(v.feature == name for v in every), PLURAL[name]) for name in FEATURES]
    parts = [f"{count} with {name}" for count, name in sorted(tally, reverse=True) if count]
    nothing = sum(v.feature is None for v in every)
    parts += [f"{nothing} with nothing that was measured"] if nothing else []
    return f"What the gates of {len(every)} heads go with most: {', '.join(parts)}."


def rarity_sentence(found: Correlates) -> str:
    """The paper's argument held against the baseline: does plain attention tell rare characters apart?"""
    if found.baseline is None:
        return f"No baseline beside it: {found.baseline_note}."
    gate = _counted(found.text, "gate", "rarity")
    plain = _counted(found.baseline, "attention received", "rarity")
    if gate is None or plain is None:
        return "Rarity could not be measured on this text."
    differs = f" ({found.baseline_note})" if found.baseline_note else ""
    return (
        f"With all else held, the attention that a character receives in {found.baseline_run}{differs}, which has no "
        f"gates, goes with rarity in {plain} heads; here the gates do in {gate}."
    )


def _counted(measured: Measured, outcome: str, feature: str) -> str | None:
    """Such as "3 of 16": the heads whose widened interval excludes zero."""
    if feature not in measured.features:
        return None
    low, high = (
        ends[measured.features.index(feature)] for ends in measured.outcomes[outcome].partial_at_once()
    )
    return f"{int(((low > 0) | (high < 0)).sum())} of {len(low)}"


def measured_notes(found: Correlates) -> list[str]:
    """How much was measured, where rarity comes from, and what could not be measured."""
    read = f"the first {found.characters:,} of " if found.characters < found.characters_in_all else ""
    return [
        f"{len(found.text.places):,} characters measured of {read}{found.characters_in_all:,}",
        f"rarity is counted in {found.rarity_from}",
        *(f"{name} is not measured: {why}" for name, why in found.text.not_measured.items()),
    ]


def notes(found: Correlates) -> list[str]:
    """What belongs beside any of these numbers, line by line."""
    future = {
        True: f"{found.run} sees the future: what its gates and its surprisal go with may be what comes later",
        None: f"it is not known whether {found.run} sees the future",
    }
    lines = [future[found.sees_future]] if found.sees_future in future else []
    lines += [found.notice] if found.notice else []
    return [*lines, *measured_notes(found), summary(found), rarity_sentence(found), MANY]


def verdict_table(found: Correlates) -> pd.DataFrame:
    """A row a head: the sentence, and its numbers."""
    rows = [
        {
            "layer": v.layer,
            "head": v.head,
            "its gate": v.sentence,
            "partial ρ": v.partial,
            "low": v.low,
            "high": v.high,
            "partial ρ, shuffled": v.shuffled,
        }
        for v in verdicts(found)
    ]
    return pd.DataFrame(rows)


def correlations_table(found: Correlates) -> pd.DataFrame:
    """A row a text, outcome, head and feature; layers and heads count from 1.

    `rho` is Spearman's, `partial` holds all other features. Intervals: each row's alone, and `at_once` those of
    the outcome's partial correlations together.
    """
    parts = [_rows(found.text, found.run, "as it is"), _rows(found.shuffled, found.run, "shuffled")]
    if found.baseline is not None:
        parts.append(_rows(found.baseline, str(found.baseline_run), "as it is"))
    return pd.concat(parts, ignore_index=True)


def _rows(measured: Measured, run: str, text: str) -> pd.DataFrame:
    heads = measured.shape[1]
    parts = []
    for outcome, pairs in measured.outcomes.items():
        feature, place = (index.ravel() for index in np.indices(pairs.partial.shape))
        columns = {"rho": pairs.rho, "partial": pairs.partial}
        for name, ends in (
            ("rho", pairs.rho_interval()),
            ("partial", pairs.partial_interval()),
            ("at_once", pairs.partial_at_once()),
        ):
            columns |= {f"{name}_low": ends[0], f"{name}_high": ends[1]}
        labels = {
            "run": run,
            "text": text,
            "outcome": outcome,
            "layer": place // heads + 1,
            "head": place % heads + 1,
            "feature": np.array(measured.features, dtype=object)[feature],
        }
        parts.append(pd.DataFrame(labels | {name: values.ravel() for name, values in columns.items()}))
    return pd.concat(parts, ignore_index=True)


def characters_table(measured: Measured) -> pd.DataFrame:
    """The measured characters and their features, a row each."""
    table = pd.DataFrame(
        {"position": measured.places, "text": [measured.characters[p] for p in measured.places]}
    )
    return table.assign(**dict(zip(measured.features, measured.values, strict=True)))


def to_json(found: Correlates) -> Plain:
    """The answer of `ega-mope correlates --json`; NaN is null."""
    pairs = found.text.outcomes["gate"]
    return {
        "run": found.run,
        "sees_future": found.sees_future,
        "notice": found.notice,
        "characters": {
            "in_all": found.characters_in_all,
            "read": found.characters,
            "measured": len(found.text.places),
        },
        "rarity_from": found.rarity_from,
        "bootstrap": {"draws": pairs.draws, "block": pairs.block, "seed": found.sampling.seed},
        "comparisons": MANY,
        "features": list(found.text.features),
        "not_measured": found.text.not_measured,
        "baseline": {"run": found.baseline_run, "note": found.baseline_note},
        "summary": summary(found),
        "rarity": rarity_sentence(found),
        "heads": plain_rows(verdict_table(found)),
        "correlations": plain_rows(correlations_table(found)),
    }
