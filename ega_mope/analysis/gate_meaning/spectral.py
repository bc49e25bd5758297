"""Is a gate's projection spectral? Its spectrum over the channels against that of the same weights in random order.

e_j = w·x_j = (1/d) Σ_k conj(ŵ_k) x̂_jk (Parseval; arXiv 2605.26355, section 2.1 reads the projection so), with ŵ
the discrete Fourier transform over the d channels. Every w has such a spectrum. It says something of
frequencies only if the order of the channels matters, which an embedding by itself does not give them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float

from ega_mope.analysis.gates import why_no_gates
from ega_mope.config import Plain
from ega_mope.gate_signals.linear import LinearSignal
from ega_mope.model import CharLM
from ega_mope.runs import Run

PERMUTATIONS = 200
LEVEL = 0.05
"""The share of heads with channels in no particular order that are called spectral all the same, at most."""


@dataclass(frozen=True, kw_only=True)
class Spectral:
    """The spectra of a run's projections; arrays are [layer, head, …], `power` and the band at k = 1 … d/2.

    `power` is |ŵ_k|² over its mean, so that 1 is flat. `low` and `high` hold 95 % of the permutations at each k
    alone. `bound` is what a permutation's highest peak exceeds in at most 5 %: a head is called spectral if its
    peak does. `p` is the peak's permutation p, `p_family` the same for the highest peak of all heads.
    """

    run: str
    power: Float[np.ndarray, "layer head k"]
    low: Float[np.ndarray, "layer head k"]
    high: Float[np.ndarray, "layer head k"]
    bound: Float[np.ndarray, "layer head"]
    p: Float[np.ndarray, "layer head"]
    p_family: Float[np.ndarray, "layer head"]
    permutations: int

    @property
    def spectral(self) -> Bool[np.ndarray, "layer head"]:
        """Whether each head's peak lies outside the band of random orders."""
        return self.p <= LEVEL

    def sentence(self) -> str:
        """How many heads are spectral, and how many would be by chance."""
        count, heads = int(self.spectral.sum()), self.p.size
        family = int((self.p_family <= LEVEL).sum())
        return (
            f"{count} of {heads} heads are outside the band of random orders; about {LEVEL * heads:.1f} would be by "
            f"chance alone. Held to 5 % for all heads together: {family}."
        )

    def heads_table(self) -> pd.DataFrame:
        """A row a head; layers and heads count from 1."""
        peak = self.power.argmax(axis=-1)
        rows = [
            {
                "layer": layer + 1,
                "head": head + 1,
                "verdict": "spectral" if self.spectral[layer, head] else "general salience",
                "peak at k": int(peak[layer, head]) + 1,
                "peak (× mean)": self.power[layer, head].max(),
                "bound (× mean)": self.bound[layer, head],
                "p": self.p[layer, head],
                "p, all heads": self.p_family[layer, head],
            }
            for layer, head in np.ndindex(*self.p.shape)
        ]
        return pd.DataFrame(rows)

    def spectrum_table(self, layer: int, head: int) -> pd.DataFrame:
        """One head's spectrum by k, layer and head from 0."""
        parts = {name: getattr(self, name)[layer, head] for name in ("power", "low", "high")}
        return pd.DataFrame({"k": np.arange(1, self.power.shape[-1] + 1), **parts})

    def to_json(self) -> Plain:
        """The answer of `ega-mope spectral --json`; `power` is [layer][head][k − 1]."""
        return {
            "run": self.run,
            "permutations": self.permutations,
            "sentence": self.sentence(),
            "heads": self.heads_table().to_dict("records"),
            "power": self.power.tolist(),
        }


def spectrum(w: Float[np.ndarray, "*head channel"]) -> Float[np.ndarray, "*head k"]:
    """|ŵ_k|² at k = 1 … d/2 over their mean; k = 0, the channels' mean, is the same in every order."""
    power = np.abs(np.fft.rfft(w, axis=-1)[..., 1:]) ** 2
    mean = power.mean(axis=-1, keepdims=True)
    return power / np.where(mean > 0, mean, 1.0)


def spectral_test(
    w: Float[np.ndarray, "layer head channel"],
    *,
    run: str = "",
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Spectral:
    """Compare each head's highest peak with those of `permutations` random orders of its channels.

    One number a head, so one test a head: p = (1 + permutations with as high a peak)/(1 + permutations), which for
    channels in no particular order is at most 5 % in at most 5 % of heads, whatever the weights' distribution.
    All heads share their permutations, so that the highest peak of all gives the p of the family.
    """
    if permutations < 19:
        raise ValueError(
            f"permutations: expected at least 19, got {permutations}; with fewer no p is below 5 %"
        )
    random = np.random.default_rng(seed)
    power = spectrum(w)
    drawn = np.stack([spectrum(w[..., random.permutation(w.shape[-1])]) for _ in range(permutations)])
    peaks, peak = drawn.max(axis=-1), power.max(axis=-1)
    largest = peaks.max(axis=(1, 2))[:, None, None]
    rank = int(LEVEL * (1 + permutations))  # this many peaks, its own included, may be as high
    return Spectral(
        run=run,
        power=power,
        low=np.quantile(drawn, 0.025, axis=0),
        high=np.quantile(drawn, 0.975, axis=0),
        bound=np.sort(peaks, axis=0)[-rank],
        p=(1 + (peaks >= peak).sum(axis=0)) / (1 + permutations),
        p_family=(1 + (largest >= peak).sum(axis=0)) / (1 + permutations),
        permutations=permutations,
    )


def why_no_spectrum(run: Run) -> str | None:
    """None, or why this run has no projection whose spectrum could be taken."""
    reason = why_no_gates(run)
    signal = run.config.model.attention.get("signal")
    if reason is None and signal not in ("linear", "flux"):
        return f"its gates listen to {signal}, which has no projection w"
    return reason


def spectral(run: Run, model: CharLM | None = None, **options: int) -> Spectral:
    """The test on a run's projections; ValueError where it has none, or no weights."""
    reason = why_no_spectrum(run)
    if reason:
        raise ValueError(
            f"{run.name}: expected a run with a learned projection, got one where {reason}; choose another"
        )
    return spectral_test(projections(model or run.model()), run=run.name, **options)


def projections(model: CharLM) -> Float[np.ndarray, "layer head channel"]:
    """The projection w of every head, float64; the model's gates listen to `linear` or `flux`."""
    signals = [attention.signal for attention in model.attentions]
    assert all(isinstance(signal, LinearSignal) for signal in signals)
    weights = [signal.weight.detach() for signal in signals if isinstance(signal, LinearSignal)]
    return torch.stack(weights).double().cpu().numpy()
