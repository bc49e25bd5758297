"""Energy-Gated Attention (arXiv 2605.26355, section 2.1; companion 2605.21842)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ega_mope.attention.base import (
    Attention,
    ScoreBias,
    fused_attention,
    latest_weights,
    softmax_weights,
)
from ega_mope.attention.gate_norms import GATE_NORMS, gate_norm_setting, wide
from ega_mope.attention.gated import gated_attention, gated_shares, gated_weights, pair_gated_attention
from ega_mope.attention.past import Past
from ega_mope.attention.trace import Trace
from ega_mope.config import ModelConfig, setting
from ega_mope.gate_signals import GATE_SIGNALS
from ega_mope.positions.base import GeneratorFor, Memory, Prior, from_run_setting


class EnergyGatedAttention(Attention):
    """Each key token's energy e_j = w·x_j opens a gate g_j = sigmoid(α(z_j − θ)) on its value.

    `renormalised`, the paper's: y_i = Σ_j A_ij g_j v_j / Σ_j A_ij g_j. Since every g < 1, a token is
    amplified only through the renormalisation. `plain`: y_i = Σ_j A_ij g_j v_j.
    A head has d_model + 2 parameters more than dot-product attention: w, θ (`threshold`, starts at 0
    standard deviations) and α (`sharpness`, starts at 2). Departure from the paper: the gate norm is
    `causal` unless asked; the paper's `sequence` looks at the future.
    Limit: threshold → −∞ opens every gate and gives dot-product attention.
    """

    prior = Prior(("signal.",), sizes=("d_model", "n_heads", "n_layers"), settings=("signal",))

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Settings of energy-gated attention."""

        gate_norm: str = gate_norm_setting("which tokens the energy is compared with")
        signal: str = setting("linear", "what the gate listens to", choices=lambda: list(GATE_SIGNALS))
        apply: Literal["renormalised", "plain"] = setting(
            "renormalised", "divide by the gated weights' sum (the paper's), or not"
        )
        freeze: Literal["nothing", "projection"] = setting(
            "nothing", "projection: what the gate listens with stays at its start; θ and α still learn"
        )
        from_run: str | None = from_run_setting(
            "run whose best weights give the projection its start; it reads channels, which in a network of "
            "another seed may mean something else"
        )

    def __init__(self, model: ModelConfig, settings: Settings) -> None:
        super().__init__(model, settings)
        self.settings: EnergyGatedAttention.Settings
        self.signal = GATE_SIGNALS[settings.signal](model).requires_grad_(settings.freeze == "nothing")
        self.threshold = nn.Parameter(torch.zeros(model.n_heads))
        self.sharpness = nn.Parameter(torch.full((model.n_heads,), 2.0))

    @classmethod
    def causal(cls, settings: Any) -> bool:
        return GATE_NORMS[settings.gate_norm].causal

    @classmethod
    def memory(cls, settings: Any) -> Memory:
        return GATE_NORMS[settings.gate_norm].memory

    @classmethod
    def caches(cls, settings: Any) -> bool:
        norm = GATE_NORMS[settings.gate_norm]
        return norm.causal and not norm.per_query

    def learned(self) -> dict[str, Tensor]:
        """`threshold` (standard deviations of the energy) and `sharpness` (1/standard deviation), a head each."""
        return {
            "threshold": self.threshold.detach(),
            "sharpness": self.sharpness.detach(),
            **self.signal.learned(),
        }

    def initialise(self, generator_for: GeneratorFor) -> None:
        with torch.no_grad():
            self.threshold.zero_()
            self.sharpness.fill_(2.0)

    def gate_logit(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
        trace: Trace,
    ) -> Float[Tensor, "batch head time"] | Float[Tensor, "batch head query key"]:
        """α(z_j − θ) in float32 or better, whatever the model's precision; the gate is its sigmoid.

        Where the gate norm depends on the query, α(z_ij − θ); of no meaning for keys that come later.
        """
        energy = wide(self.signal(x, stream))
        norm = GATE_NORMS[self.settings.gate_norm]
        z = norm.z(energy)
        per_head = (-1, 1, 1) if norm.per_query else (-1, 1)
        logit = self.sharpness.view(per_head) * (z - self.threshold.view(per_head))
        trace.add("energy", energy)
        trace.add("z", z)
        if "gate" in trace.want:
            gate = logit.sigmoid()
            trace.add("gate", gate.tril() if norm.per_query else gate)
        return logit

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: ScoreBias | None, x: Tensor, stream: Tensor, trace: Trace
    ) -> Tensor:
        logit = self.gate_logit(x, stream, trace)
        plain = self.settings.apply == "plain"
        per_query = GATE_NORMS[self.settings.gate_norm].per_query
        if per_query or trace.want & {"weight", "share"}:
            weights = softmax_weights(q, k, bias)
            gate = logit.sigmoid()
            trace.add("weight", weights)
            trace.add("share", gated_weights(weights, gate) if plain else gated_shares(weights, gate))
        if per_query:
            return pair_gated_attention(weights, gate, v, renormalise=not plain, dropout=self.weight_dropout)
        if plain:
            values = logit.sigmoid().to(v.dtype)[..., None] * v
            return fused_attention(q, k, values, bias, d_head=self.model.d_head, dropout=self.weight_dropout)
        return gated_attention(q, k, v, logit, bias, self.weight_dropout)

    def attend_next(
        self, q: Tensor, keys: Tensor, v: Tensor, bias: Tensor | None, x: Tensor, stream: Tensor, past: Past
    ) -> Tensor:
        # All gates again from what the signal reads, a small part of the work: running statistics go on
        # exactly, and a signal may look back as far as it likes.
        gate = self.gate_logit(past.extend("x", x), past.extend("stream", stream), Trace(())).sigmoid()
        weights = latest_weights(q, keys, bias)
        plain = self.settings.apply == "plain"
        shares = gated_weights(weights, gate) if plain else gated_shares(weights, gate)
        return shares.to(v.dtype) @ past.extend("value", v)
