"""A training as it happens: its losses with the run to beat behind them, its learned scalars moving."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots.style import GREY, OKABE_ITO, figure, safe, with_alpha


def loss_figure(losses: pd.DataFrame, ghost: pd.DataFrame, ghost_label: str | None, steps: int) -> go.Figure:
    """Training and validation loss by step; grey: the best comparable run's validation loss."""
    fig = figure("step", "loss, nats per token", height=340)
    if len(ghost):
        fig.add_trace(
            go.Scatter(
                x=ghost["step"],
                y=ghost["loss_nats"],
                name=safe(f"{ghost_label}, validation"),
                line={"color": GREY, "dash": "dot"},
                mode="lines",
            )
        )
    styles = {"train": (with_alpha(OKABE_ITO["sky"], 0.8), 1), "validation": (OKABE_ITO["blue"], 2.5)}
    for name, (colour, width) in styles.items():
        part = losses[losses["curve"] == name]
        fig.add_trace(
            go.Scatter(
                x=part["step"],
                y=part["loss_nats"],
                name=name,
                line={"color": colour, "width": width},
                mode="lines+markers" if name == "validation" else "lines",
            )
        )
    fig.update_xaxes(range=[0, steps])
    return fig


def scales_figure(scales: pd.DataFrame) -> go.Figure:
    """σ of every pair by step, tokens, log axis."""
    fig = figure("step", "bandwidth σ, tokens", y_log=True, height=300, legend=False)
    _lines(fig, scales.groupby("pair"), "sigma", "pair %{meta}: σ = %{y:.3g} tokens at step %{x}")
    return fig


def gates_figure(gates: pd.DataFrame) -> go.Figure:
    """Gate threshold θ of every head by step, standard deviations of the energy."""
    fig = figure("step", "gate threshold θ, standard deviations", height=300, legend=False)
    heads = gates.assign(place=[f"L{row.layer} H{row.head}" for row in gates.itertuples()]).groupby("place")
    _lines(fig, heads, "threshold", "%{meta}: θ = %{y:.3f} at step %{x}")
    return fig


def _lines(fig: go.Figure, groups: object, column: str, hover: str) -> None:
    for name, part in groups:  # type: ignore[attr-defined]
        fig.add_trace(
            go.Scatter(
                x=part["step"],
                y=part[column],
                meta=name,
                mode="lines",
                line={"color": with_alpha(OKABE_ITO["blue"], 0.45), "width": 1.2},
                hovertemplate=hover + "<extra></extra>",
            )
        )
