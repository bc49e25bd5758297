"""What can be taken out of a trained model, one part at a time: gates opened, Morlet pairs removed or reset."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ega_mope.analysis.scales import BANDS, Scales
from ega_mope.attention.ega import EnergyGatedAttention
from ega_mope.model import CharLM
from ega_mope.positions import Position
from ega_mope.positions.mope import MorletPosition

BANDS_BY = ("sigma", "omega")
"""How pairs are put into bands: by σ in the paper's bands, or by ω in octaves of the period 2π/ω."""

Pairs = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One part of a model out of work while `made(model)` is entered; the model is as before when it is left.

    `kind` is one of those in FAMILIES, `part` names which, `count` says how many gates or pairs are changed. Blocks
    before `first_layer` (from 0) compute what they always did.
    """

    kind: str
    part: str
    count: int
    first_layer: int
    made: Callable[[CharLM], AbstractContextManager[None]]


GATE, LAYER, GATES = "gate opened", "layer's gates opened", "all gates opened"
REMOVED, RESET, RANDOM = "pairs removed", "pairs at their start", "random pairs removed"
ALL_LAYERS, ALL_PAIRS = "all layers", "all pairs"
FAMILIES = {"gates": (GATE, LAYER, GATES), "pairs": (REMOVED, RESET, RANDOM)}
"""What is done, in two families. Opened: g = 1 for every key, so that the head is plain attention. Removed: the
pair adds 0 to the embeddings. At their start: ω and σ as they were before training. Random: as many pairs,
drawn once, as the band of that name has; the control of its removal."""


WIDE_OPEN = -1e6
"""A threshold that no z comes near: the gate is 1 to the last digit, and every number on the way is finite."""


@contextmanager
def gates_opened(model: CharLM, heads: Sequence[tuple[int, int]]) -> Iterator[None]:
    """g = sigmoid(1·(z + 10⁶)) = 1 in these heads (layer, head from 0), whatever the token."""
    layers = {layer: [head for at, head in heads if at == layer] for layer, _ in heads}
    gated = [(_gated(model, layer), which) for layer, which in layers.items()]
    before = [(one.threshold.clone(), one.sharpness.clone()) for one, _ in gated]
    with torch.no_grad():
        for one, which in gated:
            one.threshold[which] = WIDE_OPEN
            one.sharpness[which] = 1.0
    try:
        yield
    finally:
        with torch.no_grad():
            for (one, _), (threshold, sharpness) in zip(gated, before, strict=True):
                one.threshold.copy_(threshold)
                one.sharpness.copy_(sharpness)


@contextmanager
def position_replaced(model: CharLM, position: Position) -> Iterator[None]:
    """The model with another position encoding in the place of its own."""
    before = model.position
    model.position = position
    try:
        yield
    finally:
        model.position = before


class WithoutPairs(Position):
    """A Morlet encoding with some pairs' channels 0 at every position."""

    def __init__(self, whole: MorletPosition, pairs: Pairs) -> None:
        super().__init__(whole.model, whole.settings)
        self.whole = whole
        keep = torch.ones(whole.model.d_model, device=whole.log_sigma.device)
        keep.view(-1, 2)[list(pairs)] = 0.0
        self.register_buffer("keep", keep, persistent=False)
        self.keep: Tensor

    @classmethod
    def acts_on(cls, settings: Any) -> frozenset[Any]:
        return frozenset({"input"})

    def encode(self, positions: Int[Tensor, " time"]) -> Float[Tensor, "time d_model"]:
        return self.whole.encode(positions) * self.keep


def at_their_start(whole: MorletPosition, pairs: Pairs, found: Scales) -> MorletPosition:
    """A copy of the encoding with these pairs' ω and σ as recorded at step 0."""
    changed = copy.deepcopy(whole)
    with torch.no_grad():
        for pair in pairs:
            omega, sigma = found.pairs[pair].omega_start, found.pairs[pair].sigma_start
            assert omega is not None and sigma is not None, "the caller asks whether the start is recorded"
            changed.log_omega[pair] = math.log(omega)
            changed.log_sigma[pair] = math.log(sigma)
    return changed


