"""What all figures share: colours that tell runs apart, and a base that reads on light and dark pages.

Backgrounds are transparent and text takes the page's colour, by the page's style. Colours are set on each
trace: what is left open is as plotly has it, on white.
"""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

OKABE_ITO = {
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "purple": "#CC79A7",
    "black": "#000000",
}
"""Okabe and Ito's eight colours, told apart by every kind of colour vision."""

GREY = "#7F7F7F"
"""For what is reference and not data; the same contrast (about 4) on white and on near-black."""

LINE_COLOURS = [
    OKABE_ITO[name] for name in ("blue", "vermillion", "green", "purple", "orange", "sky")
]  # yellow is lost on white, black on a dark page
DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"]

SEQUENTIAL = "Cividis"
"""Colour scale for magnitudes such as gates."""


def run_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name that depends on the names alone, not on their order or on what is selected.

    Pass every name there is and pick from the answer. Each name asks for a slot of its own making and
    takes the nearest of the least used ones, so that a new name disturbs few others; beyond six
    names colours repeat, and `run_dashes` tells them apart.
    """
    return {name: LINE_COLOURS[slot] for name, (slot, _) in _slots(names).items()}


def run_dashes(names: Iterable[str]) -> dict[str, str]:
    """A dash for each name: names that share a colour in `run_colours` differ here, up to 36 names."""
    return {name: DASHES[turn % len(DASHES)] for name, (_, turn) in _slots(names).items()}


def _slots(names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """For each name its slot among the colours, and how many names took that slot before."""
    size = len(LINE_COLOURS)
    used = [0] * size
    slots: dict[str, tuple[int, int]] = {}
    for name in sorted(set(names)):
        wanted = zlib.crc32(name.encode())
        order = [(wanted + offset) % size for offset in range(size)]
        slot = min(order, key=lambda candidate: used[candidate])
        slots[name] = (slot, used[slot])
        used[slot] += 1
    return slots


def figure(
    x_title: str,
    y_title: str,
    *,
    x_log: bool = False,
    y_log: bool = False,
    height: int = 380,
    legend: bool = True,
    uirevision: str = "keep",
) -> go.Figure:
    """An empty figure with titled axes (write the unit into the title) and the shared layout.

    The legend lies above the plot, where it costs no width on a phone. The margins hold the titles and most
    tick labels: one that does not fit widens its margin, for which the browser draws the figure a second
    time. `uirevision` keeps zoom and hidden traces when the data changes; pass another value to reset them.
    """
    axes = {
        name: {
            "title": {"text": title, "font": {"size": 14}, "standoff": 20},
            "ticks": "",
            "type": "log" if log else "linear",
            "automargin": True,
            "showgrid": name == "yaxis",
            "gridcolor": with_alpha(GREY, 0.25),
            "zeroline": False,
            # A label at the edge widens its margin; to look for one that reaches beyond costs a measure of each.
            "ticklabeloverflow": "allow",
        }
        for name, title, log in (("xaxis", x_title, x_log), ("yaxis", y_title, y_log))
    }
    # All of the layout at once: each update of a figure that stands costs milliseconds.
    return go.Figure(
        layout={
            "height": height,
            "margin": {"l": 72, "r": 8, "t": 32 if legend else 12, "b": 64, "pad": 8},
            "font": {"family": "Source Sans, sans-serif", "size": 12},  # the page's
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": GREY, "activecolor": OKABE_ITO["sky"]},
            "hoverlabel": {"bgcolor": "#1e262f", "bordercolor": GREY, "font": {"color": "#e6ebf0"}},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "showlegend": legend,
            "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"},
            "hovermode": "closest",
            "uirevision": uirevision,
            **axes,
        }
    )


def reference_line(fig: go.Figure, text: str, *, x: float | None = None, y: float | None = None) -> None:
    """A thin dotted grey line across the figure at `x` or at `y`, with its meaning written beside it."""
    style: dict[str, Any] = {
        "line": {"color": GREY, "width": 1, "dash": "dot"},
        "annotation": {"text": safe(text), "font": {"size": 12}, "showarrow": False},
    }
    if x is not None:
        fig.add_vline(x=x, annotation_position="top right", **style)
    if y is not None:
        fig.add_hline(y=y, annotation_position="top left", **style)


def with_alpha(colour: str, alpha: float) -> str:
    """`#rrggbb` as an rgba() colour of that opacity."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def safe(text: str) -> str:
    """User text for hover, labels and annotations: plotly renders tags, so they are escaped."""
    return html.escape(text, quote=True)
