"""Second tab of Energy gates: what the gates of a run go with on a text, and whether they are spectral."""

from __future__ import annotations

import streamlit as st

from ega_mope.analysis.gate_meaning import words
from ega_mope.analysis.gate_meaning.baseline import baseline_of, why_no_counts
from ega_mope.analysis.gate_meaning.correlates import CHARACTERS, Correlates, correlates
from ega_mope.analysis.gate_meaning.rank_correlation import DRAWS
from ega_mope.analysis.gate_meaning.spectral import Spectral, spectral, why_no_spectrum
from ega_mope.plots import gate_meaning as plots
from ega_mope.runs import Run
from ega_mope.ui.catalogue import all_runs
from ega_mope.ui.gate_readings import Stamp, page_mode, pick_head, read_gates, stamp
from ega_mope.ui.long_work import kept_work
from ega_mope.ui.models import load_model
from ega_mope.ui.pickers import sees_future_badge
from ega_mope.ui.show import drawn, figure, plain, table

SHOWN = {
    "gate": ("gate", "as it is"),
    "weight change": ("weight change", "as it is"),
    "gate, text shuffled": ("gate", "shuffled"),
    "without gates": ("attention received", "as it is"),
}


def what_gates_measure(run: Run, text: str) -> None:
    """A sentence a head, the correlations behind it beside their controls, and the spectra of the projections."""
    st.markdown(
        "Each character is described by its rarity, the model's own surprisal, boundaries, function words, "
        "repeats and position; each head's gates are correlated with all of them at once, by rank."
    )
    found = _measure(run, text)
    _say(run, found)
    place = pick_head(read_gates(run, text, weight_change=False), st.columns(3)[0])
    _sentences(found, place)
    _correlations(found, place)
    _rarity(found)
    st.subheader("Is it spectral?", anchor=False)
    reason = why_no_spectrum(run)
    if reason:
        st.info(f"No spectrum for this run: {plain(reason)}.", icon=":material/info:")
    else:
        _spectra(_spectral(str(run.path), stamp(run), run), place)


def _measure(run: Run, text: str) -> Correlates:
    columns = iter(st.columns(3))
    most = len(text)
    characters = most
    if most > CHARACTERS:
        characters = next(columns).number_input(
            "Characters to measure", 200, most, CHARACTERS, step=1_000, key="measure", bind="query-params",
            help=f"From the beginning of the text, which has {most:,}. More take longer and give narrower intervals.",
        )  # fmt: skip
    draws = next(columns).number_input(
        "Bootstrap draws",
        50,
        5_000,
        DRAWS,
        step=100,
        key="draws",
        bind="query-params",
        help="Behind each interval.",
    )
    runs = all_runs()
    other = baseline_of(run, runs)[0]
    beside = (str(other.path), stamp(other)) if other else None
    inputs = (str(run.path), stamp(run), text, characters, draws, beside, why_no_counts(run))
    return kept_work(
        "correlates",
        inputs,
        lambda report: correlates(
            run, text, runs=runs, characters=characters, draws=draws, model_of=load_model, progress=report
        ),
    )


def _say(run: Run, found: Correlates) -> None:
    badge = sees_future_badge(run)
    if badge:
        st.markdown(f"{badge} What its gates and its surprisal go with may be what comes later in the text.")
    st.markdown(f"**{words.summary(found)}** {plain(words.rarity_sentence(found))}")
    st.caption(
        plain(". ".join(f"{line[0].upper()}{line[1:]}" for line in words.measured_notes(found)))
        + ". "
        + words.MANY
    )


def _clicked() -> None:
    for point in st.session_state["correlations"].selection.points:
        layer, head = point["customdata"]
        st.session_state["head"] = f"L{layer + 1} H{head + 1}"


def _sentences(found: Correlates, place: tuple[int, int]) -> None:
    every = words.verdicts(found)
    one = every[place[0] * found.text.shape[1] + place[1]]
    st.markdown(f"Layer {one.layer}, head {one.head}: its gate **{plain(one.sentence)}**.")
    with st.expander("A sentence a head", icon=":material/list:"):
        st.markdown("\n".join(f"- **L{v.layer} H{v.head}** {plain(v.sentence)}" for v in every))
        table(words.verdict_table(found), key="verdicts", name="what-gates-follow")


