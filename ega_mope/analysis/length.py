"""How well a run reads on beyond the length it was trained at: loss by position."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ega_mope.analysis.plain import plain_rows
from ega_mope.analysis.windows import spread_evenly
from ega_mope.config import ModelConfig, Plain
from ega_mope.model import CharLM
from ega_mope.positions import POSITIONS
from ega_mope.runs import Run
from ega_mope.text import split_ids
from ega_mope.training import token_losses, windows

FACTOR = 4.0
MOST_WINDOWS = 64
BINS_PER_CONTEXT = 8
TOKENS_AT_ONCE = 4_096


@dataclass(frozen=True)
class LengthReading:
    """Validation loss of one run by position in windows longer than its training windows.

    `table` has a row a range of positions: `from` and `to` (inclusive, counted from 0), `loss_nats`, the mean
    over its positions and all windows, in nats per token; `standard_error` of that mean over windows, NaN
    with one window; `restarted_nats`, the same tokens' loss when reading starts afresh every
    `context_length` tokens; `excess_nats` and `excess_error`, loss less restarted loss, token by token, above 0
    where reading on is worse than starting afresh; `beyond`, whether the range lies past the training length.
    """

    run: str
    context_length: int
    length: int
    windows: int
    sees_future: bool
    table: pd.DataFrame

    def mean_nats(self, column: str, beyond: bool) -> float | None:
        """Mean loss within or beyond the training length, nats per token; None where there is no position."""
        rows = self.table[self.table["beyond"] == beyond]
        size = rows["to"] - rows["from"] + 1
        return None if rows.empty else float((rows[column] * size).sum() / size.sum())

    def to_json(self) -> Plain:
        """One plain document; a standard error that one window cannot give is null."""
        return {
            "run": self.run,
            "context_length": self.context_length,
            "length": self.length,
            "windows": self.windows,
            "sees_future": self.sees_future,
            "within_nats": self.mean_nats("loss_nats", beyond=False),
            "beyond_nats": self.mean_nats("loss_nats", beyond=True),
            "beyond_restarted_nats": self.mean_nats("restarted_nats", beyond=True),
            "positions": plain_rows(self.table),
        }


def reads_beyond(model: ModelConfig) -> list[str]:
    """The positions that, with their defaults, have no longest text at this size."""
    return [name for name, cls in POSITIONS.items() if cls(model, cls.Settings()).longest() is None]


def cannot_read(run: Run, length: int | None = None) -> str | None:
    """Why `run` cannot read windows of `length` tokens (any longer than its own unless given), or None."""
    config = run.config.model
    wanted = config.context_length + 1 if length is None else length
    cls = POSITIONS[config.position["name"]]
    settings = cls.Settings(**{key: value for key, value in config.position.items() if key != "name"})
    longest = cls(config, settings).longest()
    if longest is None or wanted <= longest:
        return None
    return (
        f"{run.name}: expected positions that reach {wanted:,} tokens, got {config.position['name']}, which "
        f"knows {longest:,}; choose a run with one of ({', '.join(reads_beyond(config))})"
    )


def loss_by_position(
    run: Run,
    *,
    factor: int | float = FACTOR,
    most_windows: int = MOST_WINDOWS,
    device: str = "auto",
    model: CharLM | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> LengthReading:
    """Read the run's validation text in windows of `factor` × its training length.

    At most `most_windows` windows, spread evenly over the split, none overlapping. `model` spares loading the
    run's weights; `progress` is called with the tokens read and those in all. Raises ValueError where the
    run's positions do not reach that far, where factor < 1, or where the text holds no such window.
    """
    context = run.config.model.context_length
    length = round(factor * context)
    if length < context:
        raise ValueError(f"factor: expected at least 1, got {factor:g}; choose 2 or 4")
    reason = cannot_read(run, length)
    if reason:
        raise ValueError(reason)
    _, ids = split_ids(run.tokenizer.encode(run.corpus().text), context)
    if len(ids) <= length:
        raise ValueError(
            f"{run.name}: expected a validation text of at least {length + 1:,} tokens, got {len(ids):,}; "
            f"choose a factor of at most {(len(ids) - 1) / context:.2g}"
        )
    model = model or run.model(device)
    every = windows(torch.as_tensor(ids), length)
    chosen = every[spread_evenly(len(every), most_windows)]
    tokens = len(chosen) * length  # each is read twice: reading on, and starting afresh
    on = window_losses(model, chosen, length, lambda done: progress(done, 2 * tokens))
    afresh = window_losses(model, chosen, context, lambda done: progress(tokens + done, 2 * tokens))
    table = bin_losses(on, afresh, context)
    return LengthReading(run.name, context, length, len(chosen), bool(run.sees_future), table)


@torch.inference_mode()
def window_losses(
    model: CharLM,
    chosen: Int[Tensor, "window length_plus_one"],
    restart: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Float[np.ndarray, "window length"]:
    """Each token's loss in nats, reading afresh after every `restart` tokens of a window.

    `progress` is called with the tokens read so far.
    """
    device = next(model.parameters()).device
    rows = max(1, TOKENS_AT_ONCE // restart)
    parts, done = [], 0
    for start in range(0, chosen.shape[1] - 1, restart):
        piece = chosen[:, start : start + restart + 1].to(device)
        losses = []
        for batch in piece.split(rows):
            losses.append(token_losses(model(batch[:, :-1]), batch[:, 1:]))
            done += losses[-1].numel()
            progress(done)
        parts.append(torch.cat(losses))
    return torch.cat(parts, dim=1).double().cpu().numpy()


def bin_losses(
    losses: Float[np.ndarray, "window length"], restarted: Float[np.ndarray, "window length"], context: int
) -> pd.DataFrame:
    """The table of a `LengthReading`: eight ranges to a training length, borders at its multiples."""
    length = losses.shape[1]
    wide = [round(context * i / BINS_PER_CONTEXT) for i in range(BINS_PER_CONTEXT * length // context + 1)]
    borders = sorted({*wide, length})
    rows = []
    for start, stop in pairwise(borders):
        means, afresh = losses[:, start:stop].mean(axis=1), restarted[:, start:stop].mean(axis=1)
        rows.append(
            {
                "from": start,
                "to": stop - 1,
                "loss_nats": float(means.mean()),
                "standard_error": _standard_error(means),
                "restarted_nats": float(afresh.mean()),
                "excess_nats": float((means - afresh).mean()),
                "excess_error": _standard_error(means - afresh),
                "beyond": start >= context,
            }
        )
    return pd.DataFrame(rows)


def _standard_error(values: Float[np.ndarray, " window"]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
