"""Bits per byte: the one scale in which losses of different tokenizers stand on one axis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ega_mope.analysis.compare import Configuration, Panel
from ega_mope.analysis.naming import digest
from ega_mope.runs import Run
from ega_mope.text import split_ids

VARIES = ("tokenizer", "stride", "windows")
"""What may differ in `evaluation` between losses on one axis: the tokenizer, and what follows from it."""


@dataclass(frozen=True)
class Measured:
    """The text that a validation loss was measured on: tokens predicted, their bytes, the byte it starts at."""

    tokens: int
    bytes: float
    first_byte: float

    @property
    def bits_per_nat(self) -> float:
        """What one nat per token is in bits per byte: tokens / ln 2 / bytes."""
        return self.tokens / math.log(2) / self.bytes

    def convert(self, loss_nats: np.ndarray) -> np.ndarray:
        """Nats per token to bits per byte."""
        return loss_nats * self.bits_per_nat


def measured(run: Run) -> Measured:
    """What a run's validation loss covers: every window once, or (random batches) the split they are drawn from.

    Needs the run's text: ValueError where it is not at hand, or where the run was measured elsewhere.
    """
    if not {"windows", "batches"} & set(run.evaluation):
        raise ValueError(
            f"{run.name}: expected a loss measured by this lab, got an imported one; use nats or bits"
        )
    return _measured(run.path, run.evaluation["context"], run.evaluation.get("windows"))


@lru_cache(maxsize=256)
def _measured(path: Path, context: int, windows: int | None) -> Measured:
    run = Run(path)
    reading = run.tokenizer.read(run.corpus().text)
    train_ids, _ = split_ids(reading.ids, context)
    sizes = token_bytes(reading.characters, reading.owner)
    # The first id after the split is only read; each window predicts the `context` ids after it.
    start = len(train_ids) + 1
    predicted = sizes[start : start + windows * context] if windows else sizes[start:]
    return Measured(len(predicted), float(predicted.sum()), float(sizes[:start].sum()))


def token_bytes(characters: str, owner: Int[np.ndarray, " token"]) -> Float[np.ndarray, " token"]:
    """UTF-8 bytes of each token: its character's, shared among the character's tokens."""
    points = np.frombuffer(characters.encode("utf-32-le", "surrogatepass"), np.uint32)
    sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000).astype(float)
    return sizes[owner] / np.bincount(owner, minlength=len(points))[owner]


def byte_panels(found: Iterable[Configuration]) -> tuple[list[Panel], dict[str, str]]:
    """Panels of the same text, split and context, whatever the tokenizer, most runs first.

    The second part says, by configuration key, why some cannot be in one.
    """
    groups: dict[str, list[Configuration]] = {}
    reasons: dict[str, str] = {}
    for one in found:
        try:
            measured(one.example)
        except ValueError as error:
            reasons[one.key] = str(error)
            continue
        shared = {key: value for key, value in one.evaluation.items() if key not in VARIES}
        groups.setdefault(digest(shared), []).append(one)
    panels = [Panel(key, _title(group), "bytes", tuple(group)) for key, group in groups.items()]
    return sorted(panels, key=lambda panel: -panel.n_runs), reasons


def _title(group: list[Configuration]) -> str:
    example = group[0].example
    tokenizers = " and ".join(dict.fromkeys(one.example.config.tokenizer for one in group))
    return f"{example.document['corpus']['name']}, {tokenizers}, context {example.evaluation['context']}"


def covered_table(panel: Panel) -> pd.DataFrame:
    """One row a way to measure in this panel: which bytes of the text it predicts, in how many tokens."""
    rows = {}
    for one in panel.configurations:
        found = measured(one.example)
        row = {
            "tokenizer": one.example.config.tokenizer,
            "tokens predicted": found.tokens,
            "bytes predicted": round(found.bytes),
            "first byte": round(found.first_byte),
            "bits per byte in one nat per token": found.bits_per_nat,
        }
        rows[tuple(row.values())] = row
    return pd.DataFrame(list(rows.values()))
