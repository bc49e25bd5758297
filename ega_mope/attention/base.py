"""What every attention offers, and the two ways of computing softmax attention that they share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from ega_mope.attention.past import Past
from ega_mope.attention.trace import Trace
from ega_mope.config import ModelConfig
from ega_mope.dropout import dropout as drop
from ega_mope.positions.base import ActsOn, GeneratorFor, Memory, NoSettings, Position, Prior

ScoreBias = Callable[[slice], Tensor]
"""Gives what is added to the scores of a range of queries, [batch, head, query, key] or [head, query, key]:
made in pieces, since a whole one is time × time."""

QUERY_BLOCK = 512
"""Queries at a time where a bias is added and no gradient is wanted: long texts need no time × time matrix."""

FEW_QUERIES = 64
"""Queries at a time where weights are made here and not by torch's kernels: what lies in the future of all of
them is never computed, and what is computed stays in the cache."""


class Attention(nn.Module):
    """Multi-head attention: packed q, k, v without biases, an output projection with one.

    A subclass implements `attend`. x is the block's input after its LayerNorm, `stream` before it.
    """

    Settings: ClassVar[type] = NoSettings
    honours: ClassVar[frozenset[ActsOn]] = frozenset({"input", "query_key", "scores"})
    """Which kinds of position encoding this attention makes use of."""
    prior: ClassVar[Prior | None] = None
    """What can be taken from another run; a mechanism that has one has the setting `from_run`."""

    def __init__(self, model: ModelConfig, settings: Any) -> None:
        super().__init__()
        self.model = model
        self.settings = settings
        self.qkv = nn.Linear(model.d_model, 3 * model.d_model, bias=False)
        self.out = nn.Linear(model.d_model, model.d_model)

    @classmethod
    def causal(cls, settings: Any) -> bool:
        """Whether no output depends on a later token."""
        return True

    @classmethod
    def memory(cls, settings: Any) -> Memory:
        """How training memory grows with the context length."""
        return "linear"

    @classmethod
    def caches(cls, settings: Any) -> bool:
        """Whether tokens can be read one by one, `attend_next` giving what `attend` gives for the last."""
        return False

    def learned(self) -> dict[str, Tensor]:
        """The learned scalars by name, detached; units in the subclass."""
        return {}

    def rate_multipliers(self) -> dict[str, float]:
        """Learning-rate multipliers by parameter name inside this module; others train at 1."""
        return {}

    def initialise(self, generator_for: GeneratorFor) -> None:
        """Set the parameters that do not start as N(0, 0.02) weights or zero biases."""

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
        position: Position,
        positions: Int[Tensor, " time"],
        trace: Trace,
        past: Past | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """With a `past`, x is the one token that follows the tokens kept there, and is kept too."""
        batch, time, _ = x.shape
        heads = self.qkv(x).view(batch, time, 3, self.model.n_heads, self.model.d_head)
        # Taken apart before they are turned: so the gradients are put together with one copy, not two.
        q, k, v = (part.transpose(1, 2) for part in heads.unbind(2))  # each (batch, head, time, d_head)
        acts_on = position.acts_on(position.settings)
        if "query_key" in acts_on:
            q, k = position.rotate(q, positions), position.rotate(k, positions)
        trace.add("query", q)
        trace.add("key", k)
        biased = "scores" in acts_on
        if past is None:
            bias = (lambda rows: position.bias(positions[rows], positions)) if biased else None
            y = self.attend(q, k, v, bias, x, stream, trace)
        else:
            keys = past.extend("key", k)
            so_far = torch.arange(keys.shape[-2], device=positions.device)
            y = self.attend_next(
                q, keys, v, position.bias(positions, so_far) if biased else None, x, stream, past
            )
        trace.add("output", y)
        return self.out(y.transpose(1, 2).reshape(batch, time, self.model.d_model))

    def attend(
        self,
        q: Float[Tensor, "batch head time d_head"],
        k: Float[Tensor, "batch head time d_head"],
        v: Float[Tensor, "batch head time d_head"],
        bias: ScoreBias | None,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
        trace: Trace,
    ) -> Float[Tensor, "batch head time d_head"]:
        """What each query takes from the values; `bias` is added to the scores."""
        raise NotImplementedError

    def attend_next(
        self,
        q: Float[Tensor, "batch head 1 d_head"],
        keys: Float[Tensor, "batch head key d_head"],
        v: Float[Tensor, "batch head 1 d_head"],
        bias: Float[Tensor, "#batch head 1 key"] | Float[Tensor, "head 1 key"] | None,
        x: Float[Tensor, "batch 1 d_model"],
        stream: Float[Tensor, "batch 1 d_model"],
        past: Past,
    ) -> Float[Tensor, "batch head 1 d_head"]:
        """What the latest token takes from the values, in evaluation; only where `caches` says so."""
        raise NotImplementedError

    @property
    def weight_dropout(self) -> float:
        """Probability of dropping an attention weight: the model's rate in training, 0 in evaluation."""
        return self.model.dropout if self.training else 0.0


