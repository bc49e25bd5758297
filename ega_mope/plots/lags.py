"""Figure of the lags that convolutional attention learned."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots import style
from ega_mope.plots.scales import log_ticks


def lag_shares(table: pd.DataFrame) -> go.Figure:
    """One layer's heads: the share of every lag, a line a head, grey rings where each started.

    `table` has the columns head, lag, share and start. The axis is logarithmic: nearly all starts at lag 0.
    A star at lag 0 marks dot-product attention, whose other lags have nothing and are not on such an axis.
    """
    fig = style.figure("lag ℓ (tokens)", "share w(ℓ)", y_log=True, height=320, uirevision="lags")
    for number, (head, part) in enumerate(table.groupby("head")):
        colour = style.LINE_COLOURS[number % len(style.LINE_COLOURS)]
        fig.add_scatter(
            x=part["lag"],
            y=part["share"],
            name=f"head {head}",
            mode="lines+markers",
            line={
                "color": colour,
                "dash": style.DASHES[number // len(style.LINE_COLOURS) % len(style.DASHES)],
            },
            customdata=part["start"],
            hovertemplate=f"head {head}, lag %{{x}}: %{{y:.4f}}<br>at the start %{{customdata:.4f}}<extra></extra>",
        )
    if table["start"].notna().all():
        fig.add_scatter(
            x=table["lag"],
            y=table["start"],
            name="start",
            mode="markers",
            marker={"symbol": "circle-open", "size": 11, "color": style.GREY, "line": {"width": 2}},
            hoverinfo="skip",
        )
    fig.add_scatter(
        x=[0],
        y=[1.0],
        name="dot product",
        mode="markers",
        marker={"symbol": "star", "size": 12, "color": style.OKABE_ITO["orange"]},
        hovertemplate="dot-product attention: 1 at lag 0, nothing elsewhere<extra></extra>",
    )
    fig.update_xaxes(dtick=1)
    fig.update_yaxes(**log_ticks([*table["share"], *table["start"]]))
    return fig
