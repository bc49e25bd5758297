"""A gate for each key in softmax attention: what it does to the weights, and how to compute it fast."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from ega_mope.attention.base import ScoreBias, fused_attention
from ega_mope.attention.key_bias import adds_key_bias_exactly, key_biased_attention
from ega_mope.dropout import dropout as drop

SMALLEST_DIVISOR = 1e-8
"""The paper's clamp: dropout can remove every key of an early query."""


def gated_weights(
    weights: Float[Tensor, "batch head query key"],
    gate: Float[Tensor, "batch head key"] | Float[Tensor, "batch head query key"],
) -> Float[Tensor, "batch head query key"]:
    """A_ij g_j, or A_ij g_ij where the gate depends on the query: shares before any renormalisation."""
    return weights * (gate if gate.ndim == weights.ndim else gate[..., None, :])


def gated_shares(
    weights: Float[Tensor, "batch head query key"],
    gate: Float[Tensor, "batch head key"] | Float[Tensor, "batch head query key"],
) -> Float[Tensor, "batch head query key"]:
    """A_ij g_j / Σ_k A_ik g_k: what each key's share becomes by gating and renormalising."""
    gated = gated_weights(weights, gate)
    return gated / gated.sum(dim=-1, keepdim=True).clamp(min=SMALLEST_DIVISOR)


def pair_gated_attention(
    weights: Float[Tensor, "batch head query key"],
    gate: Float[Tensor, "batch head query key"],
    v: Float[Tensor, "batch head key d_head"],
    *,
    renormalise: bool,
    dropout: float,
) -> Float[Tensor, "batch head query d_head"]:
    """y_i = Σ_j A_ij g_ij v_j, divided by Σ_j A_ij g_ij where `renormalise`: a gate for each pair.

    On the whole matrix, in the paper's order: dropout on A, gate, renormalise. A log-gate added to
    the scores would drop weights after renormalising, and lose digits in half precision.
    """
    gated = gated_weights(drop(weights, dropout), gate)
    y = gated.to(v.dtype) @ v
    return y / gated.sum(dim=-1, keepdim=True).clamp(min=SMALLEST_DIVISOR).to(y.dtype) if renormalise else y


def gated_attention(
    q: Float[Tensor, "batch head time d_head"],
    k: Float[Tensor, "batch head time d_head"],
    v: Float[Tensor, "batch head time channels"],
    gate_logit: Float[Tensor, "batch head time"],
    bias: ScoreBias | None,
    dropout: float,
) -> Float[Tensor, "batch head time channels"]:
    """y_i = Σ_j A_ij g_j v_j / Σ_j A_ij g_j with g = sigmoid(gate_logit).

    Without dropout on A that is softmax attention with log g_j added to the scores, which in full precision
    goes the fast way. Else it attends with the values [g·v, g] and divides by the last channel: the paper's
    order, dropout on A, gate, renormalise; and half precision would lose digits of a log-gate.
    """
    if adds_key_bias_exactly(q, bias, dropout):
        return key_biased_attention(q, k, v, logsigmoid(gate_logit), bias, dropout)
    gate = gate_logit.sigmoid().to(v.dtype)[..., None]
    values = torch.cat([gate * v, gate], dim=-1)
    y = fused_attention(q, k, values, bias, d_head=q.shape[-1], dropout=dropout)
    return y[..., :-1] / y[..., -1:].clamp(min=SMALLEST_DIVISOR)