def future_mask(time: int, device: torch.device) -> Tensor:
    """True where the key is later than the query, [time, time]."""
    return torch.ones(time, time, dtype=torch.bool, device=device).triu(1)


def softmax_weights(
    q: Float[Tensor, "batch head time d_head"],
    k: Float[Tensor, "batch head time d_head"],
    bias: ScoreBias | None,
) -> Float[Tensor, "batch head time time"]:
    """A_ij = softmax_j(q_i·k_j/√d_head + bias_ij), j ≤ i, as a whole matrix: for looking at."""
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias(slice(None)).to(torch.promote_types(q.dtype, torch.float32))
    return scores.masked_fill(future_mask(q.shape[-2], q.device), -math.inf).softmax(dim=-1)


def latest_weights(
    q: Float[Tensor, "batch head 1 d_head"],
    keys: Float[Tensor, "batch head key d_head"],
    bias: Float[Tensor, "#batch head 1 key"] | Float[Tensor, "head 1 key"] | None,
) -> Float[Tensor, "batch head 1 key"]:
    """The last row of `softmax_weights`: the latest query may attend to every key."""
    scores = q @ keys.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (scores if bias is None else scores + bias).softmax(dim=-1)


def fused_attention(
    q: Float[Tensor, "batch head time d_head"],
    k: Float[Tensor, "batch head time d_head"],
    v: Float[Tensor, "batch head time channels"],
    bias: ScoreBias | None,
    *,
    d_head: int,
    dropout: float,
) -> Float[Tensor, "batch head time channels"]:
    """Σ_j A_ij v_j; without bias and dropout through torch's fused kernels, which keep no time × time matrix.

    `d_head` sets the scale 1/√d_head: channels of q and k beyond it must not change that. v may have
    more channels than q and k.
    """
    scale = 1.0 / math.sqrt(d_head)
    if dropout and q.device.type == "cpu":
        return _dropped_attention(q, k, v, bias, scale, dropout)
    wanted, width = v.shape[-1], max(q.shape[-1], v.shape[-1])
    if q.device.type != "cpu":
        width += -width % 8  # what a GPU's kernels take
    q, k, v = (_widened(part, width) for part in (q, k, v))
    if bias is None:
        y = scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, scale=scale)
    else:
        time = q.shape[-2]
        block = time if torch.is_grad_enabled() else QUERY_BLOCK
        rows = [slice(start, start + block) for start in range(0, time, block)]
        y = torch.cat([_biased_rows(q, k, v, bias, r, scale, dropout) for r in rows], dim=-2)
    return y[..., :wanted]


def _widened(part: Tensor, channels: int) -> Tensor:
    """With channels of zeros added; padding by none would still copy."""
    spare = channels - part.shape[-1]
    return pad(part, (0, spare)) if spare else part


def _dropped_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: ScoreBias | None, scale: float, rate: float
) -> Tensor:
    """Σ_j A_ij v_j with weights dropped at `rate`: torch has no fused kernel for that on the CPU."""
    wide = torch.promote_types(q.dtype, torch.float32)
    q = q * scale
    time, answers = q.shape[-2], []
    for start in range(0, time, FEW_QUERIES):
        rows, seen = slice(start, min(start + FEW_QUERIES, time)), min(start + FEW_QUERIES, time)
        scores = (q[..., rows, :] @ k[..., :seen, :].transpose(-1, -2)).to(wide)
        if bias is not None:
            scores = scores + bias(rows)[..., :seen].to(wide)
        weights = scores.masked_fill(future_mask(time, q.device)[rows, :seen], -math.inf).softmax(dim=-1)
        answers.append(drop(weights, rate).to(v.dtype) @ v[..., :seen, :])
    return torch.cat(answers, dim=-2)


def _biased_rows(
    q: Tensor, k: Tensor, v: Tensor, bias: ScoreBias, rows: slice, scale: float, dropout: float
) -> Tensor:
    """The answers of the queries in `rows`, in float32 or better: half precision would round a bias of
    100 nats by half a nat."""
    wide = torch.promote_types(q.dtype, torch.float32)
    place = torch.arange(q.shape[-2], device=q.device)
    mask = bias(rows).to(wide).masked_fill(place > place[rows, None], -math.inf)
    with torch.autocast(q.device.type, enabled=False):
        y = scaled_dot_product_attention(
            q[..., rows, :].to(wide), k.to(wide), v.to(wide), attn_mask=mask, dropout_p=dropout, scale=scale
        )
    return y.to(v.dtype)
