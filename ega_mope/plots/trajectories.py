"""Figures of scales through training: every pair's way, and how far they moved against what was possible."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots import style
from ega_mope.plots.scales import LOG_TICKS, OMEGA, SIGMA, log_ticks


def ways(table: pd.DataFrame, quantity: str, clusters: Mapping[int, int]) -> go.Figure:
    """Each pair's `quantity` (sigma or omega) by step, coloured as its group in the plane.

    `table` has the columns step, pair and `quantity`; `clusters` the group of each pair, counted from 1.
    """
    fig = style.figure(
        "training step", SIGMA if quantity == "sigma" else OMEGA, y_log=True, height=320, uirevision=quantity
    )
    groups = table["pair"].map(clusters)
    for group in sorted(set(clusters.values())):
        lines = _broken_between_pairs(table[groups == group], quantity)
        fig.add_scatter(
            x=lines["step"],
            y=lines[quantity],
            customdata=lines["pair"],
            mode="lines",
            name=f"cluster {group}",
            line={"color": style.LINE_COLOURS[(group - 1) % len(style.LINE_COLOURS)], "width": 1},
            opacity=0.7,
            hovertemplate="pair %{customdata}<br>step %{x}: %{y:.4g}<extra></extra>",
        )
    fig.update_yaxes(**LOG_TICKS)
    return fig


def _broken_between_pairs(table: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """All pairs' lines as one, an empty point after each: a trace a pair would be slow to draw."""
    ends = table.drop_duplicates("pair").assign(step=np.inf, **{quantity: np.nan})
    lines = pd.concat([table, ends]).sort_values(["pair", "step"], kind="stable")
    return lines.replace({"step": {np.inf: np.nan}})


def moves_by_step(table: pd.DataFrame, colour: str) -> go.Figure:
    """The largest and the median |log move| by step under the most that was possible by then.

    `table` has the columns step, median, largest and most (NaN where there is no bound). Step 0, where all
    are 0, is not on the logarithmic axis.
    """
    fig = style.figure("training step", "|log move|", y_log=True, height=320, uirevision="moves")
    table = table[table["step"] > 0]
    looks = (
        ("most possible", "most", style.OKABE_ITO["orange"], "dot"),
        ("largest", "largest", colour, "solid"),
        ("median", "median", colour, "dash"),
    )
    for name, column, shade, dash in looks:
        values = table[column].where(table[column] > 0)
        if values.notna().any():
            fig.add_scatter(
                x=table["step"], y=values, mode="lines", name=name, line={"color": shade, "dash": dash, "width": 2},
                customdata=100 * np.expm1(values),
                hovertemplate=f"{name}, step %{{x}}<br>%{{y:.3g}} log units (%{{customdata:.3g}} %)<extra></extra>",
            )  # fmt: skip
    fig.update_yaxes(**log_ticks(table[["median", "largest", "most"]].to_numpy().ravel()))
    return fig


def wins(table: pd.DataFrame, chosen: int, colour: str) -> go.Figure:
    """On how many bootstrap draws each number of groups won: filled now, a ring at the start; the number chosen
    on all pairs darker. Columns groups, now and start."""
    fig = style.figure("number of groups", "draws won", height=240, uirevision="wins")
    fig.add_bar(
        x=table["groups"],
        y=table["now"],
        name="now",
        marker={
            "color": [
                colour if groups == chosen else style.with_alpha(colour, 0.45) for groups in table["groups"]
            ]
        },
        hovertemplate="%{x} groups: %{y} draws<extra>now</extra>",
    )
    if table["start"].notna().all():
        fig.add_scatter(
            x=table["groups"],
            y=table["start"],
            name="start",
            mode="markers",
            marker={"symbol": "circle-open", "size": 11, "color": style.GREY, "line": {"width": 2}},
            hovertemplate="%{x} groups: %{y} draws<extra>start</extra>",
        )
    fig.update_xaxes(dtick=1)
    return fig
