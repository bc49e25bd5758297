"""A gate for each key in softmax attention: what it does to the weights, and how to compute it fast."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.linalg import vecdot
from torch.nn.functional import logsigmoid

from ega_mope.attention.base import FEW_QUERIES, ScoreBias, fused_attention
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
    whole = q.dtype in (torch.float32, torch.float64)
    if q.device.type == "cpu" and whole and bias is None and not dropout:
        return _KeyBiasedAttention.apply(q, k, v, logsigmoid(gate_logit).to(q.dtype))
    gate = gate_logit.sigmoid().to(v.dtype)[..., None]
    values = torch.cat([gate * v, gate], dim=-1)
    y = fused_attention(q, k, values, bias, d_head=q.shape[-1], dropout=dropout)
    return y[..., :-1] / y[..., -1:].clamp(min=SMALLEST_DIVISOR)


class _KeyBiasedAttention(torch.autograd.Function):
    """Σ_j P_ij v_j with P_ij = softmax_j(q_i·k_j/√d_head + b_j), j ≤ i, on the CPU; b: [batch, head, time].

    torch's kernel takes a bias but gives it no gradient. That is Σ_i P_ij (dy_i·v_j − dy_i·y_i): its first
    part is v_j·dv_j, the second is summed here a block of queries at a time, so that nothing beyond what
    plain attention keeps is kept for the way back.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        y, log_total = _flash(
            q, k, v, 0.0, True, attn_mask=_every_query(b), scale=1.0 / math.sqrt(q.shape[-1])
        )
        ctx.save_for_backward(q, k, v, b, y, log_total)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q, k, v, b, y, log_total = ctx.saved_tensors
        scale = 1.0 / math.sqrt(q.shape[-1])
        dq, dk, dv = _flash_backward(
            dy, q, k, v, y, log_total, 0.0, True, attn_mask=_every_query(b), scale=scale
        )
        db = vecdot(v, dv) - _received(q * scale, k, b, log_total, vecdot(dy, y))
        return dq, dk, dv, db


_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def _every_query(b: Tensor) -> Tensor:
    return b[..., None, :].expand(-1, -1, b.shape[-1], -1)


def _received(q: Tensor, k: Tensor, b: Tensor, log_total: Tensor, amount: Tensor) -> Tensor:
    """Σ_{i ≥ j} P_ij amount_i, P_ij = exp(q_i·k_j + b_j − log_total_i): [batch, head, time]."""
    one = torch.ones_like(b)
    # Bias and total ride on two more channels: one matrix product makes all of the exponent.
    q = torch.cat([q, one[..., None], -log_total[..., None]], dim=-1).flatten(0, 1)
    k = torch.cat([k, b[..., None], one[..., None]], dim=-1).flatten(0, 1).transpose(1, 2)
    total = torch.zeros_like(b).flatten(0, 1)
    rows = amount.flatten(0, 1)[:, None]
    for first in range(0, b.shape[-1], FEW_QUERIES):
        end = first + FEW_QUERIES
        shares = (q[:, first:end] @ k[..., :end]).exp_()
        shares[..., first:].tril_()
        total[:, :end] += (rows[..., first:end] @ shares)[:, 0]
    return total.view_as(b)
