"""Figure of loss by position beyond the training length."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots import style


def loss_by_position(
    tables: Mapping[str, pd.DataFrame], context_length: int, colours: Mapping[str, str], unit: str
) -> go.Figure:
    """Each run's loss by position with its standard error, a line where training ended.

    `tables` by run name, with the columns from, to, loss_nats, standard_error and restarted_nats; `unit` such
    as "nats per character". Dotted: the same tokens, reading started afresh every `context_length` tokens.
    """
    fig = style.figure("position in the window (tokens)", f"validation loss ({unit})", uirevision="length")
    for name, table in tables.items():
        x = (table["from"] + table["to"]) / 2
        shown, colour = style.safe(name), colours[name]
        if table["standard_error"].notna().all():
            _band(fig, x, table, colour, shown)
        fig.add_scatter(
            x=x,
            y=table["loss_nats"],
            name=shown,
            legendgroup=shown,
            mode="lines",
            line={"color": colour, "width": 2},
            customdata=table[["from", "to", "standard_error"]],
            hovertemplate=f"{shown}<br>positions %{{customdata[0]}}–%{{customdata[1]}}"
            "<br>%{y:.4f} ± %{customdata[2]:.4f}<extra></extra>",
        )
        fig.add_scatter(
            x=x,
            y=table["restarted_nats"],
            name=f"{shown}, read afresh every {context_length}",
            legendgroup=shown,
            mode="lines",
            line={"color": colour, "width": 1.5, "dash": "dot"},
            hovertemplate="%{y:.4f}<extra>read afresh</extra>",
        )
    style.reference_line(fig, f"trained on {context_length}", x=float(context_length))
    return fig


def _band(fig: go.Figure, x: pd.Series, table: pd.DataFrame, colour: str, name: str) -> None:
    """One closed polygon, mean ± standard error."""
    high, low = (table["loss_nats"] + sign * table["standard_error"] for sign in (1, -1))
    fig.add_scatter(
        x=[*x, *x[::-1]],
        y=[*high, *low[::-1]],
        fill="toself",
        fillcolor=style.with_alpha(colour, 0.2),
        line={"width": 0},
        legendgroup=name,
        showlegend=False,
        hoverinfo="skip",
    )
