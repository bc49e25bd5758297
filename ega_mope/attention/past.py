"""What a layer keeps of the tokens it has read, so that the next one can be read alone."""

from __future__ import annotations

import torch
from torch import Tensor


class Past:
    """One layer's key-value cache: named tensors that grow by one token at a time."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def extend(self, name: str, latest: Tensor) -> Tensor:
        """Add the latest token's tensor [..., 1, channels]; returns all so far, [..., time, channels]."""
        kept = self._kept.get(name)
        self._kept[name] = latest if kept is None else torch.cat([kept, latest], dim=-2)
        return self._kept[name]