def _correlations(found: Correlates, place: tuple[int, int]) -> None:
    rows = words.correlations_table(found)
    left, right = st.columns(2, gap="medium")
    with left:
        able = [name for name in SHOWN if name != "without gates" or found.baseline is not None]
        shown = st.segmented_control(
            "What", able, default="gate", key="outcome", bind="query-params", required=True
        )
        outcome, text = SHOWN[shown]
        part = rows[(rows["outcome"] == outcome) & (rows["text"] == text)]
        figure(
            drawn(plots.correlation_grid, part, chosen=place, mode=page_mode()),
            key="correlations",
            alt=f"Partial rank correlation of {shown} in each head with each feature",
            how_to_read="Colour: rank correlation with one feature, all others held. A number stands where it counts after "
            "widening for all comparisons. On the shuffled text boundaries and repeats mean nothing: what stays there is "
            "the character itself. Click a row to open its head.",
            table=rows,
            on_select=_clicked,
        )
    with right:
        layer, head = place[0] + 1, place[1] + 1
        own = rows[(rows["run"] == found.run) & (rows["layer"] == layer) & (rows["head"] == head)]
        figure(
            drawn(plots.head_intervals, own),
            key="one-head",
            alt=f"Layer {layer}, head {head}: partial correlations with intervals",
            how_to_read=f"Layer {layer}, head {head}. Thick: the 95 % interval of that row alone, from blocks of "
            f"{found.text.outcomes['gate'].block} characters drawn again; thin: widened for all comparisons.",
            table=own,
        )
    with st.expander("The characters and their features", icon=":material/table:"):
        table(words.characters_table(found.text), key="features", name="character-features")


def _rarity(found: Correlates) -> None:
    st.subheader("Does plain attention miss what is rare?", anchor=False)
    rows = words.correlations_table(found)
    part = rows[(rows["feature"] == "rarity") & (rows["text"] == "as it is")]
    if part.empty:
        st.info("Rarity could not be measured on this text.", icon=":material/info:")
        return
    figure(
        drawn(plots.rarity_by_head, part),
        key="rarity",
        alt="Partial correlation with rarity of gates, weight change, and attention received without gates",
        how_to_read="A point a head: how gate and weight change go with rarity, all else held, beside the attention that "
        "keys receive from later queries in a run without gates, as a multiple of even attention. Filled: counts after "
        "widening. Where plain attention is as far from zero, it tells rare characters from common ones without a gate.",
        table=part,
    )


@st.cache_resource(max_entries=16, show_spinner="Comparing with random orders …")
def _spectral(path: str, stamp: Stamp, _run: Run) -> Spectral:
    return spectral(_run, load_model(_run))


def _spectra(found: Spectral, place: tuple[int, int]) -> None:
    layer, head = place
    verdict = "spectral" if found.spectral[place] else "general salience"
    st.markdown(
        f"Layer {layer + 1}, head {head + 1}: **{verdict}** (p = {found.p[place]:.3f}). {found.sentence()}"
    )
    left, right = st.columns(2, gap="medium")
    with left:
        figure(
            drawn(plots.spectrum_lines, found.spectrum_table(layer, head), float(found.bound[place])),
            key="spectrum",
            alt=f"Spectrum of the projection over its channels, layer {layer + 1}, head {head + 1}: {verdict}",
            how_to_read="e_j = (1/d) Σ conj(ŵ_k) x̂_jk holds for every w. The claim of frequencies needs more: a peak above "
            f"the dashed line, which {found.permutations} random orders of the same weights seldom reach.",
            table=found.spectrum_table(layer, head),
        )
    with right:
        table(found.heads_table(), key="spectral-heads", name="spectral-by-head")
        st.caption(
            "Channels of an embedding have no order of their own. A wavelet or sinusoid position encoding gives them "
            "one: it fills even channels with cosines and odd ones with sines, so a gate that listens to position "
            "can peak at the last k."
        )
