"""Claims about what the mechanisms cost: parameters, counted, and computing, as measured."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ega_mope.analysis.claims.evidence import Evidence
from ega_mope.analysis.claims.outcome import Claim, Outcome, Paper, Part, Verdict
from ega_mope.analysis.intervals import Interval
from ega_mope.config import Plain, preset
from ega_mope.model import build_model

GROUP = "Cost"
MOST_OVERHEAD = 0.3
"""Per cent of the baseline's parameters: the paper's bound for EGA."""
SLOWEST = 0.97
"""A training speed that is surely above this share of the baseline's counts as no measurable cost."""


@lru_cache(maxsize=8)
def _count(size: str, attention: str, position: str) -> int:
    """Parameters of a model of a preset with these mechanisms at their defaults; made, since that is quick."""
    bare, _ = preset(size)
    model = build_model(replace(bare, attention={"name": attention}, position={"name": position}))
    return model.parameter_counts()["total"]


def overhead(size: str, attention: str, position: str = "learned") -> float:
    """Parameters that a mechanism adds to the baseline of a preset, in per cent of it; below 0 it saves some."""
    base = _count(size, "dot", "learned")
    return 100 * (_count(size, attention, position) - base) / base


def judge_overhead(evidence: Evidence) -> Outcome:
    """Counted at both sizes, so it needs no run."""
    sizes = {size: overhead(size, "ega") for size in ("paper", "small")}
    both = overhead("paper", "ega", "mope")
    worst = max(sizes.values())
    return Outcome(
        verdict="holds" if sizes["paper"] < MOST_OVERHEAD else "fails",
        unit="%",
        estimate=sizes["paper"],
        n=None,
        reason=f"counted, not measured; at the size of the shipped runs it is {sizes['small']:.3f} %, "
        f"{'below the bound too' if worst < MOST_OVERHEAD else 'above the bound'}",
        parts=(
            Part("EGA at preset `small`", sizes["small"], "%"),
            Part("EGA and MoPE at `paper`: MoPE needs no table of positions", both, "%"),
        ),
    )


def judge_speed(evidence: Evidence) -> Outcome:
    """Reads the training speeds of every machine that measured them; every cell with a gate counts, the slowest
    one is shown.

    Not `visible`, a gate a pair and none of the paper's: it stands beside them.
    """
    path = evidence.speed
    if path is None or not path.exists():
        return Outcome(
            verdict="undecided",
            unit="× speed",
            n=None,
            reason="no measured training speeds yet (benchmarks/train_speed.json)",
        )
    found = [
        (part, machine) for file in (path, *speeds_elsewhere(path)) for part, machine in _read_speeds(file)
    ]
    if not found:
        return Outcome(
            verdict="undecided",
            unit="× speed",
            n=None,
            reason=f"{path.name} has no cell with energy-gated attention",
        )
    judged = [one for one in found if "visible" not in one[0].name] or found
    slowest, machine = min(judged, key=lambda one: one[0].estimate or 0.0)
    verdict = _speed_verdict([part for part, _ in judged])
    word = {
        "holds": f"every gated model trains at over {SLOWEST} of the baseline's speed",
        "fails": f"{slowest.name} is surely slower than the baseline",
        "undecided": "the intervals leave both open",
    }
    several = len({machine for _, machine in found}) > 1
    return Outcome(
        verdict=verdict,
        unit="× speed",
        estimate=slowest.estimate,
        interval=slowest.interval,
        n=None,
        reason=f"{word[verdict]} (tokens a second; {machine})",
        parts=tuple(
            replace(part, name=f"{part.name} ({machine.partition(', ')[0]})") if several else part
            for part, machine in found
        ),
    )


def speeds_elsewhere(path: Path) -> list[Path]:
    """Training speeds that other machines measured, in the folder `elsewhere` beside a file of measured speeds."""
    return sorted((path.parent / "elsewhere").glob("*.json"))


def _read_speeds(path: Path) -> list[tuple[Part, str]]:
    """Each model with a gate in a file of measured speeds, and the machine in words."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        parts = [_speed(row) for row in document["rows"] if row["cell"].startswith("EGA")]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path.name}: expected rows with cell, dropout, ratio_to_baseline and ratio_interval, got none of "
            f"{error}; measure again"
        ) from error
    return [(part, _machine(document)) for part in parts]


def _machine(document: Plain) -> str:
    """What it was measured on, in words."""
    machine = document.get("machine") or "machine not recorded"
    if isinstance(machine, dict):
        return ", ".join(f"{key} {value}" for key, value in machine.items() if key != "load_average")
    return str(machine)


def _speed(row: Plain) -> Part:
    interval = row["ratio_interval"]
    return Part(
        f"{row['cell']}, dropout {row['dropout']:g}",
        float(row["ratio_to_baseline"]),
        "× speed",
        Interval(*map(float, interval)) if interval else None,
    )


def _speed_verdict(parts: list[Part]) -> Verdict:
    known = [part.interval for part in parts if part.interval]
    if any(interval.high < SLOWEST for interval in known):
        return "fails"
    whole = len(known) == len(parts) and all(interval.low > SLOWEST for interval in known)
    return "holds" if whole else "undecided"


CLAIMS = [
    Claim(
        id="overhead",
        group=GROUP,
        sentence=f"EGA adds less than {MOST_OVERHEAD} % of parameters",
        test="Counted: parameters of EGA minus the baseline's, over the baseline's, at the paper's size.",
        paper=Paper(MOST_OVERHEAD, "less than"),
        judge=judge_overhead,
    ),
    Claim(
        id="no-compute",
        group=GROUP,
        sentence="EGA costs no measurable computing",
        test=f"Every model with one gate a token trains at more than {SLOWEST} of the baseline's tokens a second "
        f"(95 % interval of the ratio, measured side by side); it fails where any is surely below {SLOWEST} on a machine "
        "that was measured.",
        paper=Paper(None, "“no measurable compute”, without a number"),
        judge=judge_speed,
    ),
]
