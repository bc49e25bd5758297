"""The 2×2 drawn: from the baseline through the parts to both together, and each seed's gains."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots import style

BETTER, WORSE = style.OKABE_ITO["blue"], style.OKABE_ITO["vermillion"]
"""For a loss that falls, and one that rises; bars also carry their signed number."""


Interval = tuple[float, float] | None


def waterfall(cells: pd.DataFrame, gains: pd.DataFrame, y_title: str) -> go.Figure:
    """Mean loss from the baseline by what each part changes alone, then the interaction, to both together.

    `cells`: cell (00 baseline, 11 both), model, mean, 95 % from, 95 % to. `gains`: gain, mean (positive is
    better), 95 % from, 95 % to; its rows are EGA alone, MoPE alone, both, interaction. Whiskers are the
    intervals. Before the last bar stands where plain addition of the parts would end.
    """
    fig = style.figure("", y_title, legend=False, height=420)
    by_cell = {row["cell"]: row for _, row in cells.iterrows()}
    ega, mope, _, interaction = (row for _, row in gains.iterrows())
    baseline, both = by_cell["00"], by_cell["11"]
    level = float(baseline["mean"])
    _add_level(fig, baseline["model"], level, _interval(baseline))
    level = _add_step(fig, ega, level)
    level = _add_step(fig, mope, level)
    _add_level(fig, "sum of parts", level, None)
    _add_step(fig, interaction, level)
    _add_level(fig, both["model"], float(both["mean"]), _interval(both))
    fig.update_xaxes(type="category", tickangle=0, showgrid=False)
    return fig


def _interval(row: pd.Series) -> Interval:
    low, high = row["95 % from"], row["95 % to"]
    return None if pd.isna(low) else (float(low), float(high))


def _add_level(fig: go.Figure, name: str, mean: float, interval: Interval) -> None:
    fig.add_scatter(
        x=[_broken(name)],
        y=[mean],
        mode="markers",
        marker={"symbol": "line-ew", "size": 34, "line": {"width": 3, "color": style.GREY}},
        error_y=_whiskers(mean, interval),
        hovertemplate=f"{name}: %{{y:.4f}}{_interval_text(interval, '.4f')}<extra></extra>",
    )
    _add_number(fig, name, max(mean, *(interval or (mean,))), f"{mean:.4f}")


def _add_step(fig: go.Figure, gain: pd.Series, start: float) -> float:
    """The bar of one gain from `start`; returns where it ends."""
    name, found = gain["gain"], _interval(gain)
    interval = found and (start - found[1], start - found[0])
    end = start - gain["mean"]
    fig.add_bar(
        x=[_broken(name)],
        y=[end - start],
        base=[start],
        width=0.5,
        marker={"color": BETTER if gain["mean"] >= 0 else WORSE},
        error_y=_whiskers(end, interval),
        hovertemplate=f"{name}: gain {gain['mean']:+.4f}{_interval_text(found)}<extra></extra>",
    )
    _add_number(fig, name, max(start, end, *(interval or ())), f"{gain['mean']:+.4f}")
    return end


def _add_number(fig: go.Figure, name: str, y: float, text: str) -> None:
    """Above the whisker, where nothing lies on it."""
    fig.add_scatter(
        x=[_broken(name)],
        y=[y],
        mode="text",
        text=[text],
        textposition="top center",
        cliponaxis=False,
        hoverinfo="skip",
    )


def _broken(name: str) -> str:
    """On two lines, which a phone has room for."""
    return "<br>".join(name.replace("interaction", "inter- action").rsplit(" ", 1))


def seed_gains(gains: pd.DataFrame, unit: str) -> go.Figure:
    """Each seed's gains as points, their mean beside them as a diamond with its 95 % interval; 0 is no gain.

    `gains` as for `waterfall`, with a column "seed …" for each seed where the cells are paired.
    """
    fig = style.figure("", f"gain ({unit})", legend=False, height=380)
    seeds = [column for column in gains.columns if column.startswith("seed ")]
    apart = np.linspace(-0.25, 0.05, len(seeds)) if len(seeds) > 1 else np.array([-0.1])
    for number, (_, gain) in enumerate(gains.iterrows()):
        name, mean, interval = gain["gain"], gain["mean"], _interval(gain)
        colour = BETTER if mean >= 0 else WORSE
        fig.add_scatter(
            x=number + apart[: len(seeds)],
            y=gain[seeds].tolist(),
            customdata=seeds,
            mode="markers",
            marker={"color": colour, "size": 7},
            hovertemplate=f"{name}, %{{customdata}}: %{{y:+.4f}}<extra></extra>",
        )
        fig.add_scatter(
            x=[number + 0.2],
            y=[mean],
            mode="markers",
            marker={"symbol": "diamond", "color": colour, "size": 12},
            error_y=_whiskers(mean, interval),
            hovertemplate=f"{name}, mean: %{{y:+.4f}}{_interval_text(interval)}<extra></extra>",
        )
    fig.add_hline(y=0, line={"color": style.GREY, "width": 1, "dash": "dot"})
    fig.update_xaxes(
        tickvals=list(range(len(gains))),
        ticktext=[_broken(name) for name in gains["gain"]],
        tickangle=0,
        range=[-0.5, len(gains) - 0.5],
        showgrid=False,
    )
    return fig


def gains_over_training(course: pd.DataFrame, unit: str) -> go.Figure:
    """Each gain and the interaction over the steps: the mean, in a band its 95 % interval; 0 is no gain.

    `course`: step, gain, N, mean (positive is better), 95 % from, 95 % to; no band where there is no interval.
    """
    fig = style.figure("step", f"gain ({unit})", height=420)
    looks = list(zip(course.groupby("gain", sort=False), style.LINE_COLOURS, style.DASHES, strict=False))
    for (name, table), colour, _ in looks:
        there = table.dropna(subset=["95 % from"])
        if there.empty:
            continue
        fig.add_scatter(
            x=[*there["step"], *there["step"][::-1]],
            y=[*there["95 % to"], *there["95 % from"][::-1]],
            fill="toself",
            fillcolor=style.with_alpha(colour, 0.18),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
            legendgroup=name,
        )
    for (name, table), colour, dash in looks:
        fig.add_scatter(
            x=table["step"],
            y=table["mean"],
            customdata=[_interval_text(_interval(row)) for _, row in table.iterrows()],
            name=name,
            legendgroup=name,
            mode="lines+markers",
            line={"color": colour, "width": 2.5, "dash": dash},
            marker={"color": colour, "size": 5},
            hovertemplate=f"{name}, step %{{x:,}}: %{{y:+.4f}}%{{customdata}}<extra></extra>",
        )
    fig.add_hline(y=0, line={"color": style.GREY, "width": 1, "dash": "dot"})
    return fig


def _whiskers(mean: float, interval: Interval) -> dict[str, object]:
    if interval is None:
        return {}
    return {
        "type": "data",
        "symmetric": False,
        "array": [interval[1] - mean],
        "arrayminus": [mean - interval[0]],
        "thickness": 1.5,
        "width": 6,
        "color": style.GREY,
    }


def _interval_text(interval: Interval, form: str = "+.4f") -> str:
    return "" if interval is None else f"<br>95 % from {interval[0]:{form}} to {interval[1]:{form}}"
