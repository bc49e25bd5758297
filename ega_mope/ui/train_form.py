"""What to train: text, size, mechanisms, seeds. The answer is a list of experiments."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from ega_mope.attention import ATTENTIONS
from ega_mope.config import PRESETS, ExperimentConfig, Plain
from ega_mope.experiments import compose
from ega_mope.model import refusal
from ega_mope.positions import POSITIONS
from ega_mope.runs import runs_folder
from ega_mope.text import CORPORA, TOKENIZERS, decode_text, store_corpus
from ega_mope.ui.settings import first_line, mechanism
from ega_mope.ui.show import plain
from ega_mope.ui.texts import PASTE_TO_TRAIN, UPLOAD_TO_TRAIN


def choose_experiments() -> tuple[list[ExperimentConfig], str | None]:
    """The experiments that the form asks for, and what a text of the user's is called.

    None at all while there is no text; ValueError for settings that cannot be trained.
    """
    corpus, name = _choose_text()
    left, right = st.columns(2)
    with left:
        size = st.selectbox("Preset", list(PRESETS), key="preset", bind="query-params")
        st.caption(first_line(PRESETS[size]))
    with right:
        tokenizer = st.selectbox("Tokenizer", list(TOKENIZERS), key="tokenizer", bind="query-params")
        seeds = _read_seeds(
            st.text_input("Seeds", "0", key="seeds", bind="query-params", help="Such as 0, or 0-2, or 0,3")
        )
    attention, position = _choose_mechanisms()
    cells = [(attention, position)]
    if (
        attention["name"] != "dot"
        and position["name"] != "learned"
        and refusal("dot", position["name"]) is None
    ):
        whole = st.toggle(
            "The whole 2×2",
            key="grid",
            help="Trains the baseline, each mechanism alone, and both: what Superadditivity compares.",
        )
        if whole:
            bare, table = {"name": "dot"}, {"name": "learned"}
            cells = [(bare, table), (attention, table), (bare, position), (attention, position)]
    overrides = st.text_input(
        "Other settings",
        "",
        key="set",
        placeholder="steps=500 context_length=64",
        help="KEY=VALUE, separated by blanks, over the preset: any key of the model or the training.",
    ).split()
    if corpus is None:
        return [], None
    experiments = [
        compose(a, p, preset_name=size, corpus=corpus, tokenizer=tokenizer, seed=seed, overrides=overrides)
        for seed in seeds
        for a, p in cells
    ]
    return experiments, name


def _choose_text() -> tuple[str | None, str | None]:
    """A corpus by name, or the path of a stored text and what to call it; no path while there is no text."""
    source = st.selectbox(
        "Text", [*CORPORA, PASTE_TO_TRAIN, UPLOAD_TO_TRAIN], key="corpus", bind="query-params"
    )
    if source in CORPORA:
        return source, None
    if source == PASTE_TO_TRAIN:
        text, label = st.text_area("Your text", key="train-text", height=160, max_chars=None), "pasted"
    else:
        file = st.file_uploader(
            "A text file", key="train-file", help="UTF-8, or UTF-16 with a byte order mark."
        )
        text = decode_text(file.getvalue(), file.name) if file else ""
        label = Path(file.name).stem if file else ""
    if not text.strip():
        st.info("Paste or upload the text to learn; a few thousand characters do for the smoke preset.")
        return None, None
    path = store_corpus(text, runs_folder() / ".corpora")
    st.caption(f"{len(text):,} characters, kept once as `{path}`")
    return str(path), f"{label}-{path.stem[:8]}"


def _choose_mechanisms() -> tuple[Plain, Plain]:
    left, right = st.columns(2)
    with left:
        attention = mechanism("Attention", ATTENTIONS, list(ATTENTIONS), key="attention", default="ega")
    reasons = {name: refusal(attention["name"], name) for name in POSITIONS}
    with right:
        offered = [name for name, reason in reasons.items() if reason is None]
        position = mechanism("Position", POSITIONS, offered, key="position", default="mope")
        for reason in filter(None, reasons.values()):
            st.caption(f"Not offered: {plain(reason)}")
    return attention, position


def _read_seeds(text: str) -> list[int]:
    """Seeds from "0", "0,3" or "0-5"; ValueError for anything else."""
    seeds: list[int] = []
    for part in text.replace(" ", "").split(","):
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise ValueError(f"seeds: expected whole numbers such as 0,3 or 0-5, got {text!r}; change them")
        seeds += range(int(low), int(high or low) + 1)
    if len(seeds) > 100:
        raise ValueError(
            f"seeds: expected at most 100, got {len(seeds)}; a sweep on the command line takes more"
        )
    return sorted(set(seeds))
