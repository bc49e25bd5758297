"""Plain dot-product attention (Vaswani et al. 2017): the baseline."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ega_mope.attention.base import (
    Attention,
    ScoreBias,
    fused_attention,
    latest_weights,
    softmax_weights,
)
from ega_mope.attention.past import Past
from ega_mope.attention.trace import Trace


class DotAttention(Attention):
    """y_i = Σ_j A_ij v_j, A_ij = softmax_j(q_i·k_j/√d_head), j ≤ i."""

    @classmethod
    def caches(cls, settings: Any) -> bool:
        return True

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: ScoreBias | None, x: Tensor, stream: Tensor, trace: Trace
    ) -> Tensor:
        if trace.want & {"weight", "share"}:
            weights = softmax_weights(q, k, bias)
            trace.add("weight", weights)
            trace.add("share", weights)
        return fused_attention(q, k, v, bias, d_head=self.model.d_head, dropout=self.weight_dropout)

    def attend_next(
        self, q: Tensor, keys: Tensor, v: Tensor, bias: Tensor | None, x: Tensor, stream: Tensor, past: Past
    ) -> Tensor:
        return latest_weights(q, keys, bias).to(v.dtype) @ past.extend("value", v)
