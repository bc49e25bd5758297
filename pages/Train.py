"""Train: choose a text and mechanisms, queue trainings, watch, stop and resume them."""

import streamlit as st

from ega_mope import jobs, ui
from ega_mope.config import ExperimentConfig
from ega_mope.runs import runs_folder
from ega_mope.ui.train_form import choose_experiments
from ega_mope.ui.train_watch import own_runs, say_estimate, watch


def start(experiments: list[ExperimentConfig], name: str | None) -> None:
    """Queue them and watch the first."""
    folders = [jobs.enqueue(config, runs_folder(), corpus_name=name) for config in experiments]
    st.query_params["run"] = folders[0].name
    st.toast(f"Queued: {len(folders)}. They go on when this tab closes.")


def new_training() -> None:
    """The form. A mistake in it is shown and leaves the trainings below in sight."""
    try:
        experiments, name = choose_experiments()
        count = len(experiments)
        row = st.container(horizontal=True)
        label = f"Start {count} trainings" if count > 1 else "Start training"
        if row.button(label, type="primary", key="start", disabled=not count):
            start(experiments, name)
        tip = "Times two seconds of this training."
        if row.button("Estimate time and size", key="estimate", disabled=not count, help=tip):
            with st.spinner("Timing two seconds of it"):
                st.info(say_estimate(jobs.probe_elsewhere(experiments[0]), count))
        st.caption(f"At once: {jobs.limit()} (EGA_MOPE_JOBS). Folder: `{runs_folder()}`")
    except ValueError as error:
        st.error(ui.plain(str(error)), icon=":material/error:")


ui.frame(
    "Train",
    "Train small models on a text of your choice. Trainings run outside the app, one after the other: "
    "close the tab and they go on, come back and they are here.",
)
with st.expander("New training", expanded=not own_runs(), icon=":material/add:"):
    new_training()
st.subheader("Trainings", anchor=False)
with ui.reading_errors():
    watch()
