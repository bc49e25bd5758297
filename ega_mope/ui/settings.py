"""A mechanism's settings as controls, drawn from the fields of its settings dataclass."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Any

import streamlit as st

from ega_mope.config import Plain, allowed_values

SourceRuns = Callable[[str], dict[str, str]]
"""What runs a mechanism of this name can take something from: by what to write for it, what to show."""

NO_RUN = "no run"


def mechanism(
    label: str,
    registry: dict[str, Any],
    offered: list[str],
    *,
    key: str,
    default: str,
    sources: SourceRuns | None = None,
) -> Plain:
    """A picker among `offered` and a control a setting; the answer is `{"name": …, setting: value}`.

    Settings that name a run are left out unless `sources` says which runs there are.
    """
    name = st.selectbox(
        label,
        offered,
        index=offered.index(default) if default in offered else 0,
        key=key,
        bind="query-params",
    )
    st.caption(first_line(registry[name]))
    runs = None if sources is None else sources(name)
    return {"name": name, **controls(registry[name].Settings, key=f"{key}-{name}", runs=runs)}


def first_line(mechanism: Any) -> str:
    """The first sentence of a mechanism's docstring."""
    return (mechanism.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def controls(settings: type, *, key: str, runs: dict[str, str] | None = None) -> Plain:
    """One control for each field of a settings dataclass, with the field's own help."""
    hints = typing.get_type_hints(settings)
    fields = [field for field in dataclasses.fields(settings) if not field.metadata.get("names_run")]
    values = {field.name: _control(field, hints[field.name], f"{key}-{field.name}") for field in fields}
    for field in dataclasses.fields(settings):
        if field.metadata.get("names_run") and runs is not None:
            values[field.name] = _run_control(field, runs, f"{key}-{field.name}")
    return values


def _run_control(field: dataclasses.Field[Any], runs: dict[str, str], key: str) -> str | None:
    shown = {NO_RUN: NO_RUN if runs else "no run here has any"} | runs
    help_text = field.metadata["help"]
    chosen = st.selectbox(
        field.name.replace("_", " "), list(shown), format_func=shown.__getitem__, key=key, help=help_text
    )
    return None if chosen == NO_RUN else chosen


def _control(field: dataclasses.Field[Any], annotation: Any, key: str) -> Any:
    label, help_text = field.name.replace("_", " "), field.metadata.get("help")
    default: Any = field.default
    if annotation is bool:
        return st.toggle(label, default, key=key, help=help_text)
    values = allowed_values(field, annotation)
    if values is not None:
        return st.selectbox(label, values, index=values.index(default), key=key, help=help_text)
    if annotation in (int, float):
        low, high = field.metadata.get("minimum"), field.metadata.get("maximum")
        bounds: dict[str, Any] = {
            name: annotation(bound)
            for name, bound in (("min_value", low), ("max_value", high))
            if bound is not None
        }
        return st.number_input(label, value=default, key=key, help=help_text, **bounds)
    return st.text_input(label, default or "", key=key, help=help_text) or None
