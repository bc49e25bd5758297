"""Short names for mechanisms and settings, the same on every page and in every answer."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from ega_mope.attention import ATTENTIONS
from ega_mope.config import Plain
from ega_mope.positions import POSITIONS

ALWAYS_NAMED = ("gate_norm",)
"""Settings that a name never hides: this one decides whether a gate sees the future."""

KEYED = ("freeze",)
"""Settings whose word does not speak for itself: "freeze both"."""


def attention_name(attention: Plain) -> str:
    """Such as "ega causal": the mechanism, its gate norm, and what is not at its default."""
    return _name(attention, ATTENTIONS[attention["name"]].Settings())


def position_name(position: Plain) -> str:
    """Such as "mope multiscale": the mechanism and what is not at its default."""
    return _name(position, POSITIONS[position["name"]].Settings())


def _name(mechanism: Plain, defaults: Any) -> str:
    usual = dataclasses.asdict(defaults)
    words = [mechanism["name"]]
    for key, value in mechanism.items():
        if key != "name" and (key in ALWAYS_NAMED or value != usual.get(key)):
            words.append(setting_name(key, value))
    return " ".join(words)


def setting_name(key: str, value: Any) -> str:
    """A word speaks for itself ("multiscale"); a number or a yes needs its key ("steps 500")."""
    if key == "from_run":
        return f"from {value}"
    if isinstance(value, str):
        return f"{key} {value}" if key in KEYED else value
    return f"{key} {value:g}" if isinstance(value, float) else f"{key} {json.dumps(value)}"


def digest(data: Any) -> str:
    """Eight hex digits that stand for plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:8]
