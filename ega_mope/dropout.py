"""Dropout (Srivastava et al. 2014) whose masks are cheap to draw on the CPU.

torch draws a float for every element there, which costs more than a layer's matrix products. Here every
element takes sixteen raw random bits, from the same global random stream.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_LEVELS = 2**16


def keep_factors(shape: torch.Size, rate: float, dtype: torch.dtype) -> Tensor:
    """Independent factors on the CPU: 0 with probability `rate`, 1/(1 − rate) otherwise, so that the mean is 1.

    `rate` is met to the nearest 1/65,536, and the factor is that of the rate as met. Draws from torch's
    global random stream.
    """
    dropped = round(rate * _LEVELS)
    words = torch.empty(-(-math.prod(shape) // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: math.prod(shape)].view(shape)
    kept = _LEVELS / max(1, _LEVELS - dropped)
    return torch.where(bits >= dropped - _LEVELS // 2, kept, 0.0).to(dtype)


def dropout(x: Tensor, rate: float) -> Tensor:
    """x with each element dropped with probability `rate` and the others scaled by 1/(1 − rate); x at rate 0."""
    if not rate:
        return x
    if x.device.type != "cpu":
        return nn.functional.dropout(x, rate)
    return x * keep_factors(x.shape, rate, x.dtype)


class Dropout(nn.Module):
    """`dropout` in training mode, the identity in evaluation."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate if self.training else 0.0)
