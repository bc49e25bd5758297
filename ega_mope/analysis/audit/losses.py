"""The same predictions with the true future in view, with another window's, and with none.

All losses are nats per token, in evaluation, at the same sampled positions of the same windows.
Teacher-forced: the whole true window is fed, as in training and validation. Exchanged future: tokens
after t come from other windows, the mean over several draws; length and statistics stay what the model
knows. Prefix-only: the model is fed tokens up to t alone, as in writing; for a model that looks ahead
this mixes the missing future with lengths it may never have met. For a causal model all three agree.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ega_mope.analysis.audit.subject import CallError, Mode, Subject
from ega_mope.training import token_losses

PAIRS = 256
"""Sampled predictions; each from a window of its own where there are enough windows."""

DRAWS = 8
POSITIONS = 32
"""Different positions among them: prefix-only needs one forward pass for each length."""

_MOST_LOGITS = 2**25


@dataclass(frozen=True)
class Sample:
    """Which predictions are compared: rows of `inputs`, position in the window, and the token that follows."""

    inputs: Tensor
    targets: Tensor
    window: np.ndarray
    position: np.ndarray

    @property
    def id(self) -> str:
        """Equal for two audits that asked for the same predictions of the same text."""
        digest = hashlib.sha256()
        for part in (self.inputs[self.window], self.targets, torch.as_tensor(self.position)):
            digest.update(part.long().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Losses:
    """Loss of each sampled prediction in nats by curve; a curve that could not be computed is not there, and
    `problems` says why."""

    curves: dict[str, np.ndarray]
    problems: dict[str, str]


def draw_sample(
    inputs: Int[Tensor, "window time"], targets: Int[Tensor, "window predicted"], pairs: int = PAIRS
) -> Sample:
    """Positions one from each of 32 equal parts, the same for all runs; windows spread evenly over the text."""
    rng = np.random.default_rng(0)
    predicted = targets.shape[1]
    edges = np.linspace(0, predicted, min(POSITIONS, predicted, pairs) + 1).astype(int)
    distinct = [int(rng.integers(a, b)) for a, b in itertools.pairwise(edges)]
    position = np.resize(distinct, pairs)
    window = np.linspace(0, len(inputs) - 1, pairs).round().astype(int)
    window = rng.permutation(window)
    pair = np.unique(np.stack([position, window]), axis=1)
    position, window = pair[0], pair[1]
    return Sample(inputs, targets[window, position], window, position)


def measure_losses(
    subject: Subject, mode: Mode, sample: Sample, draws: int, progress: Callable[[float], object]
) -> Losses:
    """The three losses of every sampled prediction."""
    total = len(sample.position) * (draws + 2)
    done = 0

    def tick(rows: int) -> None:
        nonlocal done
        done += rows
        progress(min(1.0, done / total))

    curves: dict[str, np.ndarray] = {}
    problems: dict[str, str] = {}
    whole = sample.inputs[sample.window]
    curves["teacher_forced"] = _losses_at(subject, mode, whole, sample, tick)
    if len(sample.inputs) > 1:
        futures = _exchanged(sample, draws)
        per_draw = [_losses_at(subject, mode, ids, sample, tick) for ids in futures]
        curves["exchanged_future"] = np.mean(per_draw, axis=0)
    else:
        problems["exchanged_future"] = "there is one window only, and the future comes from another"
    try:
        curves["prefix_only"] = _prefix_losses(subject, mode, sample, tick)
    except CallError as error:
        problems["prefix_only"] = f"the model cannot read a shortened window ({error})"
    for name in [name for name, values in curves.items() if not np.isfinite(values).all()]:
        del curves[name]
        problems[name] = "some of its losses are infinite or not a number"
    return Losses(curves, problems)


def _exchanged(sample: Sample, draws: int) -> list[Tensor]:
    """For each draw the sampled windows, tokens after t taken from another window drawn uniformly."""
    generator = torch.Generator().manual_seed(2)
    count = len(sample.inputs)
    own = torch.as_tensor(sample.window)
    position = torch.as_tensor(sample.position)
    later = torch.arange(sample.inputs.shape[1]) > position[:, None]
    futures = []
    for _ in range(draws):
        donor = (own + torch.randint(1, count, own.shape, generator=generator)) % count
        futures.append(torch.where(later, sample.inputs[donor], sample.inputs[own]))
    return futures


def _losses_at(
    subject: Subject,
    mode: Mode,
    ids: Int[Tensor, "pair time"],
    sample: Sample,
    tick: Callable[[int], None],
) -> Float[np.ndarray, " pair"]:
    """Loss of each row's sampled prediction."""
    position = torch.as_tensor(sample.position)
    losses, start, rows = [], 0, 8
    while start < len(ids):
        part = slice(start, start + rows)
        logits = subject.logits(ids[part], mode)
        at = logits[torch.arange(len(logits)), position[part]]
        losses.append(token_losses(at[:, None], sample.targets[part, None].to(at.device))[:, 0].cpu())
        tick(len(logits))
        start += rows
        rows = max(1, min(64, _MOST_LOGITS // logits[0].numel()))
    return torch.cat(losses).double().numpy()


def _prefix_losses(
    subject: Subject, mode: Mode, sample: Sample, tick: Callable[[int], None]
) -> Float[np.ndarray, " pair"]:
    """Loss of each sampled prediction from the tokens up to it alone, equal lengths together."""
    losses = np.empty(len(sample.position))
    for position in np.unique(sample.position):
        rows = np.flatnonzero(sample.position == position)
        ids = sample.inputs[sample.window[rows], : position + 1]
        last = subject.logits(ids, mode)[:, -1:]
        losses[rows] = token_losses(last, sample.targets[rows, None].to(last.device))[:, 0].cpu()
        tick(len(rows))
    return losses


def mean_and_error(
    values: Float[np.ndarray, " pair"], window: Int[np.ndarray, " pair"]
) -> tuple[float, float | None]:
    """Mean and its standard error, predictions of one window taken together; no error for a single window.

    SE² = W/(W − 1) · Σ_w (Σ_{i in w} (x_i − mean))² / n², the cluster-robust error of a mean.
    """
    mean = float(values.mean())
    _, group = np.unique(window, return_inverse=True)
    count = int(group.max()) + 1
    if count < 2:
        return mean, None
    sums = np.bincount(group, weights=values - mean)
    return mean, float(np.sqrt(count / (count - 1) * np.square(sums).sum()) / len(values))
