"""Mechanisms: what each entry of the registries is, costs and does to a sentence."""

import pandas as pd
import streamlit as st

from ega_mope import ui
from ega_mope.analysis.mechanisms import Entry, Trial, entries, try_mechanisms
from ega_mope.attention import ATTENTIONS
from ega_mope.model import refusal
from ega_mope.plots.mechanisms import row_figure
from ega_mope.positions import POSITIONS
from ega_mope.runs import Run
from ega_mope.ui.settings import mechanism

SENTENCE = "But soft, what light through yonder window breaks?"


@st.cache_data(show_spinner=False)
def all_entries() -> list[Entry]:
    """The registries do not change while the app runs."""
    return entries()


def catalogue(found: list[Entry]) -> None:
    """One expander an entry, grouped by kind."""
    for kind in dict.fromkeys(entry.kind for entry in found):
        st.subheader(f"{kind.capitalize()}s", anchor=False)
        for entry in (entry for entry in found if entry.kind == kind):
            future = "" if entry.causal else f"  {ui.FUTURE_BADGE}"
            with st.expander(f"**{entry.name}** · {ui.plain(entry.source)}{future}"):
                st.text(entry.text)
                counts = ", ".join(f"{size} {count:,}" for size, count in entry.parameters.items())
                st.caption(
                    f"Parameters beyond a bare model: {counts}. Memory grows "
                    f"{'with the square of the context' if entry.memory == 'quadratic' else 'in step with the context'}."
                )


def trial(run: Run) -> None:
    """Two mechanisms with their settings, and what they do with a typed sentence."""
    text = st.text_input("A sentence", SENTENCE, key="sentence", bind="query-params", max_chars=200)
    left, right = st.columns(2)
    with left:
        attention = mechanism("Attention", ATTENTIONS, list(ATTENTIONS), key="attention", default="ega")
    with right:
        offered = [name for name in POSITIONS if refusal(attention["name"], name) is None]
        position = mechanism("Position", POSITIONS, offered, key="position", default="mope")
    done = try_mechanisms(run, attention, position, text)
    st.caption(f"Computed by the mechanisms' own code with the {ui.plain(done.weights)}.")
    rows(done)


def rows(done: Trial) -> None:
    """Gate and attention of one query in one head."""
    layers, heads = done.share.shape[:2]
    columns = st.columns(3)
    layer = columns[0].selectbox("Layer", range(1, layers + 1), key="layer", bind="query-params") - 1
    head = columns[1].selectbox("Head", range(1, heads + 1), key="head", bind="query-params") - 1
    last = len(done.characters) - 1
    query = columns[2].number_input("Query token", 0, last, last, key="query")
    share = done.share[layer, head, query]
    gate = None if done.gate is None else done.gate[layer, head, query]
    table = pd.DataFrame(
        {"key": range(last + 1), "character": done.characters, "attention": share, "gate": gate}
    )
    if gate is not None:
        ui.figure(
            ui.drawn(row_figure, done.characters, gate, "gate, 0 to 1", query, "orange"),
            key="gate-row",
            alt=f"Gate of each token, layer {layer + 1}, head {head + 1}",
            how_to_read="How far each token's gate is open: 0 shuts its value out, 1 lets all of it through.",
        )
    ui.figure(
        ui.drawn(row_figure, done.characters, share, "share of attention", query),
        key="attention-row",
        alt=f"Attention of token {query} to the tokens before it, layer {layer + 1}, head {head + 1}",
        how_to_read="How the chosen query divides its attention over the tokens up to itself, after any gate.",
        table=table[: query + 1],
    )


ui.frame(
    "Mechanisms",
    "Every attention, gate and position of the lab: its equation, its cost, and what it does to a sentence.",
)
found = all_entries()
ui.table(
    pd.DataFrame(
        [
            {
                "kind": entry.kind,
                "name": entry.name,
                "sees the future": "no" if entry.causal else "⚠ yes",
                "memory": entry.memory,
                **{f"parameters, {size}": count for size, count in entry.parameters.items()},
            }
            for entry in found
        ]
    ),
    key="mechanisms",
    name="mechanisms",
)
st.subheader("Try it on a sentence", anchor=False)
with ui.reading_errors():
    trial(ui.pick_run(lambda run: None if (run.path / "model.safetensors").exists() else "has no weights"))
catalogue(found)
