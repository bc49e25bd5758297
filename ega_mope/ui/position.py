"""What position still says at token b: part of Learned scales."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from ega_mope.analysis.position_norm import PositionNorm, embedding_norm, morlet_norm
from ega_mope.analysis.position_reach import (
    FIXED,
    PositionReach,
    curves,
    fixed_reaches,
    run_reaches,
    summary,
)
from ega_mope.analysis.runs import marked_name
from ega_mope.analysis.scales import Scales, pairs_table
from ega_mope.config import ModelConfig
from ega_mope.plots.drawn import Figure
from ega_mope.plots.position import what_is_left
from ega_mope.plots.scales import norm_by_position
from ega_mope.runs import Run
from ega_mope.ui.catalogue import all_runs, colours, nearest, run_id
from ega_mope.ui.models import load_model, weights_stamp, why_no_weights
from ega_mope.ui.show import drawn, figure, plain, table


def show_norms(runs: list[Run], found: list[Scales]) -> None:
    """What position still says at token b, all runs in one figure."""
    st.subheader("What does position still say at token b?", anchor=False)
    names = [marked_name(run, run_id(run)) for run in runs]
    norms = [morlet_norm(one, run.config.model.context_length) for run, one in zip(runs, found, strict=True)]
    said = [f"{name}: {norm.in_words}" for name, norm in zip(names, norms, strict=True)]
    st.markdown("  \n".join(map(plain, said)))
    weighted = [(name, run) for name, run in zip(names, runs, strict=True) if why_no_weights(run) is None]
    figure(
        drawn(
            _norm_by_position,
            dict(zip(names, norms, strict=True)),
            {name: embedding_norm(load_model(run)) for name, run in weighted},
            {name: colours()[run.name] for name, run in zip(names, runs, strict=True)},
        ),
        key="norm",
        alt=" ".join(said),
        how_to_read="The length of the vector that tells the model where a token stands. Far below the dotted line, the "
        "mean length of a token's embedding at the best weights, hardly any position is left.",
        table=lambda: pd.concat(
            [norm.table().assign(run=name) for name, norm in zip(names, norms, strict=True)]
        ),
    )


def _norm_by_position(
    norms: dict[str, PositionNorm], embedding: dict[str, float], colours: dict[str, str]
) -> Figure:
    return norm_by_position({name: norm.table() for name, norm in norms.items()}, embedding, colours)


def show_other_encodings(runs: list[Run]) -> None:
    """The same question asked of every kind of encoding: the runs' own, a learned table, and those with nothing
    to learn."""
    st.subheader("And with other encodings?", anchor=False)
    found = {marked_name(run, run_id(run)): _reaches(run) for run in runs}
    for name in ("learned", "mope_relative"):
        other = _nearest_with(runs[0], name)
        if other is not None:
            found[marked_name(other, run_id(other))] = _reaches(other)
    model = runs[0].config.model
    found[""] = _fixed_reaches(repr(model), model)
    figure(
        drawn(_what_is_left, found),
        key="other-encodings",
        alt="What is left of each position encoding, by position or by lag, as a share of its largest",
        how_to_read="Solid: encodings added to the embeddings, by position. Dashed: those that act on scores, by lag; they say "
        "the same wherever the query stands. Dotted: 1 %, below which nothing is counted as carried. The table says what is "
        "measured of each.",
        table=lambda: _table(found),
    )


def _what_is_left(found: dict[str, list[PositionReach]]) -> Figure:
    return what_is_left({label: curves(ways) for label, ways in found.items()})


def _reaches(run: Run) -> list[PositionReach]:
    return _kept_reaches(*weights_stamp(run), run)


@st.cache_resource(max_entries=32, show_spinner=False)
def _kept_reaches(path: str, stamp: int, _run: Run) -> list[PositionReach]:
    return run_reaches(_run)


@st.cache_resource(max_entries=32, show_spinner=False)
def _fixed_reaches(size: str, _model: ModelConfig) -> list[PositionReach]:
    return [one for name in FIXED for one in fixed_reaches(_model, name)]


def _table(found: dict[str, list[PositionReach]]) -> pd.DataFrame:
    parts = [summary(ways).assign(run=label or "any of this size") for label, ways in found.items()]
    return pd.concat(parts, ignore_index=True)


def _nearest_with(run: Run, name: str) -> Run | None:
    """The nearest run with that encoding whose scalars can be read: a table needs its weights."""
    able = [
        other
        for other in all_runs()
        if isinstance(other, Run)
        and other.config.model.position["name"] == name
        and (name != "learned" or why_no_weights(other) is None)
        and other.config.model.context_length == run.config.model.context_length
    ]
    return nearest(run, able)


def show_reach(run: Run, found: Scales) -> None:
    """Each pair's reach."""
    st.markdown("Tokens from the window's start to where a pair's envelope is down to 1/e, and to 1 %.")
    columns = {"reach_1e_tokens": "1/e (tokens)", "reach_tokens": "1 % (tokens)", "sigma": "σ (tokens)"}
    reach = pairs_table(found)[["pair", "sigma", "reach_1e_tokens", "reach_tokens", "band"]]
    table(reach.rename(columns=columns), key=f"reach-{run_id(run)}", name=f"reach-{run.name}")
