"""Ablation: what a trained model loses when one of its gates or wavelets is taken out."""

import streamlit as st

from ega_mope import ui
from ega_mope.analysis.ablation import Ablation, why_nothing_to_ablate
from ega_mope.analysis.losses import METRICS
from ega_mope.plots.ablation import ranked
from ega_mope.runs import Run
from ega_mope.ui.ablation import read_ablation
from ega_mope.ui.texts import pick_text

ABOUT = {
    "gates": (
        "Gates",
        "A gate opened lets every key through as plain attention would (g = 1), in one head, one layer or all.",
    ),
    "pairs": (
        "Wavelet pairs",
        "Removed: the band adds nothing to the embeddings. At start: its ω and σ as before training. Random: as many "
        "pairs, drawn once from all; a band that matters for what it is stands above its random twin. Bands were chosen "
        "beforehand.",
    ),
}


def show_family(found: Ablation, family: str, unit: str) -> None:
    """One family's parts, ranked."""
    table = found.family(family)
    title, about = ABOUT[family]
    st.subheader(title, anchor=False)
    top = table.iloc[0]
    ui.figure(
        ui.drawn(ranked, table, unit),
        key=family,
        alt=f"{len(table)} changes ranked by loss; the first is {top['part']}, {top['kind']}: {top['loss_change']:+.4f}.",
        how_to_read=f"{about} Right of 0 the model needs the part. Lines: 95 % intervals over windows; open markers: the "
        "interval holds 0.",
    )


def show_ranking(run: Run, found: Ablation) -> None:
    st.subheader("What the model needs", anchor=False)
    ui.table(
        found.table(),
        key="ranking",
        name=f"ablation-{run.name}",
        formats=dict.fromkeys(("loss_change", "standard_error", "low", "high", "kl_nats"), "%.4f"),
    )
    st.caption(
        "loss_change: validation loss with the change less without, nats per token, each window against itself. "
        "kl_nats: how far the predictions on the text move (mean KL divergence). The other weights stay as they were "
        "trained with the part in place, so this is what this model leans on, not what one trained without it would "
        "lose. Of twenty parts that do nothing, one will look clear by chance."
    )


ui.frame("Ablation", "What does a trained model lose when one of its gates or wavelets is taken out?")
run = ui.pick_run(why_nothing_to_ablate)
with ui.reading_errors():
    text = pick_text()
    found = read_ablation(run, text)
badge = ui.sees_future_badge(run)
if badge:
    st.markdown(f"{badge} Its losses are not those of predicting the next token.")
st.markdown("\n".join(f"- {ui.plain(line)}" for line in found.findings))
st.caption(ui.plain(" ".join((found.what_was_read, *found.notes))))
unit = METRICS["nats"].unit(run.config.tokenizer)
families = [family for family in ABOUT if len(found.family(family))]
for column, family in zip(st.columns(len(families), gap="large"), families, strict=True):
    with column:
        show_family(found, family, unit)
show_ranking(run, found)
