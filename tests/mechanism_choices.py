"""Which mechanisms the contract tests run over, read from the registries: a new entry is in at once."""

from __future__ import annotations

import dataclasses
import itertools
import json
import typing
from typing import Any

from ega_mope.attention import ATTENTIONS
from ega_mope.config import Plain, allowed_values
from ega_mope.model import refusal
from ega_mope.positions import POSITIONS


@dataclasses.dataclass(frozen=True)
class Choice:
    """An attention and a position, each as plain data."""

    attention: Plain
    position: Plain

    def __str__(self) -> str:
        return f"{_label(self.attention)}+{_label(self.position)}"


def _label(data: Plain) -> str:
    return ",".join([data["name"], *(f"{key}={value}" for key, value in data.items() if key != "name")])


def listed_settings(cls: Any, *, registries_only: bool = False) -> dict[str, list[Any]]:
    """The settings of a mechanism whose values can be listed, the default first."""
    hints = typing.get_type_hints(cls.Settings)
    found: dict[str, list[Any]] = {}
    for field in dataclasses.fields(cls.Settings):
        values = allowed_values(field, hints[field.name])
        if values and (not registries_only or field.metadata["choices"]):
            found[field.name] = sorted(values, key=lambda value: value != field.default)
    return found


def _variants(registry: dict[str, Any]) -> list[Plain]:
    """Each entry with its defaults, then with one setting at a time at each of its other values."""
    found: list[Plain] = []
    for name, cls in registry.items():
        found.append({"name": name})
        for key, values in listed_settings(cls).items():
            found += [{"name": name, key: value} for value in values[1:]]
    return found


def entries() -> list[Choice]:
    """Every entry and every listed setting once, with defaults elsewhere."""
    return [Choice(attention, {"name": "learned"}) for attention in _variants(ATTENTIONS)] + [
        Choice({"name": "dot"}, position) for position in _variants(POSITIONS)
    ]


def product() -> list[Choice]:
    """Every attention with every gate norm and signal, on every position that it goes with."""
    found = []
    for name, cls in ATTENTIONS.items():
        settings = listed_settings(cls, registries_only=True)
        for values in itertools.product(*settings.values()):
            attention = {"name": name, **dict(zip(settings, values, strict=True))}
            found += [
                Choice(attention, {"name": position})
                for position in POSITIONS
                if refusal(name, position) is None
            ]
    return found


def _pairs(choice: Choice) -> set[str]:
    parts = [*choice.attention.items(), ("position", choice.position["name"])]
    return {json.dumps([choice.attention["name"], *pair]) for pair in itertools.combinations(parts, 2)}


def pairwise() -> list[Choice]:
    """A part of the product in which any two values that can meet do meet, picked greedily."""
    left = product()
    wanted = set().union(*map(_pairs, left))
    chosen = []
    while wanted:
        best = max(left, key=lambda choice: len(_pairs(choice) & wanted))
        chosen.append(best)
        left.remove(best)
        wanted -= _pairs(best)
    return chosen
