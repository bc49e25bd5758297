"""The character language model: a pre-norm transformer with exchangeable attention and positions."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ega_mope.attention import ATTENTIONS, Attention, Past, Trace
from ega_mope.attention.ega import EnergyGatedAttention
from ega_mope.config import ModelConfig, Plain, read_settings
from ega_mope.dropout import Dropout
from ega_mope.positions import POSITIONS, Position
from ega_mope.positions.base import GeneratorFor


class Block(nn.Module):
    """x + attention(LayerNorm(x)), then x + MLP(LayerNorm(x)); exact-erf GELU, four times as wide."""

    def __init__(self, config: ModelConfig, attention: Attention) -> None:
        super().__init__()
        width = config.d_model
        self.norm_attention = nn.LayerNorm(width)
        self.attention = attention
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "batch time d_model"],
        position: Position,
        positions: Int[Tensor, " time"],
        trace: Trace,
        past: Past | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        attended = self.attention(self.norm_attention(x), x, position, positions, trace, past)
        x = x + self.dropout(attended)
        return x + self.dropout(self.mlp(self.norm_mlp(x)))


class CharLM(nn.Module):
    """ids [batch, time] to logits [batch, time, vocabulary]; the output head is the token embedding."""

    def __init__(self, config: ModelConfig, attentions: list[Attention], position: Position) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocabulary_size, config.d_model)
        self.position = position
        self.blocks = nn.ModuleList(Block(config, attention) for attention in attentions)
        self.norm_final = nn.LayerNorm(config.d_model)

    @property
    def attentions(self) -> list[Attention]:
        """The attention of each layer."""
        return [block.attention for block in self.blocks]  # type: ignore[misc]

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time vocabulary"]:
        return self._run(ids, Trace(()))

    def trace(
        self, ids: Int[Tensor, "batch time"], want: Iterable[str]
    ) -> tuple[Float[Tensor, "batch time vocabulary"], Trace]:
        """Logits, and the activations of the kinds in `want` (see `ega_mope.attention.trace.KINDS`)."""
        trace = Trace(want)
        return self._run(ids, trace), trace

    def trace_gates(self, ids: Int[Tensor, "batch time"]) -> Trace:
        """`energy`, `z` and `gate` as in `trace`, without the work after the last gate.

        ValueError for a model without energy gates.
        """
        gated = self.attentions[-1]
        if not isinstance(gated, EnergyGatedAttention):
            name = self.config.attention["name"]
            raise ValueError(
                f"model: expected one with energy gates, got attention {name}; choose another run"
            )
        trace = Trace(("energy", "z", "gate"))
        positions, x = self._embed(ids, 0)
        *before, last = self.blocks
        for block in before:
            x = block(x, self.position, positions, trace)
        gated.gate_logit(last.norm_attention(x), x, trace)  # type: ignore[operator]
        return trace

    @property
    def caches(self) -> bool:
        """Whether `next_logits` can read a text token by token: causal attention that keeps what it needs."""
        return is_causal(self.config) and all(a.caches(a.settings) for a in self.attentions)

    def next_logits(
        self, ids: Int[Tensor, " batch"], at: int, pasts: list[Past]
    ) -> Float[Tensor, "batch vocabulary"]:
        """Logits after the token at position `at`, given the `Past` of each layer after the tokens before it.

        Starts at 0 with an empty `Past` a layer, each of which it extends; for models in evaluation mode whose
        `caches` is true. The logits are those of `forward` at that position.
        """
        return self._run(ids[:, None], Trace(()), at, pasts)[:, -1]

    def _run(
        self, ids: Tensor, trace: Trace, first: int = 0, pasts: Sequence[Past | None] | None = None
    ) -> Tensor:
        positions, x = self._embed(ids, first)
        for block, past in zip(self.blocks, pasts or [None] * len(self.blocks), strict=True):
            trace.add("residual", x)
            x = block(x, self.position, positions, trace, past)
        trace.add("residual", x)
        return nn.functional.linear(self.norm_final(x), self.token_embedding.weight)

    def _embed(self, ids: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """The positions from `first` on, and what enters the first block."""
        positions = torch.arange(first, first + ids.shape[1], device=ids.device)
        x = self.token_embedding(ids)
        if "input" in self.position.acts_on(self.position.settings):
            x = x + self.position.encode(positions).to(x.dtype)
        return positions, x

    def learned(self) -> dict[str, Tensor]:
        """Every mechanism's learned scalars: `position.…`, and `attention.…` stacked as [layer, head]."""
        values = {f"position.{name}": value for name, value in self.position.learned().items()}
        per_layer = [attention.learned() for attention in self.attentions]
        for name in per_layer[0]:
            values[f"attention.{name}"] = torch.stack([layer[name] for layer in per_layer])
        return values

    def rate_multipliers(self) -> dict[str, float]:
        """Learning-rate multiplier of each parameter that does not train at 1."""
        found: dict[str, float] = {}
        for prefix, module in self.named_modules():
            if isinstance(module, Attention | Position):
                found |= {f"{prefix}.{name}": value for name, value in module.rate_multipliers().items()}
        return {name: value for name, value in found.items() if value != 1.0}

    def parameter_counts(self) -> dict[str, int]:
        """Parameters in all and by part; `attention_gate` is what the attention has beyond dot product."""
        counts = dict.fromkeys(("embedding", "position", "attention", "attention_gate", "mlp", "norm"), 0)
        for name, parameter in self.named_parameters():
            counts[_part(name)] += parameter.numel()
        return {"total": sum(counts.values()), **counts}


