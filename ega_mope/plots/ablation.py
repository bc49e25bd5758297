"""Figure of an ablation: the parts of a model by how much it loses without each."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots import style

LOOKS = {
    "gate opened": ("blue", "circle"),
    "layer's gates opened": ("vermillion", "square"),
    "all gates opened": ("green", "diamond"),
    "pairs removed": ("blue", "circle"),
    "pairs at their start": ("vermillion", "square"),
}
ROW_PIXELS = 22


def ranked(table: pd.DataFrame, unit: str) -> go.Figure:
    """A row a change, the most needed on top, with the 95 % interval of its loss change.

    `table` has the columns kind, part, count, loss_change, low, high, clear and kl_nats, in the order to draw;
    `unit` such as "nats per character". Open markers: the interval holds 0. Controls are grey.
    """
    rows = [_name(row) for row in table.to_dict("records")]
    fig = style.figure(
        f"loss change ({unit})",
        "",
        height=120 + ROW_PIXELS * len(rows),
        uirevision="ablation",
    )
    style.reference_line(fig, "", x=0.0)
    for kind, part in table.groupby("kind", sort=False):
        colour, symbol = LOOKS.get(str(kind), (None, "x-thin"))
        shade = style.OKABE_ITO[colour] if colour else style.GREY
        fig.add_scatter(
            x=part["loss_change"],
            y=[_name(row) for row in part.to_dict("records")],
            mode="markers",
            name=str(kind),
            marker={
                "color": shade,
                "size": 9,
                "line": {"width": 2, "color": shade},
                "symbol": [symbol if clear else f"{symbol}-open" for clear in part["clear"]],
            },
            error_x={
                "type": "data",
                "symmetric": False,
                "array": (part["high"] - part["loss_change"]).fillna(0.0),
                "arrayminus": (part["loss_change"] - part["low"]).fillna(0.0),
                "color": shade,
                "thickness": 1.5,
                "width": 0,
            },
            text=[_hover(row) for row in part.to_dict("records")],
            hovertemplate="%{text}<extra></extra>",
        )
    fig.update_yaxes(type="category", categoryorder="array", categoryarray=rows[::-1], showgrid=True)
    return fig


def _name(row: dict[Hashable, Any]) -> str:
    """What tells a row from every other: the part alone is named by more than one kind."""
    short = {"pairs at their start": "at start", "random pairs removed": "random", "pairs removed": "removed"}
    return f"{row['part']}, {short[row['kind']]}" if row["kind"] in short else str(row["part"])


def _hover(row: dict[Hashable, Any]) -> str:
    interval = "" if pd.isna(row["low"]) else f"<br>95 % from {row['low']:+.4f} to {row['high']:+.4f}"
    return (
        f"{row['part']}: {row['kind']} ({row['count']})<br>loss {row['loss_change']:+.4f}{interval}"
        f"<br>predictions move by {row['kl_nats']:.4f} nats (KL)"
    )
