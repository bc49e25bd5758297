"""Figures of the causality audit: loss by position in the window, logit movement by distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots.style import GREY, OKABE_ITO, figure, safe

# Curves that agree lie on one another: wide below, narrow dashes above, so that each stays visible.
_LOOKS: list[dict[str, Any]] = [
    {"color": OKABE_ITO["sky"], "width": 9, "dash": "solid"},
    {"color": OKABE_ITO["vermillion"], "width": 4, "dash": "dash"},
    {"color": OKABE_ITO["purple"], "width": 2, "dash": "dot"},
    {"color": GREY, "width": 2, "dash": "solid"},
    {"color": OKABE_ITO["green"], "width": 2, "dash": "dashdot"},
]


def loss_by_position(table: pd.DataFrame) -> go.Figure:
    """One curve for each `curve` of the table (from, to, loss_nats, standard_error)."""
    fig = figure("position in the window, tokens", "loss, nats per token")
    for look, (name, rows) in zip(_LOOKS, table.groupby("curve", sort=False), strict=False):
        fig.add_scatter(
            x=(rows["from"] + rows["to"]) / 2,
            y=rows["loss_nats"],
            name=safe(str(name)),
            mode="lines+markers",
            line=look,
            marker={"size": look["width"] + 3, "color": look["color"]},
            customdata=np.stack([rows["from"], rows["to"], _error(rows["standard_error"])], axis=-1),
            hovertemplate="positions %{customdata[0]}–%{customdata[1]}<br>%{y:.3f} nats%{customdata[2]}",
        )
    fig.update_layout(legend={"orientation": "v", "y": 1.02}, margin={"t": 130}, height=480)
    return fig


def _error(errors: pd.Series) -> list[str]:
    return [f" ± {error:.3f} (standard error)" if error == error else "" for error in errors]


def movement_by_distance(table: pd.DataFrame, threshold: float) -> go.Figure:
    """Largest logit movement (max_logit_change) by distance from one changed token; zeros on a line of their own.

    `threshold` is the most that rounding explains.
    """
    fig = figure("distance to the changed token, tokens", "largest change of a logit", x_log=True, y_log=True)
    moved = table["max_logit_change"]
    positive = moved[moved > 0]
    smallest = min([threshold, *positive])
    floor = 10.0 ** (np.floor(np.log10(smallest)) - 1)
    labels = [_distances(a, b) for a, b in zip(table["from"], table["to"], strict=True)]
    for name, rows, y, symbol in (
        ("moved", moved > 0, moved, "circle"),
        ("exactly 0", moved == 0, moved * 0 + floor, "circle-open"),
    ):
        if not rows.any():
            continue
        fig.add_scatter(
            x=np.sqrt(table["from"] * table["to"])[rows],
            y=y[rows],
            name=name,
            mode="lines+markers" if symbol == "circle" else "markers",
            line={"color": OKABE_ITO["blue"], "width": 2},
            marker={"size": 10, "symbol": symbol, "color": OKABE_ITO["blue"], "line": {"width": 2}},
            customdata=np.stack([np.array(labels)[rows], moved[rows].map("{:.3g}".format)], axis=-1),
            hovertemplate="%{customdata[0]} before the change<br>largest change %{customdata[1]}<extra></extra>",
        )
    fig.add_scatter(
        x=[table["from"].min(), table["to"].max()],
        y=[threshold, threshold],
        name="the most that rounding explains",
        mode="lines",
        line={"color": GREY, "width": 2, "dash": "dot"},
        hovertemplate="%{y:.2g}<extra></extra>",
    )
    top = max([threshold, *positive]) * 10
    powers = np.arange(np.log10(floor) + 1, np.ceil(np.log10(top)) + 1)
    step = max(1, len(powers) // 6)
    ticks = [floor, *10.0 ** powers[::step]]
    fig.update_yaxes(
        tickvals=ticks,
        ticktext=["0", *(f"{tick:.0e}" for tick in ticks[1:])],
        range=[np.log10(floor) - 0.4, np.log10(top)],
    )
    fig.update_xaxes(tickvals=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048])
    return fig


def _distances(low: int, high: int) -> str:
    return f"{low} token{'s' if low > 1 else ''}" if low == high else f"{low}–{high} tokens"
