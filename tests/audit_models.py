"""Small language models written for the audit: some look ahead, each in its own way, and some do not.

Every builder takes a seed. Leaky ones say which module lets the future in and in which stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ega_mope.attention import ATTENTIONS
from ega_mope.attention.gate_norms import GATE_NORMS
from ega_mope.config import ModelConfig, Plain
from ega_mope.gate_signals import GATE_SIGNALS
from ega_mope.model import build_model
from ega_mope.positions import POSITIONS

VOCABULARY = 24
CONTEXT = 128
WIDTH = 16


class Wrapped(nn.Module):
    """Embedding, x + mixer(LayerNorm(x)) once a mixer, head."""

    def __init__(self, *mixers: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in mixers)
        self.mixers = nn.ModuleList(mixers)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            x = x + self.dropout(mixer(norm(x)))
        return self.head(x)


class MaskedAttention(nn.Module):
    """One head of attention; `mask(time)` is True where a query may look."""

    def __init__(self, mask: Callable[[int], Tensor], *, unmasked_in_training: bool = False) -> None:
        super().__init__()
        self.mask = mask
        self.unmasked_in_training = unmasked_in_training
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / math.sqrt(WIDTH)
        if not (self.training and self.unmasked_in_training):
            scores = scores.masked_fill(~self.mask(x.shape[1]), -math.inf)
        return self.out(scores.softmax(dim=-1) @ v)


def causal_mask(time: int) -> Tensor:
    return torch.ones(time, time, dtype=torch.bool).tril()


def off_by_one_mask(time: int) -> Tensor:
    return torch.ones(time, time, dtype=torch.bool).tril(1)


def inverted_mask(time: int) -> Tensor:
    return torch.ones(time, time, dtype=torch.bool).triu()


class SequenceZNorm(nn.Module):
    """A gate whose energy is normalised over the whole window, as in the paper."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        e = self.energy(x)
        z = (e - e.mean(dim=1, keepdim=True)) / (e.std(dim=1, keepdim=True) + 1e-5)
        return torch.sigmoid(2 * z) * x


class BlockMeans(nn.Module):
    """Every token is given the mean of its own 64-token block."""

    def forward(self, x: Tensor) -> Tensor:
        blocks = x.unflatten(1, (-1, 64))
        return blocks.mean(dim=2, keepdim=True).expand_as(blocks).flatten(1, 2)


