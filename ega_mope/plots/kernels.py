"""Figures of correlation kernels, the Gram matrix, and what heads do on a text by lag and distance."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Float

from ega_mope.plots import style
from ega_mope.plots.scales import log_ticks

PAIR_COLOURS = [style.OKABE_ITO[name] for name in ("blue", "vermillion", "green", "purple")]
CHOSEN, LIMIT = style.OKABE_ITO["orange"], style.OKABE_ITO["sky"]
LIMIT_DASHES = {"σ → ∞": "dot", "ω = 0": "dash"}
SHOWN_TOKENS = 48
"""Tokens on a side of the grid of pairs: about as many as can be told apart."""
LEAST_DECADE = -4
"""The grid's darkest colour: a weight of 10 to this power or less."""

_GLYPHS = {" ": "␣", "\n": "⏎", "\t": "⇥"}


def kernel_lines(table: pd.DataFrame, limits: Sequence[str]) -> go.Figure:
    """Kernels by lag: the mean of all pairs, chosen pairs and their mean, and limits where asked for.

    `table` has the columns lag, "mean of all", and where pairs are chosen "pair i" … and "mean of chosen".
    """
    fig = style.figure("lag τ (tokens)", "C(τ), C(0) = 1", height=420, uirevision="kernels")
    pairs = [name for name in table.columns if name.startswith("pair ")]
    few = len(pairs) <= len(PAIR_COLOURS)
    for number, name in enumerate(pairs):
        colour = PAIR_COLOURS[number if few else 0]
        _line(
            fig,
            table,
            name,
            {"color": colour, "width": 2 if few else 1},
            legend=few,
            opacity=1.0 if few else 0.4,
        )
    means = {"mean of all": style.GREY, "mean of chosen": CHOSEN}
    for name, colour in means.items():
        if name in table and not (name == "mean of chosen" and len(pairs) == 1):
            _line(fig, table, name, {"color": colour, "width": 3})
    for name in limits:
        _line(fig, table, name, {"color": LIMIT, "width": 2, "dash": LIMIT_DASHES[name]})
    fig.update_yaxes(range=[-1.08, 1.08])
    return fig


def cluster_lines(table: pd.DataFrame) -> go.Figure:
    """The mean kernel of each cluster of pairs by lag, in the colours of the plane."""
    fig = style.figure("lag τ (tokens)", "mean C(τ)", height=300, uirevision="clusters")
    for number, name in enumerate(name for name in table.columns if name != "lag"):
        colour = style.LINE_COLOURS[number % len(style.LINE_COLOURS)]
        _line(fig, table, name, {"color": colour, "width": 2})
    fig.update_yaxes(range=[-1.08, 1.08])
    return fig


def _line(
    fig: go.Figure,
    table: pd.DataFrame,
    name: str,
    line: dict[str, Any],
    *,
    legend: bool = True,
    opacity: float = 1.0,
) -> None:
    fig.add_scatter(
        x=table["lag"],
        y=table[name],
        mode="lines",
        name=name,
        line=line,
        opacity=opacity,
        showlegend=legend,
        hovertemplate=f"{name}<br>lag %{{x}} tokens<br>%{{y:.4f}}<extra></extra>",
    )


def gram_matrix(values: Float[np.ndarray, "time time"], *, dark: bool) -> go.Figure:
    """MoPE(b)·MoPE(b′): zero in the page's colour, positive in vermillion, negative in blue."""
    largest = float(np.abs(values).max()) or 1.0
    fig = style.figure("b′ (tokens)", "b (tokens)", height=460, legend=False, uirevision="gram")
    fig.add_heatmap(
        z=values,
        zmin=-largest,
        zmax=largest,
        colorscale=_diverging(dark),
        colorbar={"thickness": 12, "outlinewidth": 0, "title": {"text": ""}},
        hovertemplate="b %{y}, b′ %{x}<br>product %{z:.3f}<extra></extra>",
    )
    fig.update_yaxes(autorange="reversed")
    return fig


def _diverging(dark: bool) -> list[tuple[float, str]]:
    middle = "#12171d" if dark else "#ffffff"
    return [(0.0, style.OKABE_ITO["blue"]), (0.5, middle), (1.0, style.OKABE_ITO["vermillion"])]


