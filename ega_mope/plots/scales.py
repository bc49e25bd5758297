"""Figures of learned scales: the ω–σ plane, spectra, BIC by number of clusters, norm by position."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Float

from ega_mope.plots import style

Band = tuple[str, float, float]
Ranges = tuple[tuple[float, float], tuple[float, float]]
"""What the σ axis and the ω axis show, in rad/token and tokens."""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
SIGMA, OMEGA = "σ (tokens)", "ω (rad/token)"
LINE = "ω·σ = 5"
ROOM_FOR_BANDS = 0.08
"""How much further down the ω axis goes, as a share of it: the bands' names stand there, below every point."""


def plane_ranges(tables: Sequence[pd.DataFrame]) -> Ranges:
    """Axes that hold every pair of these tables, now and at the start, with a margin of a tenth of a decade."""
    found = []
    for columns in (("sigma", "sigma_start"), ("omega", "omega_start")):
        values = np.concatenate([table[list(columns)].to_numpy(dtype=float).ravel() for table in tables])
        values = values[np.isfinite(values)]
        found.append((float(values.min()) / 10**0.1, float(values.max()) * 10**0.1))
    return found[0], found[1]


def plane(
    pairs: pd.DataFrame,
    *,
    bands: Sequence[Band],
    limit: Float[np.ndarray, "corner 2"] | None,
    ranges: Ranges,
    height: int = 480,
) -> go.Figure:
    """Each pair at its σ and ω, with an arrow from where it started.

    `pairs` has a row a pair, in the shape of the scales table; `limit` the corners (σ, ω) of the area
    that no pair can have left. Points carry customdata [pair].
    """
    fig = style.figure(
        f"{SIGMA}; bands chosen beforehand", OMEGA, x_log=True, y_log=True, height=height, uirevision="plane"
    )
    _add_bands(fig, bands, ranges)
    if limit is not None:
        _add_limit(fig, limit)
    ends = np.array(ranges[0])
    fig.add_scatter(
        x=ends,
        y=5 / ends,
        mode="lines",
        name=LINE,
        hoverinfo="skip",
        line={"color": style.GREY, "dash": "dash"},
    )
    if pairs["sigma_start"].notna().all():
        _add_moves(fig, pairs)
    for cluster in sorted(set(pairs["cluster"].tolist())):
        _add_cluster(fig, cluster, pairs[pairs["cluster"] == cluster])
    (left, right), (low, high) = (map(math.log10, ends) for ends in ranges)
    low -= ROOM_FOR_BANDS * (high - low)
    fig.update_layout(
        xaxis={"range": [left, right]} | LOG_TICKS,
        yaxis={"range": [low, high]} | LOG_TICKS,
    )
    return fig


TICK_VALUES = [digit * 10.0**power for power in range(-6, 5) for digit in (1, 2, 5)]
LOG_TICKS = {"tickvals": TICK_VALUES, "ticktext": [f"{value:g}" for value in TICK_VALUES], "tickangle": 0}
"""Ticks 1, 2, 5 of a logarithmic axis in full: plotly writes a bare 2 or 5 between the decades."""
MOST_DECADES = 4
"""Beyond so many decades labels of 1, 2 and 5 touch."""


def log_ticks(values: Iterable[float]) -> dict[str, Any]:
    """LOG_TICKS for an axis that shows `values`; over many decades whole ones only, and not each, a dozen at most."""
    logs = [math.log10(value) for value in values if value > 0 and math.isfinite(value)]
    if not logs or max(logs) - min(logs) <= MOST_DECADES:
        return LOG_TICKS
    first, last = math.floor(min(logs)), math.ceil(max(logs))
    ticks = [10.0**power for power in range(last, first - 1, -math.ceil((last - first) / 12))]
    return {"tickvals": ticks, "ticktext": [f"{value:g}" for value in ticks], "tickangle": 0}


