"""Claims: each published claim, the test that would confirm it, and what the runs say."""

import json

import pandas as pd
import streamlit as st

from ega_mope import ui
from ega_mope.analysis.claims import RULES, Judged, tables
from ega_mope.ui.claims import read_claims, show_claim

ALL = "all"
WIDTHS = {"verdict": 85, "claim": 370, "estimate": 105, "95 % interval": 135, "N": 65}
VERDICT_WORDS = [ALL, *tables.VERDICTS]


def choose(judged: list[Judged]) -> list[Judged]:
    """Those of one verdict, one group, and with the words in the filter; every choice is in the URL."""
    groups = list(dict.fromkeys(one.claim.group for one in judged))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        verdict = st.segmented_control(
            "Verdict", VERDICT_WORDS, default=ALL, key="verdict", bind="query-params", required=True
        )
        group = st.selectbox("About", [ALL, *groups], key="about", bind="query-params", width=240)
        words = st.text_input("Words", key="words", bind="query-params", placeholder="gate causal", width=240)
    return [
        one
        for one in judged
        if verdict in (ALL, one.outcome.verdict)
        and group in (ALL, one.claim.group)
        and all(word.lower() in one.claim.sentence.lower() for word in (words or "").split())
    ]


def overview(chosen: list[Judged]) -> None:
    """The verdict table, then downloads with all digits."""
    rows = pd.DataFrame(tables.shown_rows(chosen), columns=list(tables.SHOWN))
    first = ["verdict", "claim"]
    rows = rows[first + [column for column in rows.columns if column not in first]]
    rows = rows.rename(columns={"the paper's": "paper's (theirs)"})
    st.dataframe(
        rows,
        width="stretch",
        hide_index=True,
        height=min(38 + 35 * len(rows), 560),
        key="claims",
        column_config={name: st.column_config.TextColumn(width=width) for name, width in WIDTHS.items()},
    )
    st.caption(
        "How to read: a verdict is computed from the runs by the test under each claim; the estimate with its interval is "
        "what it rests on, N the seeds or runs behind it. ⚠: rests on runs that see the future."
    )
    with st.container(horizontal=True):
        for label, data, mime in (
            ("CSV", lambda: tables.claims_table(chosen).to_csv(index=False), "text/csv"),
            ("JSON", lambda: json.dumps(tables.to_json(chosen), ensure_ascii=False), "application/json"),
            ("Markdown", lambda: tables.markdown(chosen), "text/markdown"),
        ):
            suffix = {"Markdown": "md"}.get(label, label.lower())
            st.download_button(
                label,
                data,
                f"claims.{suffix}",
                mime=mime,
                key=f"claims-{suffix}",
                on_click="ignore",
                icon=":material/download:",
            )


ui.frame(
    "Claims",
    "What the paper claims (arXiv 2605.26355), what would confirm it, and what the runs here say. "
    "Computed from the runs there are, never written by hand.",
)
with ui.reading_errors():
    judged = read_claims()
st.markdown(f"#### {tables.summary(judged)}")
chosen = choose(judged)
if not chosen:
    st.info("No claim fits: clear the filter.", icon=":material/info:")
    st.stop()
overview(chosen)
with st.expander("When does a claim hold?", icon=":material/gavel:"):
    st.markdown(ui.plain(RULES))
for group in dict.fromkeys(one.claim.group for one in chosen):
    st.markdown(f"**{group}**")
    for one in chosen:
        if one.claim.group == group:
            show_claim(one)
st.code("ega-mope claims --json", language="bash")
