"""Judged claims as the page reads them: from a cache that a change of any run's files renews."""

from __future__ import annotations

import streamlit as st

from ega_mope.analysis import claims as analysis
from ega_mope.analysis.claims import Judged, tables
from ega_mope.ui.catalogue import all_runs, signature
from ega_mope.ui.pickers import sees_future_badge
from ega_mope.ui.show import plain

COLOURS = {"holds": "green", "fails": "red", "undecided": "gray"}
ICONS = {"holds": "check_circle", "fails": "cancel", "undecided": "help"}


def read_claims() -> list[Judged]:
    """What all runs say of every claim."""
    speed = analysis.speed_file()
    changed = speed.stat().st_mtime_ns if speed.exists() else None
    return _judge(signature(), changed)


@st.cache_resource(max_entries=2, show_spinner="Judging the claims …")
def _judge(signature: object, speed_changed: int | None) -> list[Judged]:
    return analysis.judge(all_runs())


def badge(verdict: str) -> str:
    """Markdown that marks a verdict by colour, icon and word."""
    return f":{COLOURS[verdict]}-badge[:material/{ICONS[verdict]}: {verdict}]"


def show_claim(one: Judged) -> None:
    """One claim to open: its test, its numbers, the paper's number, its runs, what would decide it."""
    claim, outcome = one.claim, one.outcome
    with st.expander(f"{badge(outcome.verdict)} {plain(tables.sentence(one))}"):
        future = next((run for run in outcome.runs if run.sees_future is not False), None)
        paper = tables.number(claim.paper.value, outcome.unit)
        said = (
            plain(claim.paper.note)
            if claim.paper.value is None
            else f"{plain(paper)} ({plain(claim.paper.note)})"
        )
        lines = [
            f"**Test.** {plain(claim.test)}",
            f"**What the runs say.** {plain(outcome.reason)}. {sees_future_badge(future) if future else ''}",
            _numbers(one),
            f"**The paper's number (theirs, not measured here).** {said}",
            f"**Runs used ({len(outcome.runs)}).** {', '.join(plain(run.name) for run in outcome.runs) or 'none'}",
        ]
        st.markdown("\n\n".join(lines))
        if outcome.commands:
            st.markdown("**What would decide it**")
            st.code("\n".join(outcome.commands), language="bash", wrap_lines=True)


def _numbers(one: Judged) -> str:
    """The parts as a Markdown table."""
    table = tables.parts_table(one)
    rows = [table.columns.tolist(), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    return "\n".join(
        "| " + " | ".join(cell if cell == "---" else plain(cell) for cell in row) + " |" for row in rows
    )
