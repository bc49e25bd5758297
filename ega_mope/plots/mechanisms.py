"""What a mechanism does to a sentence: one query's attention over its keys, and their gates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from ega_mope.plots.style import OKABE_ITO, figure, safe


def row_figure(
    characters: Sequence[str], values: Float[np.ndarray, " key"], title: str, query: int, colour: str = "blue"
) -> go.Figure:
    """One bar a key token up to the query; `title` names the quantity and its unit."""
    shown = [_visible(character) for character in characters[: query + 1]]
    fig = figure("key token", title, height=240, legend=False)
    fig.add_trace(
        go.Bar(
            x=list(range(query + 1)),
            y=values[: query + 1],
            customdata=[safe(character) for character in shown],
            marker_color=OKABE_ITO[colour],
            hovertemplate="%{customdata} at %{x}: %{y:.4f}<extra></extra>",
        )
    )
    fig.update_xaxes(
        tickmode="array", tickvals=list(range(query + 1)), ticktext=[safe(c) for c in shown], tickangle=0
    )
    fig.update_yaxes(rangemode="tozero")
    return fig


def _visible(character: str) -> str:
    return {" ": "␣", "\n": "⏎", "\t": "⇥"}.get(character, character)
