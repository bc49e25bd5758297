"""What every attention offers, and the two ways of computing softmax attention that they share."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ega_mope.attention.trace import Trace
from ega_mope.config import ModelConfig
from ega_mope.positions.base import ActsOn, GeneratorFor, Memory, NoSettings, Position


class Attention(nn.Module):
    """Multi-head attention: packed q, k, v without biases, an output projection with one.

    A subclass implements `attend`. x is the block's input after its LayerNorm, `stream` before it.
    """

    Settings: ClassVar[type] = NoSettings
    honours: ClassVar[frozenset[ActsOn]] = frozenset({"input", "query_key", "scores"})
    """Which kinds of position encoding this attention makes use of."""

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
    ) -> Float[Tensor, "batch time d_model"]:
        batch, time, _ = x.shape
        heads = self.qkv(x).view(batch, time, 3, self.model.n_heads, self.model.d_head)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (batch, head, time, d_head)
        acts_on = position.acts_on(position.settings)
        if "query_key" in acts_on:
            q, k = position.rotate(q, positions), position.rotate(k, positions)
        bias = position.bias(positions, positions) if "scores" in acts_on else None
        y = self.attend(q, k, v, bias, x, stream, trace)
        trace.add("output", y)
        return self.out(y.transpose(1, 2).reshape(batch, time, self.model.d_model))

    def attend(
        self,
        q: Float[Tensor, "batch head time d_head"],
        k: Float[Tensor, "batch head time d_head"],
        v: Float[Tensor, "batch head time d_head"],
        bias: Float[Tensor, "head time time"] | None,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
        trace: Trace,
    ) -> Float[Tensor, "batch head time d_head"]:
        """What each query takes from the values; `bias` is added to the scores."""
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
    bias: Float[Tensor, "#batch head time time"] | None,
) -> Float[Tensor, "batch head time time"]:
    """A_ij = softmax_j(q_i·k_j/√d_head + bias_ij), j ≤ i, as a whole matrix: for looking at."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    return scores.masked_fill(future_mask(q.shape[-2], q.device), -math.inf).softmax(dim=-1)


def fused_attention(
    q: Float[Tensor, "batch head time channels"],
    k: Float[Tensor, "batch head time channels"],
    v: Float[Tensor, "batch head time channels_v"],
    bias: Float[Tensor, "#batch head time time"] | None,
    *,
    d_head: int,
    dropout: float,
) -> Float[Tensor, "batch head time channels_v"]:
    """Σ_j A_ij v_j through torch's fused kernels; without a bias no time × time matrix is kept.

    `d_head` sets the scale 1/√d_head: padded channels must not change it.
    """
    scale = 1.0 / math.sqrt(d_head)
    if bias is None:
        return scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, scale=scale)
    # In the queries' precision here, since a mask of another dtype leaves the fused path.
    mask = bias.to(q.dtype).masked_fill(future_mask(q.shape[-2], q.device), -math.inf)
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)
