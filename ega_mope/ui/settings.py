"""A mechanism's settings as controls, drawn from the fields of its settings dataclass."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import streamlit as st

from ega_mope.config import Plain, allowed_values


def mechanism(label: str, registry: dict[str, Any], offered: list[str], *, key: str, default: str) -> Plain:
    """A picker among `offered` and a control a setting; the answer is `{"name": …, setting: value}`."""
    name = st.selectbox(
        label,
        offered,
        index=offered.index(default) if default in offered else 0,
        key=key,
        bind="query-params",
    )
    st.caption(first_line(registry[name]))
    return {"name": name, **controls(registry[name].Settings, key=f"{key}-{name}")}


def first_line(mechanism: Any) -> str:
    """The first sentence of a mechanism's docstring."""
    return (mechanism.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def controls(settings: type, *, key: str) -> Plain:
    """One control for each field of a settings dataclass, with the field's own help."""
    hints = typing.get_type_hints(settings)
    return {
        field.name: _control(field, hints[field.name], f"{key}-{field.name}")
        for field in dataclasses.fields(settings)
    }


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
