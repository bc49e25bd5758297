"""Figure of how far position encodings carry."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots import style
from ega_mope.plots.scales import LOG_TICKS

FAINTEST = 1e-4
"""What is left below this is not drawn: the axis is logarithmic."""


def what_is_left(tables: Mapping[str, pd.DataFrame]) -> go.Figure:
    """A line an encoding, named by `tables`' keys, by position b (solid) or by lag τ (dashed).

    Each table has the columns position, acts_by, token and left, of one or more encodings.
    """
    fig = style.figure("position b, or lag τ (tokens)", "left, share of the largest", y_log=True, height=400)
    number = 0
    for label, table in tables.items():
        for name, part in table.groupby("position", sort=False):
            by_lag = part["acts_by"].iloc[0] == "lag τ"
            shown = part[part["left"] >= FAINTEST]
            title = f"{label}: {name}" if label else str(name)
            fig.add_scatter(
                x=shown["token"],
                y=shown["left"],
                mode="lines",
                name=style.safe(f"{title}, by {'lag' if by_lag else 'position'}"),
                line={
                    "color": style.LINE_COLOURS[number % len(style.LINE_COLOURS)],
                    "dash": "dash" if by_lag else "solid",
                    "width": 2,
                },
                hovertemplate=f"{style.safe(title)}<br>%{{x}} tokens: %{{y:.3g}} left<extra></extra>",
            )
            number += 1
    fig.add_hline(y=0.01, line={"color": style.GREY, "width": 1, "dash": "dot"})
    fig.update_yaxes(**LOG_TICKS)
    return fig
