"""What the heads of a run do on a text, by lag and by distance: one view of Correlation kernels."""

from __future__ import annotations

import streamlit as st

from ega_mope.analysis.correlation import Correlation, correlate
from ega_mope.plots import kernels as plots
from ega_mope.runs import Run
from ega_mope.ui.models import load_model, weights_stamp
from ega_mope.ui.show import drawn, figure
from ega_mope.ui.texts import pick_text

FIRST_PAIR = {"query": 20, "key": 12}


@st.cache_resource(max_entries=8, show_spinner="Reading the text …")
def _measure(weights: tuple[str, int], text: str, _run: Run) -> Correlation:
    return correlate(load_model(_run), _run.tokenizer, text)


def measured_on_text(run: Run) -> None:
    """Choose text, layer and head; then one pair at every lag, and each head by distance."""
    text = pick_text()
    found = _measure(weights_stamp(run), text, run)
    _say_what_was_read(run, text, found)
    layers, heads = found.distance.shape
    left, right = st.columns(2, gap="large")
    layer = left.selectbox("Layer", range(1, layers + 1), key="layer", bind="query-params") - 1
    head = right.selectbox("Head of the pair", range(1, heads + 1), key="head", bind="query-params") - 1
    _one_pair(found, layer, head)
    _by_distance(found, layer)


def _say_what_was_read(run: Run, text: str, found: Correlation) -> None:
    unread = int((~run.tokenizer.read(text).known).sum())
    left_out = found.tokens_in_all - found.tokens_read
    windows = f"{found.windows} windows" if found.windows > 1 else "one window"
    st.caption(
        f"{found.tokens_read:,} of {found.tokens_in_all:,} tokens in {windows} of {len(found.tokens)}"
        f"{f'; {left_out:,} after the last whole window left out' if left_out else ''}"
        f"{f'; {unread:,} characters that this run does not read are not among them' if unread else ''}."
    )


def _clicked() -> None:
    for point in st.session_state["grid"].selection.points:
        for name, place in zip(FIRST_PAIR, point["customdata"], strict=True):
            st.query_params[name] = str(place)


def _place(name: str, most: int, last: int) -> int:
    """The query or the key by number. The URL decides and is written here: a click on the grid changes it too.

    A shorter text, or an earlier query, pulls it in to `most`.
    """
    asked, widget = st.query_params.get(name, ""), f"picked-{name}"
    st.session_state[widget] = min(int(asked) if asked.isdecimal() else FIRST_PAIR[name], most)

    def write() -> None:
        st.query_params[name] = str(st.session_state[widget])

    about = "Position in the first window" + ("." if name == "query" else "; not later than the query.")
    return st.number_input(name.capitalize(), 0, last, key=widget, on_change=write, help=about)


def _one_pair(found: Correlation, layer: int, head: int) -> None:
    st.subheader("One pair of tokens at every lag", anchor=False)
    left, right = st.columns(2, gap="large")
    with right:
        last = len(found.tokens) - 1
        i = _place("query", last, last)
        j = _place("key", i, last)
        table = found.at_lags(layer, head, i, j)
        figure(
            drawn(plots.lag_stems, table),
            key="lags-of-pair",
            alt=f"C(ℓ) of query {i} and key {j} at lags 0 to {j}; at 0 it is {table['correlation'].iloc[0]:.3f}.",
            how_to_read="C(ℓ) = q_i·k_{j−ℓ}/√d_h. For this pair attention uses ℓ = 0 alone and discards the rest. The query "
            "does not lose it: C(ℓ) is what it scores the earlier key j − ℓ with.",
            table=table,
        )
    with left:
        figure(
            drawn(plots.pair_grid, found.weight[layer, head], found.tokens, (i, j)),
            key="grid",
            alt=f"Attention weights between the first tokens; query {i} and key {j} are framed.",
            how_to_read=f"Attention weights between the first {plots.SHOWN_TOKENS} tokens, before any gate. Click a pair.",
            table=found.grid_table(layer, head, plots.SHOWN_TOKENS),
            on_select=_clicked,
        )


def _by_distance(found: Correlation, layer: int) -> None:
    st.subheader("Every head by distance", anchor=False)
    table = found.by_distance(layer)
    left, right = st.columns(2, gap="large")
    with left:
        figure(
            drawn(plots.by_distance, table, "score", "S(δ)"),
            key="score",
            alt=f"S(δ) of each head of layer {layer + 1} by distance",
            how_to_read="The mean score of a key δ tokens back. It is another thing than C(ℓ) of one pair, and than the "
            "kernel: words and positions together make it. Far right few queries are left to average.",
            table=table[["head", "distance", "queries", "score"]],
        )
    with right:
        figure(
            drawn(plots.by_distance, table, "attention", "mean attention weight", reference="even attention"),
            key="attention",
            alt=f"Mean attention weight of each head of layer {layer + 1} by distance, beside even attention",
            how_to_read="The mean weight, before any gate, of a key δ tokens back; dotted, what spreading it evenly would "
            "give. A line that is steeper than the dotted one is a local head.",
            table=table[["head", "distance", "queries", "attention", "even attention"]].merge(
                found.heads_table().query(f"layer == {layer + 1}").drop(columns="layer"), on="head"
            ),
        )