def has_gates(model: CharLM) -> bool:
    """Whether every block's attention has energy gates."""
    return all(isinstance(attention, EnergyGatedAttention) for attention in model.attentions)


def has_pairs(model: CharLM) -> bool:
    """Whether the positions are Morlet pairs added to the embeddings."""
    return isinstance(model.position, MorletPosition)


def gate_changes(model: CharLM) -> list[Change]:
    """Each head's gate, each layer's gates, all gates; layers and heads count from 1 in names."""
    layers, heads = model.config.n_layers, model.config.n_heads
    parts = [
        (GATE, f"L{layer + 1} H{head + 1}", [(layer, head)])
        for layer in range(layers)
        for head in range(heads)
    ]
    parts += [(LAYER, f"layer {n + 1}", [(n, head) for head in range(heads)]) for n in range(layers)]
    parts.append((GATES, ALL_LAYERS, list(np.ndindex(layers, heads))))
    return [
        Change(
            kind=kind,
            part=part,
            count=len(which),
            first_layer=which[0][0],
            made=partial(gates_opened, heads=which),
        )
        for kind, part, which in parts
    ]


def pair_changes(model: CharLM, found: Scales, by: str) -> list[Change]:
    """Every band of pairs removed, reset to its start where that is recorded, and its random control.

    `by` is one of BANDS_BY; the last band holds all pairs. Raises ValueError for another `by`.
    """
    whole = model.position
    assert isinstance(whole, MorletPosition), "the caller asks has_pairs"
    started = all(pair.sigma_start is not None for pair in found.pairs)
    every = tuple(range(len(found.pairs)))
    rng = np.random.default_rng(0)
    changes = []

    def add(kind: str, part: str, pairs: Pairs, position: Position) -> None:
        made = partial(position_replaced, position=position)
        changes.append(Change(kind=kind, part=part, count=len(pairs), first_layer=0, made=made))

    bands = bands_of(found, by)
    for part, pairs in [*bands, (ALL_PAIRS, every)] if len(bands) > 1 else [(ALL_PAIRS, every)]:
        add(REMOVED, part, pairs, WithoutPairs(whole, pairs))
        if started:
            add(RESET, part, pairs, at_their_start(whole, pairs, found))
        if pairs != every:
            drawn = tuple(sorted(rng.choice(len(every), len(pairs), replace=False).tolist()))
            add(RANDOM, part, drawn, WithoutPairs(whole, drawn))
    return changes


def bands_of(found: Scales, by: str) -> list[tuple[str, Pairs]]:
    """Names and pairs of the bands that hold any; both kinds of band were chosen beforehand, not found in data."""
    if by not in BANDS_BY:
        raise ValueError(f"bands: expected one of ({', '.join(BANDS_BY)}), got {by!r}; choose one of them")
    if by == "sigma":
        limits = [(_sigma_name(*band), band[1], band[2]) for band in BANDS]
        values = found.sigma
    else:
        values = 2 * math.pi / found.omega
        octaves = range(math.floor(math.log2(values.min())), math.floor(math.log2(values.max())) + 1)
        limits = [(f"period {2.0**n:g}–{2.0 ** (n + 1):g}", 2.0**n, 2.0 ** (n + 1)) for n in octaves]
    members = [(name, np.flatnonzero((values >= low) & (values < high))) for name, low, high in limits]
    return [(name, tuple(pairs.tolist())) for name, pairs in members if len(pairs)]


def _sigma_name(name: str, low: float, high: float) -> str:
    if high == math.inf:
        return f"{name}, σ ≥ {low:g}"
    return f"{name}, σ {low:g}–{high:g}" if low else f"{name}, σ < {high:g}"


def _gated(model: CharLM, layer: int) -> EnergyGatedAttention:
    attention = model.attentions[layer]
    assert isinstance(attention, EnergyGatedAttention), "the caller asks has_gates"
    return attention
