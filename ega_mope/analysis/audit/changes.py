"""What is changed in a window to see whether earlier predictions notice: later tokens, and nothing else."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

WINDOWS = 5
"""Windows that are perturbed together; a prime, so that no other axis of a model has this size by chance."""

CUTS = 6
SINGLES = 8


@dataclass(frozen=True)
class Change:
    """The windows with tokens changed at `first` and possibly later: predictions before it must not move."""

    kind: str
    first: int
    ids: Tensor


def movement(a: Float[Tensor, "*shape v"], b: Float[Tensor, "*shape v"]) -> Float[Tensor, "*shape"]:
    """Largest |a − b| over the last axis; infinite where only one of the two is finite, 0 where both are nan."""
    same = a.eq(b) | (a.isnan() & b.isnan())
    return (a - b).abs().masked_fill(same, 0.0).nan_to_num(nan=torch.inf, posinf=torch.inf).amax(dim=-1)


def audit_windows(ids: Int[Tensor, "window time"], generator: torch.Generator) -> Int[Tensor, "audited time"]:
    """The windows to perturb: spread evenly over those given, filled up with random tokens where they are few."""
    count = WINDOWS if ids.shape[1] != WINDOWS else WINDOWS + 2
    spread = torch.linspace(0, len(ids) - 1, min(count, len(ids))).long()
    chosen = ids[spread]
    if len(chosen) == count:
        return chosen
    missing = chosen[:1].expand(count - len(chosen), -1)
    return torch.cat([chosen, other_tokens(missing, ids.unique(), generator)])


def other_tokens(
    ids: Int[Tensor, "*shape"], known: Int[Tensor, " n"], generator: torch.Generator
) -> Int[Tensor, "*shape"]:
    """Every token replaced by another one of `known` (sorted), uniformly: each of them really changes."""
    shift = torch.randint(1, len(known), ids.shape, generator=generator)
    return known[(torch.searchsorted(known, ids.contiguous()) + shift) % len(known)]


def stratified(low: int, high: int, count: int, generator: torch.Generator) -> list[int]:
    """`count` whole numbers from `low` to `high` inclusive, one from each equal part: no fixed stride, since
    a stride that divides a block's length would only ever look at the block's borders."""
    count = min(count, high - low + 1)
    edges = torch.linspace(low, high + 1, count + 1)
    return [
        int(torch.randint(int(a), max(int(a) + 1, int(b)), (1,), generator=generator))
        for a, b in itertools.pairwise(edges)
    ]


def later_changed(
    ids: Int[Tensor, "window time"], known: Int[Tensor, " n"], generator: torch.Generator
) -> list[Change]:
    """All later tokens replaced, at several cuts: by random ones, by a repeated one, shuffled, and by those
    of another window; then one token at a time, the last one among them."""
    time = ids.shape[1]
    changes: list[Change] = []
    for first in stratified(1, time - 1, CUTS, generator):
        earlier, later = ids[:, :first], ids[:, first:]
        order = torch.randperm(time - first, generator=generator)
        futures = {
            "random": other_tokens(later, known, generator),
            "repeated": earlier[:, -1:].expand_as(later),
            "shuffled": later[:, order],
            "exchanged": later.roll(1, dims=0),
        }
        changes += [
            Change(kind, first, torch.cat([earlier, future], dim=1)) for kind, future in futures.items()
        ]
    for position in sorted({*stratified(1, time - 1, SINGLES, generator), time - 1}):
        one = ids.clone()
        one[:, position] = other_tokens(ids[:, position], known, generator)
        changes.append(Change("one token", position, one))
    return changes


def others_changed(
    ids: Int[Tensor, "window time"], known: Int[Tensor, " n"], generator: torch.Generator
) -> list[tuple[int, Tensor]]:
    """Every window but one replaced: the kept row, and the ids. Its predictions must not move."""
    changed = []
    for row in (0, len(ids) - 1):
        replaced = other_tokens(ids, known, generator)
        replaced[row] = ids[row]
        changed.append((row, replaced))
    return changed


def distance_bins(time: int) -> list[tuple[int, int]]:
    """Distances 1, 2, 3–4, 5–8, … up to time − 1, both ends inclusive."""
    bins, low, high = [], 1, 1
    while low < time:
        bins.append((low, min(high, time - 1)))
        low, high = high + 1, high * 2
    return bins


def position_bins(count: int, bins: int = 8) -> list[tuple[int, int]]:
    """Positions 0 to count − 1 in eighths (fewer where there are fewer positions), both ends inclusive."""
    edges = torch.linspace(0, count, min(bins, count) + 1).round().long().tolist()
    return [(a, b - 1) for a, b in itertools.pairwise(edges)]


def before(first: int, time: int) -> Bool[Tensor, " time"]:
    """True at the positions before `first`."""
    return torch.arange(time) < first
