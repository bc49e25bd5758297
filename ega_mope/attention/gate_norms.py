"""How a gate's energies are put on a common scale before the threshold; this decides causality.

The paper normalises over the whole sequence, so that the gate of a token, and every logit, depends
on later tokens. The other norms are the lab's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ega_mope.config import setting
from ega_mope.positions.base import Memory

Energy = Float[Tensor, "batch head time"]
PairEnergy = Float[Tensor, "batch head query key"]


def smallest_spread(energy: Tensor) -> float:
    """The standard deviation, relative to the largest |energy|, at or below which z is 0: rounding alone."""
    return 1e-12 if energy.dtype == torch.float64 else 1e-5


def _scaled(deviation: Tensor, variance: Tensor, largest: Tensor, relative: float) -> Tensor:
    # A variance below the smallest normal number has lost its digits, and the square of its root's reciprocal is inf.
    rounding = (relative * largest).square().clamp(min=torch.finfo(variance.dtype).tiny)
    # Replaced before the root: √ has an infinite slope at 0, and 0 · inf is nan backwards. An infinite spread makes z 0.
    spread = torch.where(variance <= rounding, math.inf, variance).sqrt()
    # Not by rsqrt, whose slope, 1/spread³, overflows float32 where the spread is 1e-13: energies as small as that
    # are met where a signal is the square of something that passes through 0.
    return deviation * spread.reciprocal()


def sequence_norm(energy: Energy) -> Energy:
    """z_j = (e_j − mean e)/std e over all tokens of the window (population std): the paper's."""
    mean = energy.mean(dim=-1, keepdim=True)
    deviation = energy - mean
    variance = deviation.square().mean(dim=-1, keepdim=True)
    largest = energy.detach().abs().amax(dim=-1, keepdim=True)
    return _scaled(deviation, variance, largest, smallest_spread(energy))


def running_statistics(energy: Energy) -> tuple[Energy, Energy, Energy, Energy]:
    """Energies counted from the first one, and their running mean, variance and largest |energy|.

    Variances are sums of squares (Welford 1962), never E[e²] − E[e]². Counting from the first energy,
    which every token may know, a common offset costs no digits.
    """
    shifted = energy - energy[..., :1].detach()
    count = torch.arange(1, energy.shape[-1] + 1, device=energy.device, dtype=energy.dtype)
    mean = shifted.cumsum(dim=-1) / count
    before = torch.cat([torch.zeros_like(mean[..., :1]), mean[..., :-1]], dim=-1)
    steps = (shifted - before).square() * ((count - 1) / count)
    variance = steps.cumsum(dim=-1) / count
    return shifted, mean, variance, energy.detach().abs().cummax(dim=-1).values


def causal_norm(energy: Energy) -> Energy:
    """z_j = (e_j − mean_{k ≤ j} e_k)/std_{k ≤ j} e_k: running statistics of the tokens so far.

    So z_0 = 0, z_1 is ±1 (or 0), |z_j| ≤ √j.
    """
    shifted, mean, variance, largest = running_statistics(energy)
    return _scaled(shifted - mean, variance, largest, smallest_spread(energy))


def visible_norm(energy: Energy) -> PairEnergy:
    """z_ij = (e_j − mean_{k ≤ i} e_k)/std_{k ≤ i} e_k for j ≤ i, 0 elsewhere: statistics of the keys that
    query i may attend to.

    The last query's row is `sequence`, the diagonal z_jj is `causal`.
    """
    shifted, mean, variance, largest = running_statistics(energy)
    deviation = (shifted[..., None, :] - mean[..., :, None]).tril()
    return _scaled(deviation, variance[..., None], largest[..., None], smallest_spread(energy))


def no_norm(energy: Energy) -> Energy:
    """z = e: the raw projection; sharpness and threshold absorb its scale. The control."""
    return energy


@dataclass(frozen=True)
class GateNorm:
    """A gate norm and what it costs: the truth of both flags is held by tests."""

    z: Callable[[Tensor], Tensor]
    causal: bool
    compares_with: Literal["past", "window", "nothing"]
    """The tokens whose energies a token's own is measured against: those up to it, all of its window, none."""
    memory: Memory = "linear"
    per_query: bool = False
    """Whether z, and with it the gate, is [batch, head, query, key] and not [batch, head, time]."""


def wide(energy: Tensor) -> Tensor:
    """Energies in float32 or better, whatever the model's precision: statistics need the digits."""
    return energy.to(torch.promote_types(energy.dtype, torch.float32))


def gate_norm_setting(help: str) -> Any:
    """A settings field that holds the name of a gate norm: `causal` unless asked, since the paper's `sequence`
    looks at the future."""
    return setting("causal", help, choices=lambda: list(GATE_NORMS))


GATE_NORMS: dict[str, GateNorm] = {
    "causal": GateNorm(causal_norm, causal=True, compares_with="past"),
    "visible": GateNorm(visible_norm, causal=True, compares_with="past", memory="quadratic", per_query=True),
    "sequence": GateNorm(sequence_norm, causal=False, compares_with="window"),
    "none": GateNorm(no_norm, causal=True, compares_with="nothing"),
}
