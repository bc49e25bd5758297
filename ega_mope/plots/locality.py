"""Figures of how far back heads look, and of one head by distance beside its controls."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots import style
from ega_mope.plots.scales import log_ticks

TEXT, SHUFFLED, KERNEL = style.OKABE_ITO["blue"], style.OKABE_ITO["orange"], style.OKABE_ITO["vermillion"]
ROW_PIXELS = 22


def head_ranges(table: pd.DataFrame, local: float) -> go.Figure:
    """Each head's mean distance with its interval, on the text (filled) and shuffled (open).

    `table` as of `analysis.locality.ranges_table`; lines at even attention's mean distance and at `local`
    times it, below which a head is called local.
    """
    names = [f"L{layer} H{head}" for layer, head in zip(table["layer"], table["head"], strict=True)]
    fig = style.figure(
        "mean distance looked back (tokens)", "", height=130 + ROW_PIXELS * len(names), uirevision="ranges"
    )
    even = float(table["even_distance"].iloc[0])
    style.reference_line(fig, "even attention", x=even)
    style.reference_line(fig, f"{local:.0%} of it", x=local * even)
    looks = (
        ("shuffled text", "shuffled_distance", "shuffled_low", "shuffled_high", SHUFFLED, "square-open"),
        ("this text", "mean_distance", "low", "high", TEXT, "circle"),
    )
    for name, centre, low, high, colour, symbol in looks:
        fig.add_scatter(
            x=table[centre],
            y=names,
            mode="markers",
            name=name,
            marker={"color": colour, "size": 9, "symbol": symbol, "line": {"width": 2, "color": colour}},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": (table[high] - table[centre]).fillna(0.0),
                "arrayminus": (table[centre] - table[low]).fillna(0.0),
                "color": colour,
                "thickness": 1.5,
                "width": 0,
            },
            customdata=table[["half_within", "verdict"]],
            hovertemplate="%{y}: %{x:.2f} tokens on "
            + name
            + "<br>on this text half within %{customdata[0]}, %{customdata[1]}<extra></extra>",
        )
    fig.update_yaxes(type="category", categoryorder="array", categoryarray=names[::-1], showgrid=True)
    fig.update_xaxes(rangemode="tozero")
    return fig


def one_head(table: pd.DataFrame, column: str, y_title: str) -> go.Figure:
    """One head's `column` (score or attention) by distance: mean, band over windows, shuffled, reference.

    The reference is the kernel fitted to the score where there is one, and even attention beside
    attention, whose axis is logarithmic.
    """
    shares = column == "attention"
    fig = style.figure("distance δ (tokens)", y_title, y_log=shares, height=360, uirevision=f"one-{column}")
    shown = table[table[f"{column} low"] > 0] if shares else table
    fig.add_scatter(
        x=[*shown["distance"], *shown["distance"][::-1]],
        y=[*shown[f"{column} high"], *shown[f"{column} low"][::-1]],
        fill="toself",
        fillcolor=style.with_alpha(TEXT, 0.2),
        line={"width": 0},
        name="80 % of windows",
        hoverinfo="skip",
    )
    lines = [("this text", column, TEXT, "solid"), ("shuffled text", f"{column} shuffled", SHUFFLED, "dash")]
    if shares:
        lines.append(("even attention", "even attention", style.GREY, "dot"))
    elif "kernel fitted" in table:
        lines.append(("mean kernel, fitted", "kernel fitted", KERNEL, "dot"))
    for name, values, colour, dash in lines:
        fig.add_scatter(
            x=table["distance"],
            y=table[values],
            mode="lines",
            name=name,
            line={"color": colour, "dash": dash, "width": 2},
            hovertemplate=f"{name}<br>distance %{{x}}: %{{y:.4g}}<extra></extra>",
        )
    if shares:
        fig.update_yaxes(**log_ticks(value for _, values, _, _ in lines for value in table[values]))
    return fig
