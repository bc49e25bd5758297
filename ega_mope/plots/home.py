"""The two mechanisms as Home draws them."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots.style import GREY, OKABE_ITO, figure, reference_line, with_alpha


def gate_figure(curve: pd.DataFrame, learned: pd.DataFrame, threshold: float, run: str | None) -> go.Figure:
    """The gate over the energy: one thick curve, behind it thin ones for the heads of a run.

    `curve` has z and gate; `learned` layer, head, threshold, sharpness, z and gate.
    """
    fig = figure("energy z, standard deviations from the mean", "gate g", height=330, legend=False)
    for (layer, head), own in learned.groupby(["layer", "head"]):
        name = f"layer {layer}, head {head}: θ {own.threshold.iloc[0]:.2f}, α {own.sharpness.iloc[0]:.2f}"
        fig.add_scatter(
            x=own["z"],
            y=own["gate"],
            mode="lines",
            line={"color": with_alpha(GREY, 0.55), "width": 1},
            name=name,
            hovertemplate=f"{run}<br>{name}<br>z %{{x:.2f}}, gate %{{y:.3f}}<extra></extra>",
        )
    fig.add_scatter(
        x=curve["z"],
        y=curve["gate"],
        mode="lines",
        line={"color": OKABE_ITO["green"], "width": 3},
        name="your gate",
        hovertemplate="z %{x:.2f}, gate %{y:.3f}<extra></extra>",
    )
    reference_line(fig, "threshold θ", x=threshold)
    fig.update_yaxes(range=[-0.03, 1.08])
    return fig


def morlet_figure(pair: pd.DataFrame) -> go.Figure:
    """One Morlet pair by position: cos and sin as curves with a dot at each token, inside their envelope."""
    fig = figure("position b, tokens", "value", height=330)
    x = pair["position"]
    for sign, shown in ((1, True), (-1, False)):
        fig.add_scatter(
            x=x,
            y=sign * pair["envelope"],
            mode="lines",
            line={"color": GREY, "width": 1, "dash": "dash"},
            name="envelope",
            legendgroup="envelope",
            showlegend=shown,
            hovertemplate="position %{x:.1f}, envelope %{y:.3f}<extra></extra>",
        )
    at_tokens = pair[pair["token"]]
    for name, colour in (("cos", OKABE_ITO["blue"]), ("sin", OKABE_ITO["vermillion"])):
        fig.add_scatter(
            x=x,
            y=pair[name],
            mode="lines",
            line={"color": colour, "width": 1.5},
            legendgroup=name,
            showlegend=False,
            hoverinfo="skip",
        )
        fig.add_scatter(
            x=at_tokens["position"],
            y=at_tokens[name],
            mode="markers",
            marker={"color": colour, "size": 6},
            name=name,
            legendgroup=name,
            hovertemplate=f"token %{{x}}, {name} %{{y:.3f}}<extra></extra>",
        )
    fig.update_yaxes(range=[-1.1, 1.1])
    return fig
