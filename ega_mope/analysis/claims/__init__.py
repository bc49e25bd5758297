"""The published claims and the lab's own questions, each with the test that would confirm it, judged on runs.

`CLAIMS` is the table, in order; `judge` applies every test to whatever runs there are. Nothing here is written by
hand but the sentences and the tests: verdicts, estimates and intervals come from the run folders.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ega_mope.analysis.claims import ablations, agreement, cost, gates, losses, planted, scales
from ega_mope.analysis.claims.evidence import Evidence
from ega_mope.analysis.claims.outcome import RULES, Claim, Interval, Judged, Outcome, Paper, Part
from ega_mope.runs import BrokenRun, Run

CLAIMS: tuple[Claim, ...] = (
    *losses.CLAIMS,
    *cost.CLAIMS,
    *gates.CLAIMS,
    *ablations.CLAIMS,
    *scales.CLAIMS,
    *agreement.CLAIMS,
    *planted.CLAIMS,
)
"""Every claim, in the order in which it is shown."""


def speed_file() -> Path:
    """Where the measured training speeds are that come with the lab."""
    return Path(__file__).resolve().parents[3] / "benchmarks" / "train_speed.json"


def judge(runs: Iterable[Run | BrokenRun], speed: Path | None = None) -> list[Judged]:
    """What these runs say of every claim; broken folders and runs trained elsewhere do not count.

    `speed` is the file of measured training speeds, else `speed_file()`.
    """
    evidence = Evidence((run for run in runs if isinstance(run, Run)), speed or speed_file())
    return [Judged(claim, claim.judge(evidence)) for claim in CLAIMS]


__all__ = [
    "CLAIMS",
    "RULES",
    "Claim",
    "Interval",
    "Judged",
    "Outcome",
    "Paper",
    "Part",
    "judge",
    "speed_file",
]
