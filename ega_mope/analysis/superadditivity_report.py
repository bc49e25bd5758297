"""What a superadditivity result says: the verdict, remarks and tables that the page and the command line show."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ega_mope.analysis.factorial import CELLS
from ega_mope.analysis.intervals import BCA_LEAST, Interval, bca_coverage
from ega_mope.analysis.losses import metric_named
from ega_mope.analysis.superadditivity import CONTRASTS, Contrast, Superadditivity, over_training

FUTURE_NOTE = "Its gates compare a token with later ones too: what they gain may be a look at the future."
"""Stands beside every 2×2 whose gate is not causal."""

NAMES = {"ega": "EGA alone", "mope": "MoPE alone", "both": "both", "interaction": "interaction"}
"""What each contrast is called."""

PAPER_LOSSES_NATS: Mapping[str, float] = {"00": 1.4742, "10": 1.3821, "01": 1.5060, "11": 1.3550}
"""The published cells (arXiv 2605.26355), nats per character on TinyShakespeare."""

PAPER_NOTE = (
    "TinyShakespeare, one seed, 6 layers, d = 256, context 256, 5,001 steps, final loss on 50 random batches, "
    "a gate that sees the future (sequence)"
)


def paper_cells(metric: str = "nats") -> dict[str, float]:
    """The paper's four cells in this metric (its one seed, so the transform is exact)."""
    return {cell: metric_named(metric).value(loss) for cell, loss in PAPER_LOSSES_NATS.items()}


def paper_interaction(metric: str = "nats") -> float:
    """The paper's interaction, computed from its four cells: +0.0589 nats."""
    cells = paper_cells(metric)
    return sum(weight * cells[name] for name, weight in CONTRASTS["interaction"].items())


def verdict(result: Superadditivity) -> str:
    """Both facts in one sentence: what the interaction is, and whether both together beat the baseline."""
    interaction = result.interaction
    if interaction is None:
        return f"No verdict: {result.refused}"
    if interaction.interval is None:
        one = result.paired and result.n == 1
        word = "One seed, so nothing can be said about chance" if one else "No interval"
    elif not interaction.interval.excludes_zero():
        word = "Not told apart from plain addition"
    else:
        word = "More than the sum of the parts" if interaction.mean > 0 else "Less than the sum of the parts"
    count = f"N = {result.n}" if result.paired else f"unpaired, {_counts(result)} runs"
    return f"{word}: interaction {_signed(interaction, f' {result.unit}', count)}; {_both(result)}."


def _both(result: Superadditivity) -> str:
    gain = result.contrasts["both"]
    size = _signed(gain, "")
    means = {name: cell.mean for name, cell in result.cells.items() if cell.mean is not None}
    if gain.interval is not None and not gain.interval.excludes_zero():
        fact = f"both together cannot be told from the baseline (gain {size})"
    elif gain.mean > 0:
        fact = f"both together beat the baseline (gain {size})"
    else:
        fact = f"both together do not beat the baseline (gain {size})"
    best = min(means, key=lambda name: means[name])
    return fact if best in ("11", "00") else f"{fact}, and {CELLS[best]} alone has the lowest mean loss"


def _signed(contrast: Contrast, *words: str) -> str:
    """The mean, these words, and the interval where there is one."""
    parts = [f"{contrast.mean:+.4f}{words[0]}", *words[1:]]
    if contrast.interval is not None:
        parts.append(f"95 % [{contrast.interval.low:+.4f}, {contrast.interval.high:+.4f}]")
    return ", ".join(parts)


def _counts(result: Superadditivity) -> str:
    return "/".join(str(cell.n) for cell in result.cells.values())


