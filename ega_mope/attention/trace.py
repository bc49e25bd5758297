"""What a model hands out about its inner state, when asked."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

KINDS = ("residual", "query", "key", "energy", "z", "gate", "weight", "share", "output")
"""What can be asked for:

residual  the stream entering each block, and last what the final LayerNorm reads
          [batch, layer + 1, time, d_model]
query     q and k as they are scored, after any        [batch, layer, head, time, d_head]
key       rotation by the position
energy    the gate's signal                            [batch, layer, head, time]
z         the same after the gate norm, in standard deviations
gate      sigmoid(sharpness · (z − threshold)), 0 to 1 [batch, layer, head, time]
          (gate norm `visible`: z and gate are [batch, layer, head, query, key], a token's own is g_jj)
weight    softmax attention weights A, before any gate [batch, layer, head, query, key]
share     weights as used, after the gate              [batch, layer, head, query, key]
output    each head's output                           [batch, layer, head, time, d_head]
"""


class Trace:
    """Collects the asked-for activations, one entry a layer; `trace["gate"]` stacks them on axis 1."""

    def __init__(self, want: Iterable[str]) -> None:
        self.want = frozenset(want)
        unknown = sorted(self.want - set(KINDS))
        if unknown:
            raise ValueError(
                f"trace: expected kinds among ({', '.join(KINDS)}), got {unknown[0]!r}; rename it"
            )
        self._layers: dict[str, list[Tensor]] = {}

    def add(self, kind: str, value: Tensor) -> None:
        """Keep one layer's `value`, if that kind was asked for."""
        if kind in self.want:
            self._layers.setdefault(kind, []).append(value)

    def __contains__(self, kind: str) -> bool:
        return kind in self._layers

    def __getitem__(self, kind: str) -> Tensor:
        if kind not in self._layers:
            raise KeyError(
                f"trace: expected one of ({', '.join(self._layers)}), got {kind!r}; this model has none"
            )
        return torch.stack(self._layers[kind], dim=1)
