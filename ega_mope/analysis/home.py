"""What Home shows: the runs, and the two mechanisms at settings of the reader's choice."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from ega_mope.analysis.naming import attention_name, position_name
from ega_mope.analysis.runs import FUTURE_WORDS
from ega_mope.config import Plain
from ega_mope.positions.mope import morlet_table
from ega_mope.runs import BrokenRun, Run

Z_RANGE = 4.0
"""Standard deviations of the energy to either side of its mean."""

STEPS_PER_TOKEN = 8
"""How finely the curve between the tokens is drawn."""


@dataclass(frozen=True)
class Comparable:
    """Runs whose losses may stand side by side: one text, one tokenizer, one way to evaluate."""

    title: str
    evaluation: str
    table: pd.DataFrame


def comparable_runs(rows: Iterable[tuple[Run, Plain]], shipped: Path) -> list[Comparable]:
    """The runs grouped by `evaluation`: groups with shipped runs first, then the larger ones.

    `rows` pairs each run with its summary (`analysis.runs.summarise`); losses in nats per token.
    """
    groups: dict[str, list[tuple[Run, Plain]]] = {}
    for run, row in rows:
        groups.setdefault(repr(sorted(run.evaluation.items())), []).append((run, row))
    found = []
    for members in sorted(groups.values(), key=lambda group: _rank(group, shipped)):
        run = members[0][0]
        tokenizer, corpus = run.config.tokenizer, run.document["corpus"]
        table = pd.DataFrame([_line(run, row, shipped) for run, row in members])
        table = table.sort_values(["preset", "mechanisms", "seed"], ignore_index=True)
        found.append(Comparable(f"{corpus['name']}, {tokenizer}", _in_words(run.evaluation), table))
    return found


def _rank(members: list[tuple[Run, Plain]], shipped: Path) -> tuple[bool, int]:
    return not any(run.path.parent == shipped for run, _ in members), -len(members)


def _line(run: Run, row: Plain, shipped: Path) -> Plain:
    attention, position = run.config.model.attention, run.config.model.position
    return {
        "mechanisms": f"{attention_name(attention)} + {position_name(position)}",
        "best loss, nats": row["best_loss_nats"],
        "sees the future": FUTURE_WORDS[row["sees_future"]],
        "final loss, nats": row["final_loss_nats"],
        "seed": run.seed,
        "steps": row["steps"],
        "preset": row["preset"],
        "name": run.name,
        "status": row["status"],
        "from": "shipped" if run.path.parent == shipped else "yours",
    }


def _in_words(evaluation: Plain) -> str:
    """How a loss was measured, in one phrase."""
    token = "characters" if evaluation["tokenizer"] == "characters" else "bytes"
    if "windows" in evaluation:
        how = f"every one of {evaluation['windows']:,} windows once, {evaluation['context']} {token} each"
    elif "batches" in evaluation:
        how = f"{evaluation['batches']} random batches of {evaluation['batch_size']} windows"
        how += f", {evaluation['context']} {token} each"
    else:
        how = f"as {evaluation['measured_by']} measured it, context {evaluation['context']} {token}"
    text = evaluation["corpus_sha256"]
    return f"validation split of {f'the text {text[:8]}' if text else 'a text that is not known'}, {how}"


def broken_runs(runs: Iterable[Run | BrokenRun]) -> pd.DataFrame:
    """Folders that cannot be read: name, problem and folder."""
    broken = [run for run in runs if isinstance(run, BrokenRun)]
    columns = ["name", "problem", "folder"]
    return pd.DataFrame([(run.name, run.problem, str(run.path)) for run in broken], columns=columns)


def gate_curve(threshold: float, sharpness: float) -> pd.DataFrame:
    """g = sigmoid(α(z − θ)) over z from −4 to 4: columns `z` (standard deviations) and `gate` (0 to 1).

    Source: arXiv 2605.26355, section 2.1.
    """
    z = torch.linspace(-Z_RANGE, Z_RANGE, 161, dtype=torch.float64)
    return pd.DataFrame({"z": z.numpy(), "gate": torch.sigmoid(sharpness * (z - threshold)).numpy()})


def learned_gate_curves(run: Run | None) -> pd.DataFrame:
    """The same for every head of a run at its last record; empty where the run has no gates.

    Columns `layer`, `head` (from 1), `threshold`, `sharpness`, `z`, `gate`.
    """
    columns = ["layer", "head", "threshold", "sharpness", "z", "gate"]
    records = run.learned() if run else []
    values = records[-1]["values"] if records else {}
    tables = [
        gate_curve(threshold, sharpness).assign(
            layer=layer, head=head, threshold=threshold, sharpness=sharpness
        )
        for layer, heads in enumerate(
            zip(values.get("attention.threshold", []), values.get("attention.sharpness", []), strict=True), 1
        )
        for head, (threshold, sharpness) in enumerate(zip(*heads, strict=True), 1)
    ]
    return pd.concat(tables)[columns] if tables else pd.DataFrame(columns=columns)


def morlet_pair(omega: float, sigma: float, tokens: int) -> pd.DataFrame:
    """One Morlet pair at and between the positions 0 … tokens, as the model's own code computes it.

    omega in rad/token, sigma in tokens. Columns `position` (tokens), `cos`, `sin`, `envelope`, and
    `token`: whether a token stands there. Source: arXiv 2605.26355, section 2.2.
    """
    # The table at ω/n and σ·n is the table at ω and σ on a grid n times as fine.
    grid = torch.arange(tokens * STEPS_PER_TOKEN + 1)
    omegas = torch.tensor([omega / STEPS_PER_TOKEN, 0.0], dtype=torch.float64)
    sigmas = torch.full((2,), sigma * STEPS_PER_TOKEN, dtype=torch.float64)
    values = morlet_table(grid, omegas, sigmas).numpy()
    return pd.DataFrame(
        {
            "position": grid.numpy() / STEPS_PER_TOKEN,
            "cos": values[:, 0],
            "sin": values[:, 1],
            "envelope": values[:, 2],
            "token": np.arange(len(grid)) % STEPS_PER_TOKEN == 0,
        }
    )


def period(omega: float) -> float:
    """The wavelength 2π/ω in tokens."""
    return 2 * math.pi / omega


def half_height(sigma: float) -> float:
    """The position, in tokens, at which the envelope exp(−b²/2σ²) has fallen to a half."""
    return sigma * math.sqrt(2 * math.log(2))