def pair_grid(
    weight: Float[np.ndarray, "query key"], tokens: Sequence[str], chosen: tuple[int, int]
) -> go.Figure:
    """Attention weights between the first tokens, coloured by decade, the pair `chosen` framed.

    Each pair is a point with customdata [query, key], so that a click can choose it.
    """
    shown = min(SHOWN_TOKENS, len(tokens))
    fig = style.figure("key", "query", height=520, legend=False, uirevision="grid")
    fig.update_layout(margin={"b": 76, "r": 88})  # the colour bar reaches so far
    seen = np.tri(shown, dtype=bool)
    decades = np.where(seen, np.log10(np.maximum(weight[:shown, :shown], 10.0**LEAST_DECADE)), np.nan)
    ticks = list(range(LEAST_DECADE, 1))
    fig.add_heatmap(
        z=decades,
        zmin=LEAST_DECADE,
        zmax=0,
        colorscale=style.SEQUENTIAL,
        colorbar={
            "thickness": 12,
            "outlinewidth": 0,
            "tickvals": ticks,
            "ticktext": [f"{10.0**tick:g}" for tick in ticks],
        },
        hoverinfo="skip",
    )
    query, key = np.tril_indices(shown)
    fig.add_scatter(
        x=key,
        y=query,
        mode="markers",
        marker={"opacity": 0.0, "symbol": "square", "size": 9, "color": style.GREY},
        customdata=np.stack([query, key], axis=1).tolist(),
        text=[
            f"query {i} {glyph(tokens[i])}<br>key {j} {glyph(tokens[j])}<br>weight {weight[i, j]:.4f}"
            for i, j in zip(query.tolist(), key.tolist(), strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
    )
    row, column = chosen
    if max(chosen) < shown:
        frame = {"x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5}
        fig.add_shape(type="rect", **frame, line={"color": style.OKABE_ITO["vermillion"], "width": 3})
    places = {"tickvals": list(range(shown)), "ticktext": [glyph(token) for token in tokens[:shown]]}
    ends = [-0.5, shown - 0.5]
    fig.update_xaxes(**places, range=ends, tickangle=0, tickfont={"size": 9})
    fig.update_yaxes(**places, range=ends[::-1], tickfont={"size": 9}, showgrid=False)
    return fig


def glyph(token: str) -> str:
    """A token as it can be seen and is safe in a label."""
    return style.safe(_GLYPHS.get(token, token))


def lag_stems(table: pd.DataFrame) -> go.Figure:
    """C_ij(ℓ) of one pair: ℓ = 0, which attention uses, apart from the rest. Columns lag, key, token, correlation."""
    fig = style.figure("lag ℓ (tokens)", "C(ℓ)", height=340, uirevision="lags")
    parts = (
        ("ℓ = 0: all that attention uses", table["lag"] == 0, style.OKABE_ITO["vermillion"], 12),
        ("ℓ > 0: what it discards", table["lag"] > 0, style.OKABE_ITO["blue"], 6),
    )
    for name, rows, colour, size in parts:
        part = table[rows]
        stems = np.stack(
            [np.zeros(len(part)), part["correlation"], np.full(len(part), np.nan)], axis=1
        ).ravel()
        fig.add_scatter(
            x=np.repeat(part["lag"], 3), y=stems, mode="lines", line={"color": colour, "width": 1},
            hoverinfo="skip", showlegend=False,
        )  # fmt: skip
        fig.add_scatter(
            x=part["lag"],
            y=part["correlation"],
            mode="markers",
            name=name,
            marker={"color": colour, "size": size},
            text=[_lag_text(row) for row in part.to_dict("records")],
            hovertemplate="%{text}<extra></extra>",
        )
    return fig


def _lag_text(row: dict[Hashable, Any]) -> str:
    return f"lag {row['lag']}: key {row['key']} {glyph(row['token'])}<br>{row['correlation']:.4f}"


def by_distance(table: pd.DataFrame, column: str, y_title: str, reference: str | None = None) -> go.Figure:
    """A line a head of `column` by distance, and where named a dotted `reference` column.

    With a reference the axis is logarithmic: both are shares.
    """
    fig = style.figure(
        "distance δ (tokens)", y_title, y_log=reference is not None, height=340, uirevision=column
    )
    for number, (head, part) in enumerate(table.groupby("head")):
        look = {
            "color": style.LINE_COLOURS[number % len(style.LINE_COLOURS)],
            "dash": style.DASHES[number // len(style.LINE_COLOURS) % len(style.DASHES)],
        }
        fig.add_scatter(
            x=part["distance"],
            y=part[column],
            mode="lines",
            name=f"head {head}",
            line=look,
            customdata=part["queries"],
            hovertemplate=f"head {head}, distance %{{x}}<br>%{{y:.4g}}, mean of %{{customdata:,}} queries<extra></extra>",
        )
    if reference:
        fig.update_yaxes(**log_ticks([*table[column], *table[reference]]))
        first = table[table["head"] == table["head"].iloc[0]]
        fig.add_scatter(
            x=first["distance"],
            y=first[reference],
            mode="lines",
            name=reference,
            line={"color": style.GREY, "dash": "dot"},
            hovertemplate=f"{reference}<br>distance %{{x}}: %{{y:.4g}}<extra></extra>",
        )
    return fig
