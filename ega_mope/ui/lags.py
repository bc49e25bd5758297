"""The lags that convolutional attention learned: one view of Correlation kernels."""

from __future__ import annotations

import streamlit as st

from ega_mope.analysis.lags import lag_table, lags_in_words
from ega_mope.plots.lags import lag_shares
from ega_mope.runs import Run
from ega_mope.ui.show import drawn, figure, plain


def show_lags(run: Run) -> None:
    """Every head's share of each lag, a figure a layer."""
    table = lag_table(run)
    st.markdown(plain(lags_in_words(table)))
    layers = sorted(set(table["layer"].tolist()))
    columns = [*st.columns(2, gap="large")] * len(layers)
    for column, layer in zip(columns, layers, strict=False):
        part = table[table["layer"] == layer]
        with column:
            st.subheader(f"Layer {layer}", anchor=False)
            figure(
                drawn(lag_shares, part),
                key=f"lags-{layer}",
                alt=f"Share of every lag in each head of layer {layer}, now and at the start",
                how_to_read="How much the score of a key listens to the token that many places before it. Rings: where "
                "training began. All at lag 0, the star, would be dot-product attention.",
                table=part,
            )
