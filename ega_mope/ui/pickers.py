"""Choosing runs: what is chosen lives in the URL, and what a page cannot show says why."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from ega_mope.analysis.runs import future_mark, marked_name
from ega_mope.runs import Run
from ega_mope.ui.catalogue import nearest, preferred_runs, run_id
from ega_mope.ui.show import plain

Needs = Callable[[Run], str | None]
"""None, or the reason why a page cannot show this run."""

NO_RUN = "none"
HOW_TO_TRAIN = "`ega-mope train --attention ega --position mope --preset smoke` makes one in seconds"


FUTURE_BADGE = ":orange-badge[:material/visibility: sees the future]"
"""Markdown that marks whatever sees the future."""


def pick_run(
    needs: Needs | None = None,
    *,
    key: str = "run",
    label: str = "Run",
    prefer: Callable[[Run], bool] | None = None,
) -> Run:
    """A run picker bound to `?key=`; ends the page where there is nothing it can show.

    Opens on a run with gates and scales that `needs` lets through, if there is one first on one that
    satisfies `prefer`. Runs that this page cannot show are listed last, with the reason; if one is
    chosen, the page says so, offers the nearest run that works, and ends.
    """
    runs = {run_id(run): run for run in preferred_runs()}
    if not runs:
        st.info(f"There are no runs yet. {HOW_TO_TRAIN}.", icon=":material/info:")
        st.stop()
    reasons = {name: needs(run) if needs else None for name, run in runs.items()}
    works = [name for name in runs if reasons[name] is None]
    blocked = sorted(name for name in runs if reasons[name] is not None)
    first = next((name for name in works if prefer and prefer(runs[name])), [*works, *blocked][0])

    asked = st.query_params.get(key)
    if asked is not None and asked not in runs:
        st.warning(
            f"There is no run called {plain(asked)}; this is {plain(first)}.", icon=":material/warning:"
        )
    labels = {name: _label(name, run, reasons[name]) for name, run in runs.items()}
    chosen = select_run(label, key, [*sorted(works), *blocked], labels, asked if asked in runs else first)
    reason = reasons[chosen]
    if reason is not None:
        _offer(key, chosen, reason, nearest(runs[chosen], [runs[name] for name in works]))
    return runs[chosen]


def _label(name: str, run: Run, reason: str | None) -> str:
    """A run's name with what must never be missing beside it."""
    marked = marked_name(run, name)
    return f"{marked} — {reason}" if reason else marked


def select_run(label: str, key: str, options: list[str], labels: dict[str, str], value: str) -> str:
    """The URL decides and is written by the widget, so links, the back button and clicks all agree.

    Streamlit's own binding would put the label, with its mark and reason, into the URL.
    """
    widget = f"picked-{key}"
    st.session_state[widget] = value
    return st.selectbox(
        label,
        options,
        format_func=labels.__getitem__,
        key=widget,
        on_change=lambda: _open(key, st.session_state[widget]),
    )


def _open(key: str, name: str) -> None:
    st.query_params[key] = name


def _offer(key: str, chosen: str, reason: str, other: Run | None) -> None:
    st.info(f"This page cannot show **{plain(chosen)}**: {plain(reason)}.", icon=":material/info:")
    if other is None:
        st.markdown(f"No run here can be shown on this page. {HOW_TO_TRAIN}.")
    else:
        st.button(
            f"Open {plain(marked_name(other))}",
            key=f"nearest-{key}",
            type="primary",
            on_click=_open,
            args=(key, run_id(other)),
        )
    st.stop()


def pick_runs(
    needs: Needs | None = None,
    *,
    key: str = "runs",
    label: str = "Runs",
    default: Callable[[list[Run]], list[Run]] = lambda runs: runs,
) -> list[Run]:
    """A picker of several runs bound to `?key=`; those that the page cannot show are left out and counted.

    Opens on `default` of the runs that can be shown: all of them unless told otherwise.
    """
    every = {run_id(run): run for run in preferred_runs()}
    runs = {name: every[name] for name in sorted(every) if not needs or needs(every[name]) is None}
    if not runs:
        st.info(f"There are no runs to show here yet. {HOW_TO_TRAIN}.", icon=":material/info:")
        st.stop()
    opened = [run_id(run) for run in default(list(runs.values()))]
    asked = [name for name in st.query_params.get_all(key) if name in runs]
    # Bound by hand, as `select_run` is: the URL holds names without their marks.
    widget = f"picked-{key}"
    st.session_state[widget] = asked or opened
    chosen = st.multiselect(
        label,
        list(runs),
        format_func=lambda name: marked_name(runs[name], name),
        key=widget,
        on_change=lambda: st.query_params.__setitem__(key, st.session_state[widget]),
    )
    left_out = len(every) - len(runs)
    if left_out:
        st.caption(f"{left_out} of {len(every)} runs cannot be shown on this page.")
    return [runs[name] for name in chosen]


def pick_beside(
    first: Run, candidates: list[Run], opened: Run | None, label: str = "Beside it"
) -> Run | None:
    """Another of `candidates` to stand beside `first`, bound to `?beside=`; opens on `opened`, and may be none."""
    able = {run_id(run): run for run in candidates if run.path != first.path}
    options = [NO_RUN, *sorted(able)]
    labels = {NO_RUN: NO_RUN} | {name: marked_name(run, name) for name, run in able.items()}
    asked = st.query_params.get("beside")
    shown = asked if asked in options else run_id(opened) if opened else NO_RUN
    return able.get(select_run(label, "beside", options, labels, shown))


def sees_future_badge(run: Run) -> str:
    """Markdown that marks a run whose mechanisms let later tokens in; empty for a causal one."""
    return future_badge(run.sees_future)


def future_badge(sees_future: bool | None) -> str:
    """The same for whatever may see the future, such as runs that are shown as one."""
    if sees_future is None:
        return f":gray-badge[:material/help: {future_mark(None)}]"
    return FUTURE_BADGE if sees_future else ""
