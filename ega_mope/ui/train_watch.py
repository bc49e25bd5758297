"""The runs that were ever started here: their state, a live view of one, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ega_mope import jobs
from ega_mope.analysis.live import Live, live
from ega_mope.analysis.runs import FUTURE_WORDS, marked_name, peak_memory_words
from ega_mope.plots.live import gates_figure, loss_figure, scales_figure
from ega_mope.runs import BrokenRun, Run, list_runs, runs_folder
from ega_mope.ui.catalogue import all_runs
from ega_mope.ui.frame import page_button
from ega_mope.ui.pickers import sees_future_badge
from ega_mope.ui.show import figure, marked, plain

BUSY = ("running", "queued")


def own_runs() -> list[tuple[Run, str]]:
    """The user's runs with their state: running first, then waiting in order, then the latest."""
    waiting = jobs.queued(runs_folder())
    found = [run for run in list_runs([runs_folder()]) if not isinstance(run, BrokenRun)]
    states = {run.name: jobs.state_of(run, waiting) for run in found}

    def order(run: Run) -> tuple[int, float]:
        state = states[run.name]
        if state == "queued":
            return 1, waiting.index(run.name)
        return (0 if state == "running" else 2), -(run.status.heartbeat or 0.0)

    return [(run, states[run.name]) for run in sorted(found, key=order)]


def watch() -> None:
    """Every run and its state, then the watched one; refreshed each second while something runs or waits."""
    busy = any(state in BUSY for _, state in own_runs())
    st.fragment(_watch, run_every=1.0 if busy else None)(busy)


def _watch(was_busy: bool) -> None:
    runs = own_runs()
    if not runs:
        st.caption(f"Nothing was trained yet in `{runs_folder()}`.")
        return
    jobs.ensure_worker(runs_folder())
    if was_busy != any(state in BUSY for _, state in runs):
        st.rerun()
    _table(runs)
    chosen = _choose(runs)
    run, state = next((run, state) for run, state in runs if run.name == chosen)
    _actions(run, state)
    if state == "failed":
        st.error(plain(run.status.error or "It failed without a word."), icon=":material/error:")
    others = [other for other in all_runs() if not isinstance(other, BrokenRun)]
    if run.config.training is not None:
        _show(run, state, live(run, others))


def _table(runs: list[tuple[Run, str]]) -> None:
    rows = []
    for run, state in runs:
        best = run.best()
        steps = run.config.training.steps if run.config.training else None
        rows.append(
            {
                "run": run.name,
                "state": state,
                "step": run.status.step,
                "of": steps,
                "best loss, nats": best.loss_nats if best else None,
                "sees the future": FUTURE_WORDS[run.sees_future],
            }
        )
    st.dataframe(
        marked(pd.DataFrame(rows)),
        width="stretch",
        hide_index=True,
        key="own-runs",
        height="content" if len(rows) < 8 else 320,
        placeholder="–",
    )


def _choose(runs: list[tuple[Run, str]]) -> str:
    names = [run.name for run, _ in runs]
    asked = st.query_params.get("run")
    st.session_state["watched"] = asked if asked in names else names[0]

    def remember() -> None:
        st.query_params["run"] = st.session_state["watched"]

    marked_names = {run.name: marked_name(run) for run, _ in runs}
    return st.selectbox(
        "Watch", names, format_func=marked_names.__getitem__, key="watched", on_change=remember
    )


def _actions(run: Run, state: str) -> None:
    row = st.container(horizontal=True)
    if state in BUSY:
        row.button("Stop", key="stop", icon=":material/stop:", on_click=jobs.stop, args=(run,))
    elif state in ("stopped", "interrupted", "failed") and run.config.training is not None:
        row.button(
            "Resume",
            key="resume",
            icon=":material/play_arrow:",
            on_click=jobs.put_back,
            args=(run.path.parent, run.name),
        )
    if state == "queued":
        row.button(
            "Move up",
            key="up",
            icon=":material/arrow_upward:",
            on_click=jobs.move_up,
            args=(run.path.parent, run.name),
        )
    if state not in BUSY:
        with row.popover("Delete", icon=":material/delete:"):
            st.markdown(f"Delete **{plain(run.name)}** with its weights and losses? This cannot be undone.")
            st.button("Delete it", key="delete", type="primary", on_click=_delete, args=(run,))


def _delete(run: Run) -> None:
    jobs.delete(run)
    st.query_params.pop("run", None)


def _show(run: Run, state: str, now: Live) -> None:
    st.progress(
        min(1.0, now.step / now.steps),
        text=f"{state}: step {now.step:,} of {now.steps:,}{_pace(state, now)}"
        + peak_memory_words(now.peak_memory_bytes),
    )
    st.markdown(sees_future_badge(run))
    ghost = now.ghost_run
    beaten = marked_name(ghost) if ghost else None
    figure(
        loss_figure(now.losses, now.ghost, beaten, now.steps),
        key="live-loss",
        alt=f"Loss of {run.name} by step",
        how_to_read="Thick: loss on text the model never trains on. Thin: loss on the training text. "
        + (
            f"Dotted: the best comparable run so far, {plain(beaten)}, measured on the same data."
            if beaten
            else "No other finished run was measured on the same data."
        ),
        table=now.losses,
        in_fragment=True,
    )
    _show_learned(now)
    if now.sample:
        st.markdown(f"**What it writes at step {now.sample[0]:,}**")
        st.code(now.sample[1], language=None, wrap_lines=True)
    if state == "finished":
        st.markdown("**Look at it**")
        row = st.columns(3)
        for column, page in zip(row, ("Learned_scales", "Energy_gates", "Compare_runs"), strict=True):
            with column:
                page_button(f"pages/{page}.py")


def _show_learned(now: Live) -> None:
    """How the scales and the gates move, where the model has any."""

    def draw(column: DeltaGenerator, table: pd.DataFrame, lines: Callable[..., Any], **said: Any) -> None:
        if len(table):
            with column:
                figure(lines(table), table=table, in_fragment=True, **said)

    left, right = st.columns(2)
    draw(
        left,
        now.scales,
        scales_figure,
        key="live-scales",
        alt="Bandwidth of every wavelet by step",
        how_to_read="One line a wavelet pair: how wide its window is, in tokens, as training moves it.",
    )
    draw(
        right,
        now.gates,
        gates_figure,
        key="live-gates",
        alt="Threshold of every gate by step",
        how_to_read="One line a head: how high a token's energy must be, compared with the others, to be kept.",
    )


def _pace(state: str, now: Live) -> str:
    if state != "running" or now.tokens_per_second is None:
        return ""
    left = "" if now.eta_seconds is None else f", about {_duration(now.eta_seconds)} left"
    return f", {now.tokens_per_second:,.0f} tokens/s{left}"


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


def say_estimate(estimate: jobs.Estimate, count: int) -> str:
    """The estimate in one line."""
    each = _duration(estimate.seconds)
    whole = (
        f", {_duration(estimate.seconds * count)} for all {count} one after the other" if count > 1 else ""
    )
    return (
        f"About {each} a run on this machine as busy as it is now{whole}; {estimate.parameters:,} parameters, "
        f"{estimate.weight_bytes / 1e6:.1f} MB of weights, {estimate.state_bytes / 1e6:.1f} MB more while it can be resumed."
    )
