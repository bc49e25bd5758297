"""Causal filters over the channel mean of the residual stream: what the structured gate signals share."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import conv1d, pad

FILTER_LENGTHS = (3, 7, 15, 31)
"""Taps n of the filter bank, in tokens; ω = π/n and σ = 5/ω, so ω·σ = 5 before the cut to n taps."""


def channel_mean(stream: Float[Tensor, "batch time d_model"]) -> Float[Tensor, "batch time"]:
    """s_j, the mean over the channels, in float32 or better.

    Of the stream before the LayerNorm: after it the mean is 0 until the LayerNorm has learned biases.
    """
    return stream.to(torch.promote_types(stream.dtype, torch.float32)).mean(dim=-1)


def causal_filter(
    signal: Float[Tensor, "batch time"], taps: Float[Tensor, "filter lag"]
) -> Float[Tensor, "batch filter time"]:
    """y_f(j) = Σ_ℓ taps[f, ℓ]·s_{j−ℓ}, with s = 0 before the first token; no later token enters."""
    # torch's convolution slides without turning the taps around.
    weight = taps.to(signal.dtype).flip(-1)[:, None]
    with torch.autocast(signal.device.type, enabled=False):
        return conv1d(pad(signal, (taps.shape[-1] - 1, 0))[:, None], weight)


def bank_scales() -> tuple[Float[Tensor, " scale"], Float[Tensor, " scale"]]:
    """ω = π/n in rad/token and σ = 5/ω in tokens of the filter bank, float64."""
    omega = math.pi / torch.tensor(FILTER_LENGTHS, dtype=torch.float64)
    return omega, 5.0 / omega


def morlet_taps(
    omega: Float[Tensor, "*head scale"], sigma: Float[Tensor, "*head scale"]
) -> tuple[Float[Tensor, "*head scale lag"], Float[Tensor, "*head scale lag"]]:
    """Real and imaginary taps ψ(t) = exp(−t²/2σ²)·exp(iωt), t = ℓ − (n − 1)/2 tokens, ℓ = 0 … n − 1.

    Scale s has FILTER_LENGTHS[s] taps, zeros after them, and unit energy Σ|ψ|² = 1. The wavelet's centre
    lies (n − 1)/2 tokens back, so that all of it is in the past.
    """
    n = torch.tensor(FILTER_LENGTHS, dtype=omega.dtype, device=omega.device)[:, None]
    lag = torch.arange(max(FILTER_LENGTHS), dtype=omega.dtype, device=omega.device)
    t = lag - (n - 1) / 2  # (scale, lag)
    envelope = torch.exp(-(t**2) / (2 * sigma[..., None] ** 2)) * (lag < n)
    envelope = envelope / envelope.square().sum(dim=-1, keepdim=True).sqrt()
    angle = omega[..., None] * t
    return envelope * angle.cos(), envelope * angle.sin()


def morlet_bank(
    signal: Float[Tensor, "batch time"],
    omega: Float[Tensor, "*head scale"],
    sigma: Float[Tensor, "*head scale"],
) -> tuple[Float[Tensor, "batch *head scale time"], Float[Tensor, "batch *head scale time"]]:
    """Real and imaginary part of the filtered signal at each scale."""
    real, imaginary = morlet_taps(omega, sigma)
    filters = torch.cat([real.flatten(0, -2), imaginary.flatten(0, -2)])
    filtered = causal_filter(signal, filters).unflatten(1, (2, *omega.shape))
    return filtered[:, 0], filtered[:, 1]


def unit_phasors(
    real: Float[Tensor, "batch scale time"], imaginary: Float[Tensor, "batch scale time"]
) -> tuple[Float[Tensor, "batch scale time"], Float[Tensor, "batch scale time"]]:
    """cos φ and sin φ of the filtered signal; both 0 where it vanishes and has no phase."""
    power = real.square() + imaginary.square()
    silent = power <= torch.finfo(power.dtype).tiny
    # The power is replaced before the root: √ has an infinite slope at 0, and 0 · inf is nan backwards.
    size = torch.where(silent, 1.0, power).sqrt()
    return torch.where(silent, 0.0, real / size), torch.where(silent, 0.0, imaginary / size)
