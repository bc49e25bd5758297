"""Figures, tables and errors as every page shows them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import streamlit as st

from ega_mope.plots.drawn import Drawn, Figure

if TYPE_CHECKING:
    import pandas as pd

SelectionMode = Literal["points", "box", "lasso"]
Inputs = ParamSpec("Inputs")


def drawn(make: Callable[Inputs, Figure], *args: Inputs.args, **kwargs: Inputs.kwargs) -> Drawn:
    """`make(*args, **kwargs)` to show with `figure`, made once for all visits and clicks with the same inputs.

    A page runs from top to bottom at every click, and plotly takes up to 30 ms to build a figure. The
    inputs tell figures apart by their whole content, never by name: any plain data, arrays and tables.
    """
    return _drawn(pickle.dumps((make, args, kwargs)), lambda: make(*args, **kwargs))


@st.cache_resource(max_entries=128, show_spinner=False)
def _drawn(inputs: bytes, _make: Callable[[], Figure]) -> Drawn:
    return Drawn(_make())


def figure(
    fig: Figure,
    *,
    key: str,
    alt: str,
    how_to_read: str,
    table: pd.DataFrame | Callable[[], pd.DataFrame] | None = None,
    on_select: Literal["rerun"] | Callable[..., None] | None = None,
    selection_mode: SelectionMode | Iterable[SelectionMode] = "points",
    in_fragment: bool = False,
) -> Any:
    """Draw a plotly figure, the sentence that says how to read it, and the table behind it.

    `alt` is read out in place of the picture. A table that takes work to make comes as a function, which is
    called when it is opened. With `on_select` ("rerun" or a callback) the answer is the selection:
    `answer.selection.points` with each point's `customdata`.

    Within a fragment say `in_fragment`. When a fragment runs again, Streamlit drops what it has not yet sent of
    the run before, but not what a fragment in it has: on a busy machine the page gets parts that hang nowhere.
    """
    sent = fig if isinstance(fig, Drawn) else Drawn(fig)
    answer = st.plotly_chart(
        sent.clickable() if on_select else sent,
        width="stretch",
        theme=None,  # a theme would have the browser draw every figure twice
        key=key,
        alt=alt,
        on_select=on_select or "ignore",
        selection_mode=selection_mode,
        config={"displaylogo": False},
    )
    st.caption(how_to_read)
    if table is not None:
        (_table_behind if in_fragment else _table_by_itself)(table, key)
    return answer if on_select else None


def _table_behind(frame: pd.DataFrame | Callable[[], pd.DataFrame], key: str) -> None:
    """A figure's table, shown when it is opened: a closed one would still cost every click on the page."""
    below = st.expander("Table", icon=":material/table:", key=f"{key}-behind", on_change="rerun")
    if below.open:
        with below:
            _table_and_downloads(frame() if callable(frame) else frame, key=f"{key}-table", name=key)


_table_by_itself = st.fragment(_table_behind)


def table(frame: pd.DataFrame, *, key: str, name: str, formats: dict[str, str] | None = None) -> None:
    """Show a table with buttons that download it, all digits, as `name`.csv and `name`.json.

    `formats` says by column how its numbers are shown, such as {"loss, nats": "%.4f"}.
    """
    _table_and_downloads(frame, key=key, name=name, formats=formats)


def _table_and_downloads(
    frame: pd.DataFrame, *, key: str, name: str, formats: dict[str, str] | None = None
) -> None:
    columns = {column: st.column_config.NumberColumn(format=form) for column, form in (formats or {}).items()}
    st.dataframe(frame, width="stretch", hide_index=True, key=key, column_config=columns, placeholder="–")
    row = st.container(horizontal=True)
    for label, data, mime in (
        ("CSV", lambda: frame.to_csv(index=False), "text/csv"),
        ("JSON", lambda: frame.to_json(orient="records", force_ascii=False), "application/json"),
    ):
        file = f"{name}.{label.lower()}"
        row.download_button(
            label,
            data,
            file_name=file,
            mime=mime,
            key=f"{key}-{label.lower()}",
            on_click="ignore",
            icon=":material/download:",
            help=f"Download this table as {file}",
        )


def marked(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table with ⚠ where the column "sees the future" says yes."""
    return frame.replace({"sees the future": {"yes": "⚠ yes"}})


@contextmanager
def reading_errors() -> Iterator[None]:
    """Show a ValueError, which says expected, got and what to do, as an instruction, and end the page."""
    try:
        yield
    except ValueError as error:
        st.error(plain(str(error)), icon=":material/error:")
        st.stop()


def plain(text: str) -> str:
    """Text for Streamlit's Markdown, shown as it is: names, paths and messages hold `_`, `*`, `$` and `:`."""
    return re.sub(r"([\\`*_{}\[\]<>$~#|:])", r"\\\1", text)