def hover_text(pair: Any) -> str:
    """What hovering a pair says; its numbers are those of `ega-mope scales --json`, rounded to these digits."""
    return "<br>".join(
        [
            f"pair {pair.pair}",
            f"ω {pair.omega:.4f} rad/token",
            f"period {pair.period:.3f} tokens",
            f"σ {pair.sigma:.3f} tokens",
            f"reach {pair.reach_tokens:.3f} tokens (1 % left)",
            f"band {pair.band}",
            f"cluster {pair.cluster}",
            _moved(pair),
        ]
    )


def _moved(pair: Any) -> str:
    if pair.moved_omega is None or math.isnan(pair.moved_omega):
        return "moved by: start not recorded"
    return f"moved by ω {pair.moved_omega:+.4f}, σ {pair.moved_sigma:+.4f} log units"


def _add_bands(fig: go.Figure, bands: Sequence[Band], ranges: Ranges) -> None:
    left, right = ranges[0]
    for number, (name, low, high) in enumerate(bands):
        low, high = max(low, left), min(high, right)
        if low >= high:
            continue
        shade = style.with_alpha(style.GREY, 0.05 if number % 2 else 0.14)
        fig.add_shape(
            type="rect",
            x0=low,
            x1=high,
            y0=0,
            y1=1,
            yref="paper",
            fillcolor=shade,
            line_width=0,
            layer="below",
        )
        fig.add_annotation(
            x=(math.log10(low) + math.log10(high)) / 2,
            y=0,
            yref="paper",
            yanchor="bottom",
            text=name,
            showarrow=False,
            font={"size": 11},
        )


def _add_limit(fig: go.Figure, limit: Float[np.ndarray, "corner 2"]) -> None:
    closed = np.concatenate([limit, limit[:1]])
    fig.add_scatter(
        x=closed[:, 0],
        y=closed[:, 1],
        mode="lines",
        name="most it could have moved",
        line={"color": style.OKABE_ITO["orange"], "width": 1.5, "dash": "dot"},
        hoverinfo="skip",
    )


def _add_moves(fig: go.Figure, pairs: pd.DataFrame) -> None:
    """Open rings where pairs started, and an arrow from each to where it is now."""
    gap = np.full(len(pairs), np.nan)
    x = np.stack([pairs["sigma_start"], pairs["sigma"], gap], axis=1).ravel()
    y = np.stack([pairs["omega_start"], pairs["omega"], gap], axis=1).ravel()
    fig.add_scatter(
        x=x,
        y=y,
        mode="lines+markers",
        name="move",
        showlegend=False,
        hoverinfo="skip",
        line={"color": style.GREY, "width": 1.5},
        marker={
            "symbol": "arrow",
            "angleref": "previous",
            "size": [0, 9, 0] * len(pairs),
            "color": style.GREY,
            "line": {"width": 0},  # points of several sizes would have a white one
        },
    )
    fig.add_scatter(
        x=pairs["sigma_start"],
        y=pairs["omega_start"],
        mode="markers",
        name="start",
        hoverinfo="skip",
        customdata=_as_lists(pairs),
        marker={"symbol": "circle-open", "size": 6, "color": style.GREY},
    )


def _as_lists(pairs: pd.DataFrame) -> list[list[int]]:
    """[pair] for each row, as lists: a selection gives an array's rows back without their order."""
    return [[pair] for pair in pairs["pair"].tolist()]


def _add_cluster(fig: go.Figure, cluster: int, members: pd.DataFrame) -> None:
    fig.add_scatter(
        x=members["sigma"],
        y=members["omega"],
        mode="markers",
        name=f"cluster {cluster}",
        marker={
            "color": style.LINE_COLOURS[(cluster - 1) % len(style.LINE_COLOURS)],
            "symbol": SYMBOLS[(cluster - 1) % len(SYMBOLS)],
            "size": 7,
        },
        customdata=_as_lists(members),
        text=[hover_text(pair) for pair in members.itertuples()],
        hovertemplate="%{text}<extra></extra>",
    )


