"""The lags that convolutional attention learned to hear: one share a lag, head and layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ega_mope.analysis.learned import learned_at_best
from ega_mope.config import Plain
from ega_mope.runs import Run

if TYPE_CHECKING:
    import pandas as pd

NAME = "attention.lag_weight"


def why_no_lags(run: Run) -> str | None:
    """None, or why this run has no learned lags to look at."""
    attention = run.config.model.attention
    if attention["name"] != "conv":
        return f"attention {attention['name']} has no learned lags (conv has)"
    return None if attention["lags"] else "its attention has lag 0 alone, which is dot product"


def lag_table(run: Run) -> pd.DataFrame:
    """One row a layer, head and lag (tokens): its share now and at the start; a head's shares sum to 1.

    Now is at the best weights: read from them, or where they are not in the folder from the record of
    that step. `start` is NaN where the start is not recorded. A share of 1 at lag 0 is dot-product
    attention. Raises ValueError for a run without learned lags, and for one with neither weights nor record.
    """
    import pandas as pd

    reason = why_no_lags(run)
    if reason:
        raise ValueError(
            f"{run.name}: expected a run with attention conv, got one where {reason}; "
            "train one with `ega-mope train --attention conv`"
        )
    start: Plain = next((record["values"] for record in run.learned() if record["step"] == 0), {})
    now = np.array(learned_at_best(run)[NAME])
    then = np.array(start[NAME]) if NAME in start else np.full(now.shape, np.nan)
    rows: list[dict[str, Any]] = [
        {
            "layer": layer + 1,
            "head": head + 1,
            "lag": lag,
            "share": now[layer, head, lag],
            "start": then[layer, head, lag],
        }
        for layer, head, lag in np.ndindex(now.shape)
    ]
    return pd.DataFrame(rows)


def lags_in_words(table: pd.DataFrame) -> str:
    """How much of the weight is off lag 0, now and at the start, and which head listens to lags most."""
    later = (
        table[table["lag"] > 0]
        .groupby(["layer", "head"], as_index=False)[["share", "start"]]
        .sum(min_count=1)
    )
    most = later.sort_values("share", kind="stable").iloc[-1]
    began = later["start"].mean()
    start = "" if np.isnan(began) else f" ({began:.1%} at the start)"
    return (
        f"Lags above 0 have {later['share'].mean():.1%} of the weight, the mean over heads{start}; most in layer "
        f"{most['layer']:.0f}, head {most['head']:.0f}: {most['share']:.1%}. None of it would be dot-product attention."
    )
