"""What does a trained model need? Each part out of work in turn, held against the whole model.

The other weights stay as they were trained with the part in place: a change says what this model leans
on, not what a model that was trained without the part would lose.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ega_mope.analysis.ablation.changes import (
    ALL_LAYERS,
    ALL_PAIRS,
    BANDS_BY,
    FAMILIES,
    RANDOM,
    Change,
    bands_of,
    gate_changes,
    has_gates,
    has_pairs,
    pair_changes,
)
from ega_mope.analysis.ablation.measure import Effects, effects
from ega_mope.analysis.gates import why_no_gates
from ega_mope.analysis.intervals import t_interval
from ega_mope.analysis.plain import plain_rows
from ega_mope.analysis.scales import scales, why_no_scales
from ega_mope.analysis.windows import side_by_side, spread_evenly
from ega_mope.config import Plain
from ega_mope.model import CharLM
from ega_mope.runs import BrokenRun, Run, list_runs
from ega_mope.text import split_ids
from ega_mope.training import windows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BANDS_BY", "FAMILIES", "FEW_WINDOWS", "Ablation", "Effect", "ablate", "why_nothing_to_ablate"]

FEW_WINDOWS = 8
"""Validation windows read unless told otherwise."""
TEXT_WINDOWS = 4
"""The most windows of a chosen text, the first ones, whose predictions are compared."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What one change does. `loss_change` is the mean over windows of the window's loss after less before, in
    nats per token: above 0 the model needs the part. `standard_error`, `low` and `high` (95 %, Student's t
    over windows) are None with one window. `kl_nats` is how far the predictions move, nats per token."""

    kind: str
    part: str
    count: int
    loss_change: float
    standard_error: float | None
    low: float | None
    high: float | None
    kl_nats: float

    @property
    def clear(self) -> bool:
        """Whether the interval of the loss change leaves out 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Every change of one run, the most needed part first.

    `loss_nats` is the whole model's loss on the same `windows` of `windows_in_all` of the validation split.
    `kl_nats` of the effects is over `text_tokens` predictions of a chosen text, or over the same
    validation windows where that is None. `notes` say what could not be done.
    """

    run: str
    sees_future: bool | None
    loss_nats: float
    windows: int
    windows_in_all: int
    text_tokens: int | None
    effects: tuple[Effect, ...]
    notes: tuple[str, ...]

    def table(self) -> pd.DataFrame:
        """One row a change, in full precision, in the order of the rank."""
        import pandas as pd

        columns = (
            "kind",
            "part",
            "count",
            "loss_change",
            "standard_error",
            "low",
            "high",
            "clear",
            "kl_nats",
        )
        rows = [{name: getattr(one, name) for name in columns} for one in self.effects]
        table = pd.DataFrame(rows, columns=list(columns))
        table.insert(0, "rank", range(1, len(table) + 1))
        numbers = ["loss_change", "standard_error", "low", "high", "kl_nats"]
        table[numbers] = table[numbers].astype(float)
        return table

    def family(self, name: str) -> pd.DataFrame:
        """The rows of one of FAMILIES, gates or pairs; empty where the run has none."""
        table = self.table()
        return table[table["kind"].isin(FAMILIES[name])]

    @property
    def what_was_read(self) -> str:
        """How many windows the numbers rest on, in one sentence."""
        size = "the whole validation split" if self.windows == self.windows_in_all else "evenly spread"
        kl = "the same windows" if self.text_tokens is None else f"{self.text_tokens:,} tokens of the text"
        return (
            f"Loss {self.loss_nats:.4f} nats per token unchanged, on {self.windows} of {self.windows_in_all} "
            f"validation windows ({size}); predictions compared on {kl}."
        )

    @property
    def findings(self) -> list[str]:
        """In words: the most needed part of each family, all of it, and how many parts count; controls left out."""
        parts = [one for one in self.effects if one.kind != RANDOM]
        clear = [one for one in parts if one.clear]
        harmful = sum(one.loss_change < 0 for one in clear)
        says = [self._most_needed(family) for family in FAMILIES]
        says.append(
            f"{len(clear)} of {len(parts)} changes move the loss clearly (95 % interval off 0)"
            f"{f', {harmful} of them downwards' if harmful else ''}."
        )
        return [one for one in says if one]

    def _most_needed(self, family: str) -> str:
        """Its most needed part, and all of it; empty where the run has none of this family."""
        own = [one for one in self.effects if one.kind in FAMILIES[family] and one.kind != RANDOM]
        whole = [one for one in own if one.part in (ALL_LAYERS, ALL_PAIRS)]
        parts = [one for one in own if one not in whole]
        says = [_in_words(one) for one in (*parts[:1], *whole[:1])]
        return f"{family.capitalize()}: {'; '.join(says)}." if says else ""

    def to_json(self) -> Plain:
        """The answer of `ega-mope ablate --json`."""
        table = self.table()
        return {
            "run": self.run,
            "sees_future": self.sees_future,
            "loss_nats": self.loss_nats,
            "windows": self.windows,
            "windows_in_all": self.windows_in_all,
            "kl_on": "validation windows" if self.text_tokens is None else "text",
            "text_tokens": self.text_tokens,
            "changes": plain_rows(table),
            "notes": list(self.notes),
        }


def _in_words(one: Effect) -> str:
    interval = "" if one.low is None else f" [{one.low:+.4f}, {one.high:+.4f}]"
    return f"{one.part} ({one.kind}) {one.loss_change:+.4f} nats per token{interval}"


def why_nothing_to_ablate(run: Run) -> str | None:
    """None, or why this run has no part that could be taken out, or no weights to take it out of."""
    if why_no_gates(run) and why_no_scales(run):
        return f"{why_no_gates(run)} and {why_no_scales(run)}"
    return None if (run.path / "model.safetensors").exists() else "its weights are not in its folder"


def ablate(
    run: Run,
    text: str | None = None,
    *,
    model: CharLM | None = None,
    most_windows: int | None = FEW_WINDOWS,
    bands_by: str = "sigma",
    device: str = "auto",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Ablation:
    """Open each gate and take out each band of Morlet pairs in turn.

    `most_windows` of the validation split are read, spread evenly over it, all of them where it is None;
    every change on the same windows, so that differences are paired. With a `text`, predictions are
    compared on its first windows. `model` spares loading the run's weights; it stays as it is.
    Raises ValueError for a run with neither gates nor pairs, without weights, or whose text is not at hand.
    """
    reason = why_nothing_to_ablate(run)
    if reason:
        raise ValueError(
            f"{run.name}: expected a run with weights and with gates or Morlet pairs, got one where {reason}"
            f"{_instead()}"
        )
    own = copy.deepcopy(model) if model is not None else run.model(device)
    changes, notes = _changes(own, run, bands_by)
    every = _validation_windows(run)
    chosen = every if most_windows is None else every[spread_evenly(len(every), most_windows)]
    read = _text_windows(run, text) if text is not None else None
    on_text = len(read) if read is not None else 0
    total = (len(chosen) + on_text) * (len(changes) + 1)
    on_validation = effects(own, chosen, changes, lambda done, _: progress(done, total))
    before = total - on_text * (len(changes) + 1)
    kl = (
        on_validation.kl
        if read is None
        else effects(own, read, changes, lambda done, _: progress(before + done, total)).kl
    )
    found = [_effect(change, on_validation, number, kl[number]) for number, change in enumerate(changes)]
    return Ablation(
        run=run.name,
        sees_future=run.sees_future,
        loss_nats=float(on_validation.before.mean()),
        windows=len(chosen),
        windows_in_all=len(every),
        text_tokens=None if read is None else read[:, 1:].numel(),
        effects=tuple(sorted(found, key=lambda one: -one.loss_change)),
        notes=tuple(notes),
    )


def _changes(model: CharLM, run: Run, bands_by: str) -> tuple[list[Change], list[str]]:
    changes, notes = [], []
    if has_gates(model):
        changes += gate_changes(model)
    if has_pairs(model):
        found = scales(run)
        changes += pair_changes(model, found, bands_by)
        if found.start_clusters is None:
            notes.append("Pairs could not be put back to their start: the run has no record of it.")
        bands = bands_of(found, bands_by)
        if len(bands) == 1:
            notes.append(f"All pairs are in one band by {bands_by}: {bands[0][0]}.")
    return changes, notes


def _effect(change: Change, found: Effects, number: int, kl: Float[np.ndarray, " window"]) -> Effect:
    moved = found.after[number] - found.before
    interval = t_interval(moved)
    error = float(moved.std(ddof=1) / np.sqrt(len(moved))) if len(moved) > 1 else None
    return Effect(
        kind=change.kind,
        part=change.part,
        count=change.count,
        loss_change=float(moved.mean()),
        standard_error=error,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        kl_nats=float(kl.mean()),
    )


def _validation_windows(run: Run) -> Int[Tensor, "window context_plus_one"]:
    context = run.config.model.context_length
    _, ids = split_ids(run.tokenizer.encode(run.corpus().text), context)
    return windows(torch.as_tensor(ids), context)


def _text_windows(run: Run, text: str) -> Int[Tensor, "window time"]:
    """The text's first windows, each with the token after it; the last position of a short text has no next."""
    ids = run.tokenizer.read(text).ids
    if len(ids) < 2:
        raise ValueError(
            f"text: expected at least 2 characters that the run reads, got {len(ids)}; type or choose a longer text"
        )
    return torch.from_numpy(side_by_side(ids, run.config.model.context_length + 1, TEXT_WINDOWS))


def _instead() -> str:
    able = [
        run.name
        for run in list_runs()
        if not isinstance(run, BrokenRun) and why_nothing_to_ablate(run) is None
    ]
    return f"; choose for example {able[0]}" if able else "; train one with `ega-mope train --attention ega`"