def spectrum(table: pd.DataFrame, quantity: str, colour: str, shown: tuple[float, float]) -> go.Figure:
    """How many pairs lie in each bin of `quantity` (sigma or omega): filled now, dashed at the start.

    `shown` is what the axis shows.
    """
    bins = table[table["quantity"] == quantity]
    fig = style.figure(
        SIGMA if quantity == "sigma" else OMEGA, "pairs", x_log=True, height=260, uirevision=quantity
    )
    edges = [bins["from"].iloc[0], *bins["from"], bins["to"].iloc[-1], bins["to"].iloc[-1]]
    fill = {"fill": "tozeroy", "fillcolor": style.with_alpha(colour, 0.3)}
    looks: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "now": ({"color": colour, "width": 2}, fill),
        "at start": ({"color": style.GREY, "width": 2, "dash": "dash"}, {}),
    }
    for name, (line, more) in looks.items():
        counts = bins[f"pairs {name}"]
        if counts.notna().all():
            fig.add_scatter(
                x=edges,
                y=[0, *counts, counts.iloc[-1], 0],
                mode="lines",
                name=name,
                line=line | {"shape": "hv"},
                hovertemplate=f"%{{y}} pairs {name}, from %{{x:.3g}}<extra></extra>",
                **more,
            )
    low, high = shown
    fig.update_xaxes(range=[math.log10(low) - 0.1, math.log10(high) + 0.1], **LOG_TICKS)
    fig.update_yaxes(rangemode="tozero")
    return fig


def bic_curve(table: pd.DataFrame, chosen: int, start_chosen: int | None, colour: str) -> go.Figure:
    """BIC by number of clusters, lower is better; the number taken is marked by a star, for the start a ring."""
    fig = style.figure("number of clusters", "BIC", height=300, uirevision="bic")
    looks = (
        ("now", chosen, colour, "solid", "star"),
        ("start", start_chosen, style.GREY, "dash", "circle-open"),
    )
    for name, taken, shade, dash, symbol in looks:
        if taken is None:
            continue
        marked = table["clusters"] == taken
        fig.add_scatter(
            x=table["clusters"],
            y=table[name],
            mode="lines+markers",
            name=name,
            line={"color": shade, "dash": dash},
            marker={
                "color": shade,
                "size": np.where(marked, 16, 6),
                "symbol": np.where(marked, symbol, "circle"),
                "line": {"width": np.where(marked, 2, 0), "color": shade},
            },
            hovertemplate=f"{name}: %{{x}} clusters, BIC %{{y:.1f}}<extra></extra>",
        )
    fig.update_xaxes(dtick=1)
    return fig


def norm_by_position(
    norms: Mapping[str, pd.DataFrame], embedding: Mapping[str, float], colours: Mapping[str, str]
) -> go.Figure:
    """The norm of the encoding at each position, a line a run; dotted: the mean norm of a token's embedding,
    where `embedding` knows it.

    Each of `norms` has the columns position, norm and "of its value at 0".
    """
    fig = style.figure("position b (tokens)", "norm", y_log=True, height=380, uirevision="norm")
    for run, table in norms.items():
        relative = table["of its value at 0"]
        fig.add_scatter(
            x=table["position"],
            y=table["norm"],
            mode="lines",
            name=style.safe(run),
            line={"color": colours[run], "width": 2},
            customdata=100 * relative,
            hovertemplate="position %{x}<br>norm %{y:.3g}<br>%{customdata:.3g} % of position 0<extra></extra>",
        )
        if run not in embedding:
            continue
        last = table["position"].iloc[-1]
        fig.add_scatter(
            x=[0, last],
            y=[embedding[run]] * 2,
            mode="lines",
            showlegend=False,
            line={"color": colours[run], "width": 1, "dash": "dot"},
            hovertemplate="mean norm of a token's embedding %{y:.3g}<extra></extra>",
        )
    top = max([*embedding.values(), *(table["norm"].max() for table in norms.values())])
    bottom = min([*embedding.values(), *(0.002 * table["norm"].iloc[0] for table in norms.values())])
    fig.update_yaxes(range=[math.log10(bottom / 1.5), math.log10(top * 1.5)], **LOG_TICKS)
    return fig
