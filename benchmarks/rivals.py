"""The models that the lab's are timed against: two libraries, and loops over heads as published code has them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu

from ega_mope.config import ModelConfig


class Gpt2(nn.Module):
    """`transformers`' GPT-2, with the attention it chooses by itself."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        rate = config.dropout
        self.model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=config.vocabulary_size,
                n_positions=config.context_length,
                n_embd=config.d_model,
                n_layer=config.n_layers,
                n_head=config.n_heads,
                activation_function="gelu",
                resid_pdrop=rate,
                embd_pdrop=rate,
                attn_pdrop=rate,
                use_cache=False,
            )
        )

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids).logits


class XTransformers(nn.Module):
    """`x-transformers`' decoder, with its fused attention where that is faster: without dropout."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        from x_transformers import Decoder, TransformerWrapper

        rate = config.dropout
        self.model = TransformerWrapper(
            num_tokens=config.vocabulary_size,
            max_seq_len=config.context_length,
            emb_dropout=rate,
            tie_embedding=True,
            attn_layers=Decoder(
                dim=config.d_model,
                depth=config.n_layers,
                heads=config.n_heads,
                attn_dim_head=config.d_head,
                attn_flash=not rate,
                attn_dropout=rate,
                ff_dropout=rate,
            ),
        )

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids)


class _LoopedHead(nn.Module):
    """One head with matrices of its own, the whole attention matrix, a mask, and the gate on top of it."""

    def __init__(self, config: ModelConfig, gated: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (
            nn.Linear(config.d_model, config.d_head, bias=False) for _ in range(3)
        )
        self.energy = nn.Linear(config.d_model, 1) if gated else None
        self.threshold, self.sharpness = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.full((1,), 2.0))
        self.rate = config.dropout

    def forward(self, x: Tensor, future: Tensor) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        weights = (
            (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).masked_fill(future, -math.inf).softmax(-1)
        )
        weights = dropout(weights, self.rate, self.training)
        if self.energy is not None:
            energy = self.energy(x).squeeze(-1)
            z = (energy - energy.mean(-1, keepdim=True)) / (energy.std(-1, keepdim=True) + 1e-8)
            weights = weights * torch.sigmoid(self.sharpness * (z - self.threshold))[:, None, :]
            weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-8)
        return weights @ v


class _LoopedBlock(nn.Module):
    def __init__(self, config: ModelConfig, gated: bool) -> None:
        super().__init__()
        width = config.d_model
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads = nn.ModuleList(_LoopedHead(config, gated) for _ in range(config.n_heads))
        self.out, self.wide, self.narrow = (
            nn.Linear(width, width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.rate = config.dropout

    def forward(self, x: Tensor, future: Tensor) -> Tensor:
        normed = self.norm_1(x)
        attended = self.out(torch.cat([head(normed, future) for head in self.heads], dim=-1))
        x = x + dropout(attended, self.rate, self.training)
        return x + dropout(self.narrow(gelu(self.wide(self.norm_2(x)))), self.rate, self.training)


class LoopOverHeads(nn.Module):
    """A transformer that runs its heads one after another, as published research code often does."""

    def __init__(self, config: ModelConfig, *, gated: bool = False, morlet: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary_size, config.d_model)
        self.positions = nn.Embedding(config.context_length, config.d_model)
        omega = torch.logspace(0, math.log10(0.99 * math.pi), config.d_model // 2) if morlet else None
        self.omega = nn.Parameter(omega) if omega is not None else None
        self.sigma = nn.Parameter(5.0 / omega) if omega is not None else None
        self.blocks = nn.ModuleList(_LoopedBlock(config, gated) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, ids: Tensor) -> Tensor:
        time = ids.shape[1]
        places = torch.arange(time, device=ids.device)
        future = torch.ones(time, time, dtype=torch.bool, device=ids.device).triu(1)
        x = self.embedding(ids) + (self.positions(places) if self.omega is None else self._wavelets(places))
        for block in self.blocks:
            x = block(x, future)
        return self.norm(x) @ self.embedding.weight.T

    def _wavelets(self, places: Tensor) -> Tensor:
        assert self.omega is not None and self.sigma is not None
        b = places[:, None].float()
        envelope = torch.exp(-(b**2) / (2 * self.sigma**2))
        waves = [torch.cos(self.omega * b) * envelope, torch.sin(self.omega * b) * envelope]
        return torch.stack(waves, dim=-1).flatten(1)


RIVALS: dict[str, Callable[[ModelConfig], nn.Module]] = {
    "transformers GPT-2": Gpt2,
    "x-transformers decoder": XTransformers,
    "loop over heads, baseline": LoopOverHeads,
    "loop over heads, EGA sequence": lambda config: LoopOverHeads(config, gated=True),
    "loop over heads, EGA sequence + MoPE": lambda config: LoopOverHeads(config, gated=True, morlet=True),
}
LIBRARIES = ("transformers GPT-2", "x-transformers decoder")
