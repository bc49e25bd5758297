"""Causality audit: does a prediction change when only what comes after it changes?"""

import streamlit as st

from ega_mope import ui
from ega_mope.analysis.audit import Audit, audit, stored_audit
from ega_mope.analysis.audit import beside as companions
from ega_mope.analysis.audit import reading as words
from ega_mope.plots.audit import loss_by_position, movement_by_distance
from ega_mope.runs import Run

BOXES = {
    "causal": (st.success, ":material/check_circle:"),
    "sees the future": (st.error, ":material/visibility:"),
    "cannot tell": (st.warning, ":material/help:"),
}


def measure(run: Run) -> Audit:
    """Audit the run here and now, with progress."""
    bar = st.progress(0.0, "loading the model")
    answer = audit(run, progress=lambda fraction, doing: bar.progress(fraction, doing))
    bar.empty()
    return answer


def find(run: Run) -> Audit:
    """What this visit measured, else what the run brings along; ends the page where there is neither."""
    stored, measured = stored_audit(run), st.session_state.setdefault("measured-audits", {})
    label = "Measure it again" if stored or run.path in measured else "Audit it now"
    row = st.container(horizontal=True, vertical_alignment="center")
    if row.button(label, key="measure", icon=":material/policy:", help="About half a minute on two cores."):
        measured[run.path] = measure(run)
    answer = measured.get(run.path) or stored
    if answer is None:
        declared = "that it sees the future" if run.sees_future else "that it is causal"
        st.info(
            f"This run was not audited. Its mechanisms declare {declared}; nobody has measured it.",
            icon=":material/info:",
        )
        st.stop()
    row.caption("Measured just now." if run.path in measured else "From the run's audit.json.")
    return answer


def show_verdict(answer: Audit) -> None:
    box, icon = BOXES[answer.verdict]
    place = f" It comes in through `{answer.where}`." if answer.where else ""
    asked = f" Asked in {answer.mode}." if answer.verdict == "causal" else ""
    box(f"**{answer.verdict}**  \n{ui.plain(answer.reason)}{place}{asked}", icon=icon)


def show_losses(run: Run, answer: Audit) -> None:
    runs = ui.all_runs()
    baseline, twin = companions.baseline(run, answer, runs), companions.twin(run, answer, runs)
    st.subheader("Loss by position in the window", anchor=False)
    st.markdown(ui.plain(words.losses_in_words(answer)))
    table = words.loss_table(answer, baseline, twin)
    if len(table):
        ui.figure(
            ui.drawn(loss_by_position, table),
            key="losses",
            alt="Loss by position in the window, by what the model is shown after the position",
            how_to_read="Each curve is the loss on the same next tokens; what differs is what the model is shown after "
            f"them. {answer.predictions} predictions in {answer.windows} windows of validation text, "
            f"{answer.draws} other texts each; hover for standard errors. A causal model's curves are one.",
            table=table,
        )
    if baseline.missing:
        st.caption(f"Baseline: {ui.plain(baseline.missing)}.")
    value = words.value_in_words(answer, twin)
    if value:
        st.markdown(f"**What the future was worth.** {ui.plain(value)}")
    st.markdown("**At the same predictions**, nats per token")
    table = words.beside_table(answer, {"baseline": baseline, "twin trained without the future": twin})
    ui.table(table, key="beside", name="losses-at-the-same-predictions")


def show_movement(answer: Audit) -> None:
    st.subheader("How far back a changed token is felt", anchor=False)
    table = words.distance_table(answer)
    if answer.threshold is not None and table["max_logit_change"].notna().any():
        ui.figure(
            ui.drawn(movement_by_distance, table, answer.threshold),
            key="movement",
            alt="Largest change of a logit by distance to the one token that was changed",
            how_to_read="One token is changed; every earlier prediction should stay as it was. Open circles: it did, to "
            "the last digit. Points above the dotted line moved by more than rounding explains.",
            table=table,
        )
    st.markdown("**Every way the model was asked**, largest change of a logit")
    ui.table(words.mode_table(answer), key="modes", name="audit-modes")
    for note in answer.notes:
        st.caption(ui.plain(f"{note[0].upper()}{note[1:]}."))


ui.frame(
    "Causality audit",
    "A language model that writes knows only what came before. If a prediction changes when only later text "
    "changes, the model sees the future, and its loss says nothing about how it writes.",
)
run = ui.pick_run()
with ui.reading_errors():
    answer = find(run)
    show_verdict(answer)
    show_losses(run, answer)
    show_movement(answer)
