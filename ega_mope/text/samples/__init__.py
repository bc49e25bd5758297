"""Three short texts written for the lab: something to look at before a text of one's own."""

from __future__ import annotations

from importlib.resources import files

SAMPLES = {"prose": "Prose", "verse": "Verse and dialogue", "markup": "Code and markup"}
"""Names of the samples and what they are."""


def sample_text(name: str) -> str:
    """The sample of that name; ValueError names the valid ones."""
    if name not in SAMPLES:
        raise ValueError(f"sample: expected one of ({', '.join(SAMPLES)}), got {name!r}; choose one of them")
    return (files(__name__) / f"{name}.txt").read_text(encoding="utf-8")