def remarks(result: Superadditivity) -> list[str]:
    """What was left out and why, the sign-flip test with its floor, BCa with its measured coverage."""
    lines: list[str] = []
    answer = result.to_json()["interaction"]
    p, floor, n = answer["sign_flip_p"], answer["p_floor"], answer["n"]
    if p is not None:
        lines.append(f"exact sign-flip test: p = {p:.4g}; {n} seeds allow no p below 2/2^{n} = {floor:.4g}")
    if answer["bca_interval"]:
        low, high = answer["bca_interval"]
        lines.append(
            f"BCa bootstrap: 95 % [{low:+.4f}, {high:+.4f}]; with so few seeds it really covers about "
            f"{bca_coverage(n):.0%} (measured on normal samples, where the t interval covers 95 %)"
        )
    if result.paired and n < BCA_LEAST:
        lines.append("p < 0.05 needs 6 seeds: N seeds allow no p below 2/2^N, and 2/2^6 = 0.031")
    return [*lines, *result.notes]


def cells_table(result: Superadditivity) -> pd.DataFrame:
    """The four cells and the interaction with their intervals, the paper's numbers beside them."""
    metric = result.metric.name
    paper = paper_cells(metric) | {"I": paper_interaction(metric)}
    cells = {name: (CELLS[name], cell.n, cell.mean, cell.t_interval) for name, cell in result.cells.items()}
    if result.interaction is not None:
        cells["I"] = ("interaction", result.n, result.interaction.mean, result.interaction.interval)
    return pd.DataFrame(
        [
            {
                "cell": name,
                "model": model,
                "N": n,
                "mean": mean,
                **_ends(interval),
                "the paper's": paper[name],
            }
            for name, (model, n, mean, interval) in cells.items()
        ]
    )


def _ends(interval: Interval | None) -> dict[str, float | None]:
    """The two columns of a 95 % interval."""
    return {"95 % from": interval.low if interval else None, "95 % to": interval.high if interval else None}


def printed(cells: pd.DataFrame) -> pd.DataFrame:
    """A `cells_table` as text: losses to four decimals, "–" for what cannot be computed."""

    def text(value: object) -> str:
        if isinstance(value, float):
            return "–" if value != value else f"{value:.4f}"
        return "–" if value is None else str(value)

    named = cells.assign(cell=cells["cell"] + " " + cells["model"]).drop(columns="model")
    return named.astype(object).map(text)


def gains_table(result: Superadditivity) -> pd.DataFrame:
    """One row a gain (and the interaction): mean, 95 % interval, degrees of freedom, then each seed's."""
    return pd.DataFrame(
        [
            {
                "gain": NAMES[name],
                "mean": found.mean,
                **_ends(found.interval),
                "degrees of freedom": found.degrees_of_freedom,
                **{f"seed {seed}": value for seed, value in found.per_seed.items()},
            }
            for name, found in result.contrasts.items()
        ]
    )


def course_table(result: Superadditivity) -> pd.DataFrame:
    """One row a gain (and the interaction) and step at which all runs that count were validated: step, gain, N, mean,
    95 % interval."""
    return pd.DataFrame(
        [
            {
                "step": at.step,
                "gain": NAMES[name],
                "N": at.n,
                "mean": found.mean,
                **_ends(found.interval),
            }
            for at in over_training(result)
            for name, found in at.contrasts.items()
        ],
        columns=["step", "gain", "N", "mean", "95 % from", "95 % to"],
    )


def printed_course(course: pd.DataFrame) -> pd.DataFrame:
    """A `course_table` as text: one row a step, about five of them and the last, each gain with its interval."""
    steps = sorted(course["step"].unique())
    # Before the first update there is nothing to gain.
    kept = [step for step in steps[:: -max(1, (len(steps) - 1) // 5)] if step][::-1]
    rows = []
    for step in kept:
        shown = {"step": f"{step:,}"}
        for _, row in course[course["step"] == step].iterrows():
            low, high = row["95 % from"], row["95 % to"]
            interval = "" if pd.isna(low) else f" [{low:+.4f}, {high:+.4f}]"
            shown[row["gain"]] = f"{row['mean']:+.4f}{interval}"
        rows.append(shown)
    return pd.DataFrame(rows, columns=["step", *NAMES.values()])


def seeds_table(result: Superadditivity) -> pd.DataFrame:
    """One row a run that counts: cell, its seed where paired, its loss in the chosen metric."""
    return pd.DataFrame(
        [
            {"cell": name, "model": CELLS[name], "seed": seed, "loss": value}
            for name, cell in result.cells.items()
            for seed, value in cell.values.items()
        ]
    )
