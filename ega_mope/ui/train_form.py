"""What to train: text, size, mechanisms, seeds. The answer is a list of experiments."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

from ega_mope.analysis.runs import marked_name
from ega_mope.attention import ATTENTIONS
from ega_mope.config import PRESETS, ExperimentConfig, Plain
from ega_mope.experiments import compose
from ega_mope.model import refusal
from ega_mope.positions import POSITIONS
from ega_mope.priors import why_no_prior
from ega_mope.runs import Run, runs_folder
from ega_mope.sweeps.grids import GRIDS, Cell, cells_of, read_seeds
from ega_mope.text import CORPORA, TOKENIZERS, decode_text, store_corpus
from ega_mope.ui.catalogue import all_runs, run_id
from ega_mope.ui.settings import SourceRuns, first_line, mechanism
from ega_mope.ui.show import plain
from ega_mope.ui.texts import PASTE_TO_TRAIN, UPLOAD_TO_TRAIN

ONE, WHOLE, FILE = "one configuration", "its 2×2", "a grid file"


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
        seeds = read_seeds(
            st.text_input("Seeds", "0", key="seeds", bind="query-params", help="Such as 0, or 0-2, or 0,3")
        )
    cells = _choose_cells()
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
        compose(
            cell.attention,
            cell.position,
            preset_name=size,
            corpus=corpus,
            tokenizer=tokenizer,
            seed=seed,
            overrides=[*overrides, *cell.overrides],
        )
        for seed in seeds
        for cell in cells
    ]
    return experiments, name


def _choose_cells() -> list[Cell]:
    """One configuration, its 2×2, or a sweep's grid; none while a grid file is missing."""
    what = st.selectbox(
        "What to train",
        [ONE, WHOLE, *GRIDS, FILE],
        key="grid",
        bind="query-params",
        help="A 2×2 trains the baseline, each mechanism alone, and both: what Superadditivity compares.",
    )
    if what in GRIDS:
        cells = cells_of(what)
    elif what == FILE:
        cells = _uploaded_grid()
    else:
        attention, position = _choose_mechanisms()
        bare, table = {"name": "dot"}, {"name": "learned"}
        pairs = [(attention, position)]
        if what == WHOLE:
            pairs = [(bare, table), (attention, table), (bare, position), (attention, position)]
        return [Cell(label=f"{a['name']} + {p['name']}", attention=a, position=p) for a, p in pairs]
    st.caption(f"{len(cells)} configurations a seed: {plain('; '.join(cell.label for cell in cells))}")
    return cells


def _uploaded_grid() -> list[Cell]:
    file = st.file_uploader(
        "A grid", type="toml", key="grid-file", help="As for `ega-mope sweep --grid FILE`."
    )
    if file is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "grid.toml"
        path.write_bytes(file.getvalue())
        return cells_of(str(path))


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


def _sources(where: str) -> SourceRuns:
    """The runs that an attention or a position (`where`) can take its start from, marked where they see the future."""
    runs = [run for run in all_runs() if isinstance(run, Run)]
    return lambda name: {
        run_id(run): marked_name(run, run_id(run)) for run in runs if why_no_prior(run, where, name) is None
    }


def _choose_mechanisms() -> tuple[Plain, Plain]:
    left, right = st.columns(2)
    with left:
        attention = mechanism(
            "Attention",
            ATTENTIONS,
            list(ATTENTIONS),
            key="attention",
            default="ega",
            sources=_sources("attention"),
        )
    reasons = {name: refusal(attention["name"], name) for name in POSITIONS}
    with right:
        offered = [name for name, reason in reasons.items() if reason is None]
        position = mechanism(
            "Position", POSITIONS, offered, key="position", default="mope", sources=_sources("position")
        )
        for reason in filter(None, reasons.values()):
            st.caption(f"Not offered: {plain(reason)}")
    return attention, position
