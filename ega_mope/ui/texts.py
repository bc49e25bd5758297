"""Choosing the text that a page looks at, and saying what of it a run cannot read."""

from __future__ import annotations

import streamlit as st

from ega_mope.runs import BrokenRun, Run
from ega_mope.text import Reading, decode_text
from ega_mope.text.samples import SAMPLES, sample_text
from ega_mope.ui.catalogue import all_runs, nearest, run_id
from ega_mope.ui.pickers import Needs

PASTE, UPLOAD = "paste", "upload"
PASTE_TO_TRAIN, UPLOAD_TO_TRAIN = "paste a text", "upload a file"
"""What Train calls a text that is no corpus of the lab."""
LONGEST_PASTE, LONGEST_TEXT = 20_000, 1_000_000
"""Characters; beyond them a text goes through upload, or through the command line."""

MUCH_UNREAD = 0.05
"""Share of unread characters from which another run is offered."""


def pick_text() -> str:
    """The sample, pasted or uploaded text; ends the page where there is none yet.

    ValueError for one that is too long, or a file that holds no text. Which sample is in the URL; what
    somebody pastes is not.
    """
    source = st.segmented_control(
        "Text",
        [*SAMPLES, PASTE, UPLOAD],
        default="verse",
        key="text",
        bind="query-params",
        required=True,
        help="Three samples, or your own text; what you paste stays on this machine and out of the address.",
    )
    if source in SAMPLES:
        return sample_text(source)
    text = _pasted() if source == PASTE else _uploaded()
    if not text:
        st.info("Paste or upload a text, and it appears here.", icon=":material/edit_note:")
        st.stop()
    return text


def _pasted() -> str:
    text = st.text_area("Your text", key="pasted", height=160, persist_state="session")
    # In Python: the box's own limit would refuse a long paste without a word.
    if len(text) > LONGEST_PASTE:
        raise ValueError(
            f"text: expected at most {LONGEST_PASTE:,} characters in the box, got {len(text):,}; upload it as a file"
        )
    return text


def _uploaded() -> str:
    file = st.file_uploader("A text file", key="file", help="UTF-8, or UTF-16 with a byte order mark.")
    text = decode_text(file.getvalue(), file.name) if file else ""
    if len(text) > LONGEST_TEXT:
        raise ValueError(
            f"text: expected at most {LONGEST_TEXT:,} characters here, got {len(text):,}; "
            "use `ega-mope gates --text-file`, which has no limit"
        )
    return text


def say_unread(run: Run, reading: Reading, needs: Needs) -> None:
    """Say how much of the text the model is not fed; over 5 % offer a run that reads all of it.

    Only runs that `needs` lets through are offered.
    """
    unread, total = int((~reading.known).sum()), len(reading.characters)
    if unread > MUCH_UNREAD * total:
        st.warning(
            f"{unread:,} of {total:,} characters ({100 * unread / total:.1f} %) are not read by this run: "
            "they keep their place and the model is fed nothing for them.",
            icon=":material/warning:",
        )
        _offer_reader(run, needs)
        _offer_training(reading.characters)
    elif unread:
        st.caption(f"{unread:,} of {total:,} characters are not read by this run; they keep their place.")
    unmet = int((reading.known & ~reading.seen).sum())
    if unmet:
        st.caption(f"{unmet:,} of {total:,} characters hold bytes never met in training (dotted underline).")


def _offer_reader(run: Run, needs: Needs) -> None:
    whole = [other for other in all_runs() if not isinstance(other, BrokenRun)]
    able = [other for other in whole if other.config.tokenizer == "bytes" and needs(other) is None]
    other = nearest(run, able)
    if other is None:
        st.caption("A run trained with `--tokenizer bytes` reads every text; there is none here yet.")
        return
    st.button(
        "Switch to a run that reads this",
        key="switch",
        on_click=_open,
        args=(run_id(other),),
        help=f"Opens {other.name}, which reads bytes.",
    )


def _offer_training(text: str) -> None:
    if st.button("Train on this text", key="train-on", help="Opens Train with this text in place."):
        st.session_state["train-text"] = text
        st.switch_page("pages/Train.py", query_params={"corpus": PASTE_TO_TRAIN})


def _open(name: str) -> None:
    st.query_params["run"] = name
