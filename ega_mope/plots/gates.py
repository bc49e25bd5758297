"""Figures of a text's gates: all heads as thumbnails, and one head over the whole text."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from numpy.typing import NDArray

from ega_mope.plots.shades import SHADES, Mode, colour_scale
from ega_mope.plots.style import GREY, OKABE_ITO, figure

COLUMNS, ROWS = 24, 6
"""Cells of one thumbnail: the text in reading order, left to right and down."""


def thumbnails(
    profiles: Float[np.ndarray, "layer head bin"],
    spread: Float[np.ndarray, "layer head"],
    *,
    chosen: tuple[int, int],
    shade: str = "gate",
    mode: Mode = "light",
) -> go.Figure:
    """A grid of layers (down) by heads (across), each cell the whole text in reading order.

    `profiles` are means over stretches of the text, `spread` each head's standard deviation of gates;
    the head `chosen` (from 0) is framed. Each thumbnail carries one point with customdata
    [layer, head] from 0, so that a click can choose it.
    """
    layers, heads, bins = profiles.shape
    columns = min(COLUMNS, bins)
    rows = -(-bins // columns)
    padded = np.pad(profiles, ((0, 0), (0, 0), (0, rows * columns - bins)), constant_values=np.nan)
    tiles = np.pad(
        padded.reshape(layers, heads, rows, columns), ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan
    )
    picture = tiles.transpose(0, 2, 1, 3).reshape(layers * (rows + 1), heads * (columns + 1))
    across, down = np.arange(heads) * (columns + 1), np.arange(layers) * (rows + 1)
    fig = figure("head", "layer", height=100 + 64 * layers, legend=False, uirevision="gates")
    fig.update_layout(margin={"b": 8})  # its ticks are above
    fig.add_trace(_heat(shade, mode, z=picture, hoverinfo="skip"))
    fig.add_trace(_targets(across + (columns - 1) / 2, down + (rows - 1) / 2, spread))
    layer, head = chosen
    fig.add_shape(
        type="rect",
        x0=across[head] - 0.75,
        x1=across[head] + columns - 0.25,
        y0=down[layer] - 0.75,
        y1=down[layer] + rows - 0.25,
        line={"color": OKABE_ITO["vermillion"], "width": 3},
    )
    fig.update_xaxes(**_ticks(across + (columns - 1) / 2, heads), side="top")
    fig.update_yaxes(**_ticks(down + (rows - 1) / 2, layers), autorange="reversed")
    return fig


def overview(
    profile: Float[np.ndarray, " bin"],
    *,
    characters: int,
    view: tuple[int, int],
    shade: str = "gate",
    mode: Mode = "light",
) -> go.Figure:
    """One head over the whole text as a strip, the stretch in view framed; positions in characters."""
    edges = np.linspace(0, characters, len(profile) + 1)
    fig = figure("position (characters)", "", height=130, legend=False, uirevision="strip")
    fig.update_layout(margin={"b": 56, "l": 12, "r": 12})
    fig.add_trace(
        _heat(
            shade,
            mode,
            z=profile[None],
            x=edges,
            y=[0, 1],
            hovertemplate=f"around character %{{x:.0f}}<br>mean {SHADES[shade].label} %{{customdata:.3f}}<extra></extra>",
            customdata=profile[None],
        )
    )
    fig.add_shape(
        type="rect", x0=view[0], x1=view[1], y0=0, y1=1, line={"color": OKABE_ITO["vermillion"], "width": 3}
    )
    fig.update_xaxes(range=[0, characters], showgrid=False)
    fig.update_yaxes(visible=False, range=[-0.06, 1.06])
    return fig


def _heat(shade: str, mode: Mode, z: NDArray[Any], **options: Any) -> go.Heatmap:
    """Values as the text's own classes and colours."""
    chosen = SHADES[shade]
    known = ~np.isnan(z)
    shown = np.where(known, chosen.transform(np.where(known, z, 1.0)), np.nan)
    return go.Heatmap(
        z=shown,
        zmin=chosen.low,
        zmax=chosen.high,
        colorscale=colour_scale(chosen, mode),
        showscale=False,
        **options,
    )


def _targets(x: NDArray[Any], y: NDArray[Any], spread: NDArray[Any]) -> go.Scatter:
    layers, heads = spread.shape
    places = [(layer, head) for layer in range(layers) for head in range(heads)]
    style = {"opacity": 0.0, "size": 44, "symbol": "square", "color": GREY}
    return go.Scatter(
        x=[x[head] for _, head in places],
        y=[y[layer] for layer, _ in places],
        mode="markers",
        marker=style,
        customdata=[[layer, head] for layer, head in places],
        text=[
            f"layer {layer + 1}, head {head + 1}<br>spread {spread[layer, head]:.3f}"
            for layer, head in places
        ],
        hovertemplate="%{text}<extra></extra>",
    )


def _ticks(places: NDArray[Any], count: int) -> dict[str, Any]:
    return {
        "tickvals": places,
        "ticktext": [str(number + 1) for number in range(count)],
        "showgrid": False,
    }
