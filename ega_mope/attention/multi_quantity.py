"""Attention whose scores hear energy, phase and flux beside similarity (arXiv 2605.26355, ablations)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from ega_mope.attention.key_bias import key_biased_attention
from ega_mope.attention.past import Past
from ega_mope.attention.trace import Trace
from ega_mope.config import ModelConfig, setting
from ega_mope.gate_signals.flux import flux
from ega_mope.gate_signals.linear import LinearSignal
from ega_mope.gate_signals.phase import PhaseSignal
from ega_mope.positions.base import GeneratorFor, Memory

FIRST_WEIGHT = 0.01
"""λ of every quantity at the start."""


class MultiQuantityAttention(Attention):
    """score_ij = q_i·k_j/√d_head + λ_E z(E_j) + λ_φ cos φ_j + λ_F z(F_j), j ≤ i; softmax, no gate.

    E_j = w·x_j is the learned energy, F_j = |E_j − E_{j−1}| its flux, cos φ the filter bank's phase averaged
    over scales; z by the gate norm. λ is learned, one a head and quantity, and starts at 0.01. Each
    quantity can be switched off; the paper's rows "energy + flux" and "energy + phase" are of this kind.
    A head has d_model parameters (w, where energy or flux is on) and one λ a quantity more than
    dot-product attention. Departure from the paper: z is `causal` unless asked, not over the sequence.
    Limit: λ = 0, or all quantities off, is dot-product attention.
    """

    @dataclass(frozen=True, kw_only=True)
    class Settings:
        """Settings of multi-quantity attention."""

        energy: bool = setting(True, "add λ_E z(E): the learned energy of the key")
        phase: bool = setting(True, "add λ_φ cos φ: the key's phase in the filter bank")
        flux: bool = setting(True, "add λ_F z(F): how fast the energy changes at the key")
        gate_norm: str = gate_norm_setting("which tokens energy and flux are compared with")

    def __init__(self, model: ModelConfig, settings: Settings) -> None:
        super().__init__(model, settings)
        self.settings: MultiQuantityAttention.Settings
        self.energy = LinearSignal(model) if settings.energy or settings.flux else None
        self.phase = PhaseSignal(model) if settings.phase else None
        on = [name for name in ("energy", "phase", "flux") if getattr(settings, name)]
        self.strength = nn.ParameterDict({name: nn.Parameter(torch.zeros(model.n_heads)) for name in on})

    def initialise(self, generator_for: GeneratorFor) -> None:
        with torch.no_grad():
            for strength in self.strength.values():
                strength.fill_(FIRST_WEIGHT)

    @classmethod
    def _norm_matters(cls, settings: Any) -> bool:
        return settings.energy or settings.flux

    @classmethod
    def causal(cls, settings: Any) -> bool:
        return GATE_NORMS[settings.gate_norm].causal or not cls._norm_matters(settings)

    @classmethod
    def memory(cls, settings: Any) -> Memory:
        return GATE_NORMS[settings.gate_norm].memory if cls._norm_matters(settings) else "linear"

    @classmethod
    def caches(cls, settings: Any) -> bool:
        return cls.causal(settings)

    def learned(self) -> dict[str, Tensor]:
        """`lambda_energy`, `lambda_phase`, `lambda_flux` where switched on: nats a standard deviation of
        energy or flux, nats a unit of cos φ; one a head."""
        return {f"lambda_{name}": strength.detach() for name, strength in self.strength.items()}

    def quantities(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
        trace: Trace,
    ) -> dict[str, Tensor]:
        """z(E), cos φ and z(F), those that are switched on: [batch, head, key], or for z [batch, head, query,
        key] where the gate norm depends on the query."""
        z = GATE_NORMS[self.settings.gate_norm].z
        found: dict[str, Tensor] = {}
        if self.energy is not None:
            energy = wide(self.energy(x, stream))
            found = {"energy": z(energy), "flux": z(flux(energy))}
            trace.add("energy", energy)
            trace.add("z", found["energy"])
        if self.phase is not None:
            found["phase"] = self.phase(x, stream)
        return {name: found[name] for name in self.strength}

    def added(
        self,
        x: Float[Tensor, "batch time d_model"],
        stream: Float[Tensor, "batch time d_model"],
        trace: Trace,
    ) -> Float[Tensor, "batch head rows time"]:
        """What the quantities add to the scores, in nats, float32 or better.

        One row for all queries; a row each where the gate norm depends on the query.
        """
        total = x.new_zeros(
            x.shape[0], self.model.n_heads, 1, x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32)
        )
        for name, values in self.quantities(x, stream, trace).items():
            rows = values if values.ndim == total.ndim else values[..., None, :]
            total = total + self.strength[name][:, None, None] * rows
        return total

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: ScoreBias | None, x: Tensor, stream: Tensor, trace: Trace
    ) -> Tensor:
        added = self.added(x, stream, trace)
        every_row = added.expand(-1, -1, x.shape[1], -1)

        def whole(rows: slice) -> Tensor:
            return every_row[..., rows, :] if bias is None else every_row[..., rows, :] + bias(rows)

        if trace.want & {"weight", "share"}:
            trace.add("weight", softmax_weights(q, k, bias))
            trace.add("share", softmax_weights(q, k, whole))
        if self.memory(self.settings) == "quadratic":
            return fused_attention(q, k, v, whole, d_head=self.model.d_head, dropout=self.weight_dropout)
        return key_biased_attention(q, k, v, added[..., 0, :], bias, self.weight_dropout)

    def attend_next(
        self, q: Tensor, keys: Tensor, v: Tensor, bias: Tensor | None, x: Tensor, stream: Tensor, past: Past
    ) -> Tensor:
        # The last row from all that was read: running statistics and filters go on exactly.
        added = self.added(past.extend("x", x), past.extend("stream", stream), Trace(()))[..., -1:, :]
        weights = latest_weights(q, keys, added if bias is None else added + bias)
        return weights.to(v.dtype) @ past.extend("value", v)