class ChunkRecurrence(nn.Module):
    """A state that is updated once every 16 tokens, and read by those tokens too."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        chunks = x.unflatten(1, (-1, 16))
        state = torch.zeros_like(x[:, 0])
        states = []
        for chunk in chunks.unbind(dim=1):
            state = torch.tanh(self.cell(torch.cat([state, chunk.mean(dim=1)], dim=-1)))
            states.append(state)
        return torch.stack(states, dim=1)[:, :, None].expand_as(chunks).flatten(1, 2)


class FourierFilter(nn.Module):
    """A filter of 8 taps through the FFT: without padding the window's end comes back at its beginning."""

    def __init__(self, *, padded: bool) -> None:
        super().__init__()
        self.padded = padded
        self.taps = nn.Parameter(torch.randn(8, WIDTH) / 3)

    def forward(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        n = 2 * time if self.padded else time
        x = x if x.dtype == torch.float64 else x.float()  # torch has no FFT in bf16
        taps = self.taps.to(x.dtype)[:time]
        return torch.fft.irfft(torch.fft.rfft(x, n, dim=1) * torch.fft.rfft(taps, n, dim=0), n, dim=1)[
            :, :time
        ]


class BatchStatistics(nn.Module):
    """BatchNorm over windows and positions: in training every prediction depends on the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


class PositionwiseBatchStatistics(nn.Module):
    """Normalised over the windows of the batch at each position: no look ahead, but at the other windows."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0, keepdim=True) if self.training else x


class Convolution(nn.Module):
    """Five taps over time; causal where all the padding is on the left."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__()
        self.pad = nn.ConstantPad1d((left, right), 0.0)
        self.filter = nn.Conv1d(WIDTH, WIDTH, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.filter(self.pad(x.transpose(1, 2))).transpose(1, 2)


class LinearAttention(nn.Module):
    """φ(q_i)·Σ_{j ≤ i} φ(k_j) v_jᵀ through running sums."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
        state = (k[..., :, None] * v[..., None, :]).cumsum(dim=1)
        return torch.einsum("btk,btkv->btv", q, state) / (q * k.cumsum(dim=1)).sum(-1, keepdim=True)


class TorchEncoder(nn.Module):
    """torch's own encoder layers under a causal mask, time first inside."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=dropout, batch_first=batch_first)
            for batch_first in (True, False)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        mask = ~causal_mask(ids.shape[1])
        x = self.layers[0](self.embedding(ids), src_mask=mask)
        return self.head(self.layers[1](x.transpose(0, 1), src_mask=mask).transpose(0, 1))


class Recurrent(nn.Module):
    """A GRU of two layers."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.gru = nn.GRU(WIDTH, WIDTH, num_layers=2, batch_first=True, dropout=dropout)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.gru(self.embedding(ids))[0])


def lab_model(attention: Plain, position: str, dropout: float, n_layers: int = 1) -> nn.Module:
    """One of the lab's own models."""
    config = ModelConfig(
        vocabulary_size=VOCABULARY,
        context_length=CONTEXT,
        n_layers=n_layers,
        n_heads=2,
        d_model=WIDTH,
        dropout=dropout,
        attention=attention,
        position={"name": position},
    )
    return build_model(config, int(torch.initial_seed() % 2**31))


@dataclass(frozen=True)
class Leak:
    """A leaky model, the module that lets the future in, and the stage in which it does."""

    build: Callable[[], nn.Module]
    where: str
    mode: str = "evaluation, float32"


LEAKY: dict[str, Leak] = {
    "sequence z-norm": Leak(lambda: Wrapped(MaskedAttention(causal_mask), SequenceZNorm()), "mixers.1"),
    "64-token block means": Leak(lambda: Wrapped(BlockMeans()), "mixers.0"),
    "16-token chunk recurrence": Leak(lambda: Wrapped(ChunkRecurrence()), "mixers.0"),
    "circular FFT filter": Leak(lambda: Wrapped(FourierFilter(padded=False)), "mixers.0"),
    "mask off by one": Leak(
        lambda: Wrapped(MaskedAttention(causal_mask), MaskedAttention(off_by_one_mask)), "mixers.1"
    ),
    "mask inverted": Leak(lambda: Wrapped(MaskedAttention(inverted_mask)), "mixers.0"),
    "mask dropped in training": Leak(
        lambda: Wrapped(MaskedAttention(causal_mask, unmasked_in_training=True), dropout=0.1),
        "mixers.0",
        "training, float32",
    ),
    "batch statistics": Leak(
        lambda: Wrapped(MaskedAttention(causal_mask), BatchStatistics()), "mixers.1.norm", "training, float32"
    ),
    "batch statistics by position": Leak(
        lambda: Wrapped(PositionwiseBatchStatistics()), "mixers.0", "training, float32, across the batch"
    ),
    "convolution padded on both sides": Leak(lambda: Wrapped(Convolution(2, 2)), "mixers.0.filter"),
    "the lab's EGA, sequence": Leak(
        lambda: lab_model({"name": "ega", "gate_norm": "sequence"}, "mope", 0.1, n_layers=2),
        "blocks.0.attention",
    ),
}

LAB: dict[str, tuple[Plain, str]] = {
    **{name: ({"name": name}, "learned") for name in ATTENTIONS},
    **{
        f"ega, norm {norm}": ({"name": "ega", "gate_norm": norm}, "learned")
        for norm, facts in GATE_NORMS.items()
        if facts.causal and norm != "causal"
    },
    **{
        f"ega, {name}": ({"name": "ega", "signal": name}, "learned")
        for name in GATE_SIGNALS
        if name != "linear"
    },
    **{f"dot, {name}": ({"name": "dot"}, name) for name in POSITIONS if name != "learned"},
}
"""Every mechanism of the lab that declares itself causal, each once."""

CLEAN: dict[str, Callable[[], nn.Module]] = {
    **{name: partial(lab_model, *model, 0.1) for name, model in LAB.items()},
    "ega, mope, without dropout": lambda: lab_model({"name": "ega"}, "mope", 0.0),
    "torch encoder": lambda: TorchEncoder(0.1),
    "GRU": lambda: Recurrent(0.1),
    "causal convolution": lambda: Wrapped(Convolution(4, 0), Convolution(4, 0), dropout=0.1),
    "causal linear attention": lambda: Wrapped(LinearAttention(), dropout=0.1),
    "causal attention": lambda: Wrapped(MaskedAttention(causal_mask), dropout=0.1),
    "padded FFT filter": lambda: Wrapped(FourierFilter(padded=True), FourierFilter(padded=True)),
}

QUICK = [
    name
    for name in CLEAN
    if name not in LAB or name in ATTENTIONS or name in ("ega, norm visible", "ega, phase", "dot, rope")
]
"""Those asked in every `make test`: each attention, and of norms, signals and positions the ones most unlike the rest."""


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """The model of that seed."""
    torch.manual_seed(seed)
    return build()


def window_ids(seed: int, windows: int = 6) -> Tensor:
    """Random windows of this vocabulary and context."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (windows, CONTEXT), generator=generator)
