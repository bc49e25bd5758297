"""Softmax attention that hears a number a key beside similarity, without a time × time matrix."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.linalg import vecdot
from torch.nn.functional import pad

from ega_mope.attention.base import FEW_QUERIES, ScoreBias, fused_attention


def adds_key_bias_exactly(q: Tensor, bias: ScoreBias | None, dropout: float) -> bool:
    """Whether torch's kernel can add a number a key to the scores: on the CPU, in full precision, with no other
    bias and no weight dropped."""
    whole = q.dtype in (torch.float32, torch.float64)
    return q.device.type == "cpu" and whole and bias is None and not dropout


def key_biased_attention(
    q: Float[Tensor, "batch head time d_head"],
    k: Float[Tensor, "batch head time d_head"],
    v: Float[Tensor, "batch head time channels"],
    key_bias: Float[Tensor, "batch head time"],
    bias: ScoreBias | None,
    dropout: float,
) -> Float[Tensor, "batch head time channels"]:
    """Attention with scores q_i·k_j/√d_head + key_bias_j, in nats, without a time × time matrix.

    Where torch's kernel does not take it (`adds_key_bias_exactly`), the bias rides on three more channels, 1 in
    q and √d_head·key_bias in k: in half precision the second and third carry what the one before rounded off.
    """
    if adds_key_bias_exactly(q, bias, dropout):
        return _KeyBiasedAttention.apply(q, k, v, key_bias.to(q.dtype))
    d_head = q.shape[-1]
    rest, parts = key_bias * d_head**0.5, []
    for _ in range(3):
        parts.append(rest.to(k.dtype))
        rest = rest - parts[-1].to(rest.dtype)
    q = pad(q, (0, len(parts)), value=1.0)
    k = torch.cat([k, torch.stack(parts, dim=-1)], dim=-1)
    return fused_attention(q, k, v, bias, d_head=d_head, dropout=dropout)


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
