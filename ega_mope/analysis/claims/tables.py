"""Judged claims as tables, JSON and Markdown: what the page, the command line and the report show."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ega_mope.analysis.claims.outcome import Judged, Outcome
from ega_mope.analysis.compare import FUTURE_MARK
from ega_mope.analysis.intervals import Interval
from ega_mope.analysis.runs import FUTURE_WORDS, any_sees_future
from ega_mope.config import Plain

FORMS = {
    "nats": "+.4f",
    "%": ".1f",
    "sd": "+.3f",
    "log units": "+.3f",
    "×": ".3f",
    "× speed": ".3f",
    "r": ".2f",
    "share of runs": ".2f",
    "AUC": ".3f",
}
"""How numbers of a unit are written; gains carry their sign."""

VERDICTS: tuple[str, ...] = ("holds", "fails", "undecided")


def number(value: float | None, unit: str, *, with_unit: bool = True) -> str:
    """A number as it is shown; "–" for none. Shares that are far from whole per cents keep three digits."""
    if value is None:
        return "–"
    form = ".3f" if unit == "%" and 0 < abs(value) < 1 else FORMS.get(unit, ".4g")
    return f"{value:{form}} {unit}" if with_unit else f"{value:{form}}"


def interval_text(interval: Interval | None, unit: str) -> str:
    """Its ends in square brackets; "–" for none."""
    if interval is None:
        return "–"
    low, high = (number(end, unit, with_unit=False) for end in (interval.low, interval.high))
    return f"[{low}, {high}]"


def count_text(outcome: Outcome) -> str:
    """Such as "6 seeds"; "exact" where nothing was sampled, "–" where there is nothing."""
    if outcome.n is None:
        return "–" if outcome.estimate is None else "exact" if outcome.interval is None else "measured"
    return f"{outcome.n} {outcome.n_of.removesuffix('s') if outcome.n == 1 else outcome.n_of}"


def summary(judged: Sequence[Judged]) -> str:
    """How many claims hold, fail and are undecided."""
    verdicts = [str(one.outcome.verdict) for one in judged]
    holds, fails, undecided = map(verdicts.count, VERDICTS)
    return (
        f"Of {len(judged)} claims {holds} {'holds' if holds == 1 else 'hold'}, {fails} {'fails' if fails == 1 else 'fail'} "
        f"and {undecided} {'is' if undecided == 1 else 'are'} undecided."
    )


def sentence(one: Judged) -> str:
    """The claim, marked where what it rests on sees the future."""
    return f"{f'{FUTURE_MARK} ' if one.outcome.sees_future else ''}{one.claim.sentence}"


def claims_table(judged: Sequence[Judged]) -> pd.DataFrame:
    """One row a claim, numbers in full precision and in the claim's unit."""
    return pd.DataFrame(
        [
            {
                "claim": sentence(one),
                "verdict": one.outcome.verdict,
                "estimate": one.outcome.estimate,
                "95 % from": one.outcome.interval.low if one.outcome.interval else None,
                "95 % to": one.outcome.interval.high if one.outcome.interval else None,
                "unit": one.outcome.unit,
                "N": one.outcome.n,
                "N of": one.outcome.n_of if one.outcome.n is not None else count_text(one.outcome),
                "the paper's": one.claim.paper.value,
                "the paper's note": one.claim.paper.note,
                "why": one.outcome.reason,
                "test": one.claim.test,
                "sees the future": FUTURE_WORDS[any_sees_future(one.outcome.runs)],
                "runs": ", ".join(run.name for run in one.outcome.runs),
                "to decide": "; ".join(one.outcome.commands),
                "group": one.claim.group,
                "id": one.claim.id,
            }
            for one in judged
        ]
    )


def parts_table(one: Judged) -> pd.DataFrame:
    """The numbers that a verdict rests on, and those beside it, as they are shown."""
    outcome = one.outcome
    rows = [(outcome.estimate, outcome.unit, outcome.interval, outcome.n, "what decides")]
    rows += [(part.estimate, part.unit, part.interval, part.n, part.name) for part in outcome.parts]
    return pd.DataFrame(
        [
            {
                "what": name,
                "estimate": number(estimate, unit),
                "95 % interval": interval_text(interval, unit),
                "N": "–" if n is None else str(n),
            }
            for estimate, unit, interval, n, name in rows
        ]
    )


def to_json(judged: Sequence[Judged]) -> list[Plain]:
    """The answer of `ega-mope claims --json`."""
    return [_one_json(one) for one in judged]


def _one_json(one: Judged) -> Plain:
    claim, outcome = one.claim, one.outcome
    return {
        "id": claim.id,
        "group": claim.group,
        "claim": claim.sentence,
        "test": claim.test,
        "verdict": outcome.verdict,
        "reason": outcome.reason,
        "estimate": outcome.estimate,
        "unit": outcome.unit,
        "interval": _pair(outcome.interval),
        "n": outcome.n,
        "n_of": outcome.n_of if outcome.n is not None else None,
        "paper": claim.paper.value,
        "paper_note": claim.paper.note,
        "sees_future": outcome.sees_future,
        "runs": [run.name for run in outcome.runs],
        "parts": [
            {
                "name": part.name,
                "estimate": part.estimate,
                "unit": part.unit,
                "interval": _pair(part.interval),
                "n": part.n,
            }
            for part in outcome.parts
        ],
        "commands": list(outcome.commands),
    }


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


SHOWN = ("claim", "verdict", "estimate", "95 % interval", "N", "the paper's")


def shown_rows(judged: Sequence[Judged]) -> list[tuple[str, ...]]:
    """The columns SHOWN of each claim, as text."""
    return [
        (
            sentence(one),
            one.outcome.verdict,
            number(one.outcome.estimate, one.outcome.unit),
            interval_text(one.outcome.interval, one.outcome.unit),
            count_text(one.outcome),
            number(one.claim.paper.value, one.outcome.unit),
        )
        for one in judged
    ]


def markdown(judged: Sequence[Judged]) -> str:
    """One table a group of claims, then why each undecided one is."""
    lines = []
    for group in dict.fromkeys(one.claim.group for one in judged):
        members = [one for one in judged if one.claim.group == group]
        lines += [f"#### {group}", "", f"| {' | '.join(SHOWN)} |", "|---|---|---:|---|---|---:|"]
        for cells in shown_rows(members):
            verdict = cells[1] if cells[1] == "undecided" else f"**{cells[1]}**"
            lines.append("| " + " | ".join(map(escaped, (cells[0], verdict, *cells[2:]))) + " |")
        lines += [
            "",
            *(f"- *{escaped(sentence(one))}*: {escaped(one.outcome.reason)}." for one in members),
            "",
        ]
    return "\n".join(lines).strip()


def escaped(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return text.replace("|", "\\|")
