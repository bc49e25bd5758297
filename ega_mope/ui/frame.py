"""The frame around every page: title, navigation, style."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx


@dataclass(frozen=True)
class Page:
    """An entry of the navigation; `file` is relative to app.py."""

    file: str
    label: str
    icon: str


HOME = Page("app.py", "Home", ":material/home:")
GROUPS = {
    "Explore": (
        Page("pages/Learned_scales.py", "Learned scales", ":material/scatter_plot:"),
        Page("pages/Correlation_kernels.py", "Correlation kernels", ":material/water:"),
        Page("pages/Energy_gates.py", "Energy gates", ":material/format_ink_highlighter:"),
        Page("pages/Ablation.py", "Ablation", ":material/content_cut:"),
        Page("pages/Mechanisms.py", "Mechanisms", ":material/function:"),
    ),
    "Experiment": (
        Page("pages/Compare_runs.py", "Compare runs", ":material/show_chart:"),
        Page("pages/Superadditivity.py", "Superadditivity", ":material/add_circle:"),
        Page("pages/Train.py", "Train", ":material/model_training:"),
    ),
    "Check": (
        Page("pages/Causality_audit.py", "Causality audit", ":material/policy:"),
        Page("pages/Claims.py", "Claims", ":material/fact_check:"),
    ),
}

STYLE = """
<style>
.stMainBlockContainer {max-width: 80rem; padding: 3.5rem 2.5rem 4rem}
.stMainBlockContainer h1 {font-size: 2.2rem; overflow-wrap: anywhere}
.stMainBlockContainer .stPageLink a {border: 1px solid #2b8cc4; justify-content: center}
[data-testid="stCaptionContainer"] {opacity: 0.8 !important}
.stPlotlyChart :is(.xtick, .ytick, .legendtext, .g-xtitle, .g-ytitle, .annotation, .textpoint, .cbaxis) text,
.stPlotlyChart text.legendtext {fill: currentColor !important; opacity: 0.85}
[data-testid="stSidebarHeader"] {height: 3rem; margin-bottom: 0}
@media (max-width: 640px) {.stMainBlockContainer {padding-left: 1rem; padding-right: 1rem}}
</style>
"""


def frame(title: str, lead: str = "") -> None:
    """Begin a page: call it before anything else of Streamlit. `lead` is one sentence under the title."""
    st.set_page_config(
        page_title=title if title == "EGA/MoPE Lab" else f"{title} · EGA/MoPE Lab",
        page_icon="🌊",
        layout="wide",
    )
    st.html(STYLE)
    with st.sidebar:
        _navigation()
        _copy_link()
    st.title(title, anchor=False)
    if lead:
        st.markdown(lead)


def _copy_link() -> None:
    """The address of this screen: every choice that shapes a picture is in it."""
    with st.popover("Copy link", icon=":material/link:", width="stretch"):
        every = {key: st.query_params.get_all(key) for key in st.query_params}
        query = urlencode(every, doseq=True)
        st.code(f"{st.context.url}{'?' if query else ''}{query}", language=None, wrap_lines=True)


def page_button(file: str) -> None:
    """A link to the page `file` that keeps the chosen run; nothing where that page is not there."""
    page = next(page for group in GROUPS.values() for page in group if page.file == file)
    if _exists(page):
        _link(page)


def _navigation() -> None:
    _link(HOME)
    for name, pages in GROUPS.items():
        there = [page for page in pages if _exists(page)]
        if there:
            st.caption(name)
            for page in there:
                _link(page)


def _link(page: Page) -> None:
    """`st.page_link` drops the query unless told: the chosen run goes along, other choices do not."""
    run = st.query_params.get("run")
    st.page_link(
        page.file,
        label=page.label,
        icon=page.icon,
        width="stretch",
        query_params={"run": run} if run else None,
    )


def _exists(page: Page) -> bool:
    context = get_script_run_ctx()
    root = Path(context.main_script_path).parent if context else Path.cwd()
    return (root / page.file).exists()
