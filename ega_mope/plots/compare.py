"""Loss curves of configurations: mean, band, and each run faintly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from ega_mope.plots import style

MOST_POINTS = 5_000
"""Points of one panel's faint lines: beyond about that many SVG becomes slow."""

MOST_POINTS_A_LINE = 1_000


@dataclass(frozen=True)
class Line:
    """One configuration and split."""

    label: str
    colour: str
    dash: str
    members: pd.DataFrame
    means: pd.DataFrame

    @property
    def n_runs(self) -> int:
        return self.members["run"].nunique()


def loss_curves(
    members: pd.DataFrame,
    means: pd.DataFrame,
    colours: Mapping[str, str],
    dashes: Mapping[str, str],
    x_title: str,
    y_title: str,
    *,
    x_log: bool = False,
    y_log: bool = False,
    smoothed: bool = False,
    leave_out: float = 0.0,
) -> go.Figure:
    """Loss over training, one colour a configuration.

    `members` holds one row a run and record: line, key, split, run, step, x, loss, smoothed; `means` one a
    line and step: line, step, x, n, mean, low, high. Colours and dashes go by `key`. Thick is the mean over
    runs (of smoothed losses, where `smoothed`), the band around it low to high, thin the runs' own losses,
    never smoothed, × the last finite loss of a run that diverged. `leave_out`: this first share of the x
    range does not stretch the loss axis.
    """
    lines = list(_lines(members, means, colours, dashes))
    # On a phone each name of the legend takes a row, which the curves must not pay for.
    height = min(900, 400 + 20 * len(lines))
    fig = style.figure(x_title, y_title, x_log=x_log, y_log=y_log, height=height)
    n_runs = sum(line.n_runs for line in lines)
    for line in lines:
        _add_band(fig, line, x_log, y_log)
    for line in lines:
        if smoothed or line.n_runs > 1:
            _add_members(fig, line, MOST_POINTS // n_runs)
    for line in lines:
        _add_mean(fig, line)
        _add_diverged(fig, line)
    if leave_out:
        _fit_y(fig, members, means, leave_out, y_log)
    return fig


def _lines(
    members: pd.DataFrame, means: pd.DataFrame, colours: Mapping[str, str], dashes: Mapping[str, str]
) -> Iterable[Line]:
    """Beside validation losses, training losses are dotted."""
    beside = members["split"].nunique() > 1
    for label, table in members.groupby("line", sort=False):
        key, split = table["key"].iloc[0], table["split"].iloc[0]
        dash = "dot" if beside and split == "train" else dashes[key]
        yield Line(str(label), colours[key], dash, table, means[means["line"] == label])


def _add_band(fig: go.Figure, line: Line, x_log: bool, y_log: bool) -> None:
    """One closed polygon for each stretch without gaps: `tonexty` draws gaps wrong."""
    table = _thinned(line.means)
    there = np.isfinite(table["low"]) & (table["x"] > 0 if x_log else True)
    there &= (table["low"] > 0) if y_log else True
    xs: list[float | None] = []
    ys: list[float | None] = []
    for part in _stretches(table, there):
        xs += [*part["x"], *part["x"][::-1], None]
        ys += [*part["high"], *part["low"][::-1], None]
    if xs:
        fig.add_scatter(
            x=xs[:-1],
            y=ys[:-1],
            fill="toself",
            fillcolor=style.with_alpha(line.colour, 0.18),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            showlegend=False,
            legendgroup=line.label,
        )


def _thinned(means: pd.DataFrame) -> pd.DataFrame:
    return means.iloc[_kept(means["mean"].to_numpy(), MOST_POINTS_A_LINE)]


def _stretches(table: pd.DataFrame, there: pd.Series) -> Iterable[pd.DataFrame]:
    """The runs of consecutive rows where `there` holds."""
    number = (~there).cumsum()
    return (part for _, part in table[there].groupby(number[there]))


def _add_members(fig: go.Figure, line: Line, most: int) -> None:
    """All runs of a configuration as one trace with gaps: a thousand traces would be slow."""
    names, x, y = (line.members[column].to_numpy() for column in ("run", "x", "loss"))
    starts = np.flatnonzero(names[1:] != names[:-1]) + 1
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for rows in np.split(np.arange(len(names)), starts):
        rows = rows[np.isfinite(y[rows])]
        if len(rows):
            rows = rows[_kept(y[rows], max(20, most))]
            xs += [*x[rows].tolist(), None]
            ys += [*y[rows].tolist(), None]
            texts += [style.safe(str(names[rows[0]]))] * (len(rows) + 1)
    fig.add_scatter(
        x=xs,
        y=ys,
        text=texts,
        mode="lines",
        line={"color": style.with_alpha(line.colour, 0.35), "width": 1, "dash": line.dash},
        hovertemplate="%{text}<br>%{x:,} · %{y:.4f}<extra></extra>",
        showlegend=False,
        legendgroup=line.label,
    )


def _add_mean(fig: go.Figure, line: Line) -> None:
    table = _thinned(line.means)
    fig.add_scatter(
        x=table["x"],
        y=table["mean"],
        customdata=table[["step", "n", "low", "high"]],
        name=style.safe(line.label),
        legendgroup=line.label,
        mode="lines+markers" if len(table) < 3 else "lines",
        line={"color": line.colour, "width": 2.5, "dash": line.dash},
        marker={"color": line.colour},
        hovertemplate=(
            f"<b>{style.safe(line.label)}</b><br>step %{{customdata[0]:,}} · %{{y:.4f}} · "
            "N = %{customdata[1]}<br>band %{customdata[2]:.4f} to %{customdata[3]:.4f}<extra></extra>"
            if table["low"].notna().any()
            else f"<b>{style.safe(line.label)}</b><br>step %{{customdata[0]:,}} · %{{y:.4f}} · "
            "N = %{customdata[1]}<extra></extra>"
        ),
    )


def _add_diverged(fig: go.Figure, line: Line) -> None:
    """Where a run was last finite before it was not."""
    table = line.members.sort_values("step", kind="stable")
    broken = table.loc[table["loss"].isna(), "run"].unique()
    last = table[table["run"].isin(broken)].dropna(subset=["loss"]).groupby("run", sort=False).tail(1)
    if len(last):
        fig.add_scatter(
            x=last["x"],
            y=last["loss"],
            text=[style.safe(name) for name in last["run"]],
            mode="markers",
            marker={"symbol": "x", "size": 10, "color": line.colour},
            hovertemplate="%{text} diverged after this<extra></extra>",
            showlegend=False,
            legendgroup=line.label,
        )


def _fit_y(fig: go.Figure, members: pd.DataFrame, means: pd.DataFrame, leave_out: float, y_log: bool) -> None:
    """Nothing where no finite loss is left to fit to."""
    start = leave_out * members["x"].max()
    late, late_means = members[members["x"] >= start], means[means["x"] >= start]
    low = np.nanmin([np.inf, late["loss"].min(), late_means["low"].min()])
    high = np.nanmax([-np.inf, late["loss"].max(), late_means["high"].max()])
    if not low <= high or (y_log and low <= 0):
        return
    if y_log:
        low, high = np.log10(low), np.log10(high)
    room = 0.05 * (high - low) or 0.01
    fig.update_yaxes(range=[low - room, high + room])


def _kept(values: np.ndarray, most: int) -> np.ndarray:
    """Rows to draw, at most about `most`: each stretch's lowest and highest value, so that no spike is lost."""
    if len(values) <= most:
        return np.arange(len(values))
    keep = {0, len(values) - 1}
    for rows in np.array_split(np.arange(len(values)), max(1, most // 2)):
        keep |= {int(rows[values[rows].argmin()]), int(rows[values[rows].argmax()])}
    return np.array(sorted(keep))
