"""Figures of what gates go with: all heads, one head with its controls, rarity, and the spectrum of a projection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots import style
from ega_mope.plots.shades import BLUE_TO_BROWN, Mode

INTERVALS = ("partial_low", "partial_high"), ("at_once_low", "at_once_high")
SERIES = {
    ("gate", "as it is"): ("gate", style.OKABE_ITO["blue"], "circle"),
    ("weight change", "as it is"): ("weight change", style.OKABE_ITO["vermillion"], "diamond"),
    ("gate", "shuffled"): ("gate, text shuffled", style.GREY, "circle-open"),
}


def correlation_grid(table: pd.DataFrame, *, chosen: tuple[int, int], mode: Mode = "light") -> go.Figure:
    """Partial ρ of each head (down) with each feature (across); written where its widened interval excludes zero.

    `table` holds one outcome on one text, columns layer and head (from 1), feature, partial, partial_low,
    partial_high, at_once_low, at_once_high. Each cell is a point with customdata [layer, head] from 0; the
    head `chosen` (from 0) is framed.
    """
    features, heads = list(dict.fromkeys(table["feature"])), _heads(table)
    shape = len(heads), len(features)
    place = [heads.index(key) for key in zip(table["layer"], table["head"], strict=True)]
    column = [features.index(name) for name in table["feature"]]
    grid, written = np.full(shape, np.nan), np.full(shape, "", dtype=object)
    grid[place, column] = table["partial"]
    written[place, column] = [_rho(row.partial) if _counts(row) else "" for row in _rows(table)]
    labels = [f"L{layer} H{head}" for layer, head in heads]
    fig = style.figure("", "", height=150 + 22 * len(heads), legend=False, uirevision="correlations")
    fig.add_heatmap(
        z=grid,
        zmin=-1,
        zmax=1,
        colorscale=[list(stop) for stop in zip(np.linspace(0, 1, 5), BLUE_TO_BROWN[mode], strict=True)],
        text=written,
        texttemplate="%{text}",
        textfont={"size": 10},
        colorbar={
            "orientation": "h",
            "thickness": 8,
            "outlinewidth": 0,
            "len": 0.6,
            "y": 1.0,
            "yanchor": "bottom",
            "title": {"text": ""},
        },
        hoverinfo="skip",
        xgap=1,
        ygap=1,
    )
    fig.add_scatter(
        x=column,
        y=place,
        mode="markers",
        marker={"opacity": 0.0, "symbol": "square", "size": 18, "color": style.GREY},
        customdata=[[layer - 1, head - 1] for layer, head in zip(table["layer"], table["head"], strict=True)],
        text=[_hover(row) for row in _rows(table)],
        hovertemplate="%{text}<extra></extra>",
    )
    row = heads.index((chosen[0] + 1, chosen[1] + 1))
    frame = {"x0": -0.5, "x1": len(features) - 0.5, "y0": row - 0.5, "y1": row + 0.5}
    fig.add_shape(type="rect", **frame, line={"color": style.OKABE_ITO["vermillion"], "width": 2})
    fig.update_xaxes(tickvals=list(range(len(features))), ticktext=features, tickangle=-40, showgrid=False)
    fig.update_yaxes(
        tickvals=list(range(len(heads))),
        ticktext=labels,
        showgrid=False,
        autorange="reversed",
        automargin=True,
    )
    return fig


def head_intervals(table: pd.DataFrame) -> go.Figure:
    """One head's partial ρ with each feature: gate, weight change, and the gate on the shuffled text.

    Thick bars are 95 % intervals of that row alone, thin ones those widened for all comparisons. `table` has
    the columns of `correlation_grid`, and text and outcome.
    """
    features = list(dict.fromkeys(table["feature"]))
    fig = style.figure("partial ρ", "", height=120 + 40 * len(features), uirevision="one-head")
    style.reference_line(fig, "", x=0.0)
    for number, ((outcome, text), (name, colour, symbol)) in enumerate(SERIES.items()):
        part = table[(table["outcome"] == outcome) & (table["text"] == text)]
        height = [features.index(feature) + 0.22 * (number - 1) for feature in part["feature"]]
        for (low, high), width in zip(INTERVALS, (4, 1.2), strict=True):
            gap = np.full(len(part), np.nan)
            fig.add_scatter(
                x=np.stack([part[low], part[high], gap], axis=1).ravel(),
                y=np.repeat(height, 3),
                mode="lines",
                line={"color": colour, "width": width},
                showlegend=False,
                hoverinfo="skip",
            )
        fig.add_scatter(
            x=part["partial"],
            y=height,
            mode="markers",
            name=name,
            marker={"color": colour, "symbol": symbol, "size": 9},
            text=[_hover(row) for row in _rows(part)],
            hovertemplate=f"{name}<br>%{{text}}<extra></extra>",
        )
    fig.update_yaxes(tickvals=list(range(len(features))), ticktext=features, autorange="reversed")
    fig.update_xaxes(range=[-1.05, 1.05])
    return fig


def rarity_by_head(table: pd.DataFrame) -> go.Figure:
    """Every head's partial ρ with one feature: gates and weight change beside what keys receive without gates.

    `table` has the columns of `head_intervals` and run, of one feature; filled points count after widening.
    """
    groups = list(dict.fromkeys(zip(table["outcome"], table["run"], strict=True)))
    fig = style.figure("", "partial ρ", height=380, legend=False, uirevision="rarity")
    for number, (outcome, run) in enumerate(groups):
        part = table[(table["outcome"] == outcome) & (table["run"] == run)]
        colour = style.LINE_COLOURS[number]
        across = number + np.linspace(-0.35, 0.35, len(part))
        counts = [_counts(row) for row in _rows(part)]
        middle = part["partial"]
        fig.add_scatter(
            x=across,
            y=middle,
            mode="markers",
            name=outcome,
            marker={
                "color": colour,
                "size": 9,
                "symbol": ["circle" if counted else "circle-open" for counted in counts],
            },
            error_y={
                "array": part["at_once_high"] - middle,
                "arrayminus": middle - part["at_once_low"],
                "color": style.with_alpha(colour, 0.5),
                "width": 0,
            },
            text=[_hover(row) for row in _rows(part)],
            hovertemplate=f"{style.safe(run)}<br>{outcome}<br>%{{text}}<extra></extra>",
        )
    fig.add_hline(y=0.0, line={"color": style.GREY, "width": 1, "dash": "dot"})
    names = [
        outcome if outcome != "attention received" else "attention received<br>without gates"
        for outcome, _ in groups
    ]
    fig.update_xaxes(tickvals=list(range(len(groups))), ticktext=names, showgrid=False)
    return fig


def spectrum_lines(table: pd.DataFrame, bound: float) -> go.Figure:
    """|ŵ_k|² of one head over the frequencies of its channels, in the band of random orders.

    `table` has the columns k, power, low, high (× the mean); `bound` is the height that decides.
    """
    fig = style.figure("k (cycles over the channels)", "|ŵ_k|² (× mean)", height=340, uirevision="spectrum")
    k = table["k"].to_numpy()
    fig.add_scatter(
        x=np.concatenate([k, k[::-1]]),
        y=np.concatenate([table["high"], table["low"][::-1]]),
        fill="toself",
        fillcolor=style.with_alpha(style.GREY, 0.3),
        line={"width": 0},
        mode="lines",
        name="95 % of random orders, each k alone",
        hoverinfo="skip",
    )
    fig.add_scatter(
        x=k,
        y=table["power"],
        mode="lines+markers",
        name="this head",
        line={"color": style.OKABE_ITO["blue"], "width": 1.5},
        marker={"color": style.OKABE_ITO["blue"], "size": 4},
        hovertemplate="k %{x}<br>%{y:.2f} × mean<extra></extra>",
    )
    fig.add_scatter(
        x=[k[0], k[-1]],
        y=[bound, bound],
        mode="lines",
        name="highest peak of 95 % of random orders",
        line={"color": style.OKABE_ITO["vermillion"], "dash": "dash", "width": 2},
        hovertemplate="%{y:.2f} × mean<extra></extra>",
    )
    fig.update_yaxes(rangemode="tozero")
    return fig


def _rows(table: pd.DataFrame) -> Iterator[Any]:
    """Rows with their columns as attributes."""
    return iter(table.itertuples())


def _heads(table: pd.DataFrame) -> list[tuple[int, int]]:
    return list(dict.fromkeys(zip(table["layer"], table["head"], strict=True)))


def _counts(row: Any) -> bool:
    """Whether the widened interval of a row excludes zero; NaN counts as no."""
    return bool(row.at_once_low > 0 or row.at_once_high < 0)


def _hover(row: Any) -> str:
    where = f"L{row.layer} H{row.head}, {style.safe(row.feature)}"
    if np.isnan(row.partial):
        return f"{where}<br>not to be told from the other features"
    return (
        f"{where}<br>partial ρ {_rho(row.partial)}"
        f"<br>alone [{_rho(row.partial_low)}, {_rho(row.partial_high)}]"
        f"<br>widened [{_rho(row.at_once_low)}, {_rho(row.at_once_high)}]"
        f"<br>plain ρ {_rho(row.rho)}"
    )


def _rho(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")