def _part(name: str) -> str:
    if name.startswith("token_embedding."):
        return "embedding"
    if name.startswith("position."):
        return "position"
    if ".attention." in name:
        return "attention" if ".attention.qkv." in name or ".attention.out." in name else "attention_gate"
    return "mlp" if ".mlp." in name else "norm"


def mechanism_settings(registry: dict[str, Any], data: Plain, where: str) -> tuple[Any, Any]:
    """The mechanism's class and checked settings from `{"name": …, setting: value, …}`."""
    rest = dict(data)
    name = rest.pop("name", None)
    if name not in registry:
        raise ValueError(
            f"{where}: expected one of ({', '.join(registry)}), got {name!r}; choose one of them"
        )
    cls = registry[name]
    return cls, read_settings(cls.Settings, rest, f"{where} {name}")


def refusal(attention: str, position: str, position_settings: Plain | None = None) -> str | None:
    """Why this attention and this position cannot be combined, or None where they can."""
    cls, settings = mechanism_settings(POSITIONS, {"name": position, **(position_settings or {})}, "position")
    missing = cls.acts_on(settings) - ATTENTIONS[attention].honours
    if not missing:
        return None
    works = [
        name
        for name, other in POSITIONS.items()
        if other.acts_on(other.Settings()) <= ATTENTIONS[attention].honours
    ]
    acts = " and ".join(sorted(missing))
    return (
        f"attention {attention} and position {position}: expected a position that {attention} makes use of, got one "
        f"that acts on {acts}; choose a position among ({', '.join(works)}), or another attention"
    )


def resolve(config: ModelConfig) -> ModelConfig:
    """The same model with every mechanism setting filled in; ValueError for what cannot be built."""
    filled: dict[str, Any] = {}
    for where, registry in (("attention", ATTENTIONS), ("position", POSITIONS)):
        data = getattr(config, where)
        _, settings = mechanism_settings(registry, data, where)
        filled[where] = {"name": data["name"], **dataclasses.asdict(settings)}
    rest = {key: value for key, value in filled["position"].items() if key != "name"}
    reason = refusal(filled["attention"]["name"], filled["position"]["name"], rest)
    if reason:
        raise ValueError(reason)
    return dataclasses.replace(config, **filled)


def is_causal(config: ModelConfig) -> bool:
    """Whether the mechanisms of this model declare that no logit depends on a later token."""
    attention, attention_settings = mechanism_settings(ATTENTIONS, config.attention, "attention")
    position, position_settings = mechanism_settings(POSITIONS, config.position, "position")
    return attention.causal(attention_settings) and position.causal(position_settings)


def stream_generator(seed: int, name: str) -> torch.Generator:
    """A random stream of its own for each (seed, name), on the CPU.

    So what is added to a model never changes what the rest of it draws: at one seed all models share
    the parameters that they have in common, and the batches.
    """
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


def build_model(config: ModelConfig, seed: int = 0) -> CharLM:
    """A freshly initialised model: weights N(0, 0.02), biases 0, LayerNorms the identity.

    Raises ValueError for unknown mechanisms or settings, and for pairs that do not go together.
    """
    model = _construct(resolve(config))
    _initialise(model, seed)
    return model


def parameter_counts(config: ModelConfig) -> dict[str, int]:
    """How many parameters such a model has, in all and by part, without making them."""
    with torch.device("meta"):
        return _construct(resolve(config)).parameter_counts()


def _construct(config: ModelConfig) -> CharLM:
    attention, attention_settings = mechanism_settings(ATTENTIONS, config.attention, "attention")
    position, position_settings = mechanism_settings(POSITIONS, config.position, "position")
    return CharLM(
        config,
        [attention(config, attention_settings) for _ in range(config.n_layers)],
        position(config, position_settings),
    )


def _initialise(model: CharLM, seed: int) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, 0.02, generator=stream_generator(seed, name))
            elif name.endswith("bias"):
                parameter.zero_()
    for prefix, module in model.named_modules():
        if isinstance(module, Attention | Position):
            module.initialise(_streams_of(prefix, seed))


def _streams_of(prefix: str, seed: int) -> GeneratorFor:
    return lambda name: stream_generator(seed, f"{prefix}.{name}")


def choose_device(name: str = "auto") -> torch.device:
    """`auto` takes CUDA where there is one; ValueError where an asked-for device is not there."""
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device: expected one of (auto, cpu, cuda), got {name!r}; choose one of them")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: expected a CUDA GPU that torch can use, got none; choose --device cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
