"""What a run is made of: frozen settings, presets, and plain JSON in and out.

Standard library only. A mechanism's own settings travel here as plain data (`{"name": "ega",
"gate_norm": "causal"}`); the dataclass that says what they mean stands beside the mechanism, and
`ega_mope.model.resolve` holds the one against the other.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar

Plain = dict[str, Any]
"""Plain data: what json.dumps takes."""

T = TypeVar("T")


def setting(
    default: Any,
    help: str,
    *,
    minimum: int | float | None = None,
    maximum: int | float | None = None,
    choices: Callable[[], list[str]] | None = None,
    names_run: bool = False,
) -> Any:
    """A dataclass field that carries its help text and the values it allows.

    The command line, the Train page and the error messages read them from here. `choices` is a
    function, so that a setting may name the entries of a registry that is filled later. `names_run` says
    that the value is the name of a run, which whoever knows run folders looks up.
    """
    return dataclasses.field(
        default=default,
        metadata={
            "help": help,
            "minimum": minimum,
            "maximum": maximum,
            "choices": choices,
            "names_run": names_run,
        },
    )


def allowed_values(field: dataclasses.Field[Any], annotation: Any) -> list[Any] | None:
    """The values a field may take, where they can be listed; None where they cannot."""
    choices = field.metadata.get("choices")
    if choices is not None:
        return list(choices())
    if typing.get_origin(annotation) is Literal:
        return list(typing.get_args(annotation))
    if annotation is bool:
        return [True, False]
    return None


def read_settings(cls: type[T], data: Mapping[str, Any], where: str) -> T:
    """Build the settings dataclass `cls` from plain data; missing keys take their defaults.

    Raises ValueError, in one line, for an unknown key (naming the valid ones), a value of the wrong
    kind, or a value outside what the field allows. `where` names the place, such as "model.position".
    """
    assert dataclasses.is_dataclass(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(set(data) - set(fields))
    if unknown:
        valid = ", ".join(fields) or "none: it has no settings"
        raise ValueError(
            f"{where}: expected settings among ({valid}), got {unknown[0]!r}; remove or rename it"
        )
    hints = _hints(cls)
    values = {key: _checked(fields[key], hints[key], value, f"{where}.{key}") for key, value in data.items()}
    return cls(**values)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """The types of a settings class's fields; working them out takes longer than reading the settings."""
    return typing.get_type_hints(cls)


def _checked(field: dataclasses.Field[Any], annotation: Any, value: Any, where: str) -> Any:
    values = allowed_values(field, annotation)
    if values is not None:
        if value not in values or (annotation is bool and not isinstance(value, bool)):
            listed = ", ".join(str(v) for v in values)
            raise ValueError(f"{where}: expected one of ({listed}), got {value!r}; choose one of them")
        return value
    value = _of_kind(annotation, value, where)
    low, high = field.metadata.get("minimum"), field.metadata.get("maximum")
    if value is not None and ((low is not None and value < low) or (high is not None and value > high)):
        bounds = (
            f"at least {low}" if high is None else f"at most {high}" if low is None else f"{low} to {high}"
        )
        raise ValueError(f"{where}: expected {bounds}, got {value!r}; choose a value in that range")
    return value


def _of_kind(annotation: Any, value: Any, where: str) -> Any:
    if isinstance(annotation, types.UnionType):
        if value is None:
            return None
        annotation = next(a for a in typing.get_args(annotation) if a is not type(None))
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    kind = typing.get_origin(annotation) or annotation
    if not isinstance(value, kind) or (kind in (int, float) and isinstance(value, bool)):
        raise ValueError(f"{where}: expected a value of kind {kind.__name__}, got {value!r}; change its kind")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where}: expected a finite number, got {value}; give one")
    return value


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of one character language model and the mechanisms in it."""

    vocabulary_size: int = setting(65, "number of different tokens", minimum=1)
    context_length: int = setting(128, "tokens in one window", minimum=1)
    n_layers: int = setting(4, "number of blocks", minimum=1)
    n_heads: int = setting(4, "attention heads per block", minimum=1)
    d_model: int = setting(128, "width of the residual stream, in channels", minimum=1)
    dropout: float = setting(
        0.0, "probability of dropping attention weights and residual updates", minimum=0.0, maximum=0.99
    )
    attention: Plain = dataclasses.field(default_factory=lambda: {"name": "dot"})
    position: Plain = dataclasses.field(default_factory=lambda: {"name": "learned"})

    def __post_init__(self) -> None:
        if self.d_model % self.n_heads:
            raise ValueError(
                f"model.d_model: expected a multiple of n_heads = {self.n_heads}, got {self.d_model}; "
                f"{self.d_model // self.n_heads * self.n_heads or self.n_heads} would fit"
            )

    @property
    def d_head(self) -> int:
        """Channels per head."""
        return self.d_model // self.n_heads


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained: AdamW, linear warm-up from 0, cosine decay."""

    steps: int = setting(2000, "number of optimizer updates", minimum=1)
    batch_size: int = setting(32, "windows per update", minimum=1)
    learning_rate: float = setting(1e-3, "peak learning rate", minimum=0.0)
    final_rate: float = setting(
        0.1, "last learning rate, as a fraction of the peak", minimum=0.0, maximum=1.0
    )
    warmup_steps: int = setting(100, "updates of linear warm-up; the first is at rate 0", minimum=0)
    beta1: float = setting(0.9, "AdamW's decay of the mean", minimum=0.0, maximum=0.9999)
    beta2: float = setting(0.95, "AdamW's decay of the square", minimum=0.0, maximum=0.99999)
    weight_decay: float = setting(0.1, "AdamW's decoupled weight decay", minimum=0.0)
    decay_on: Literal["matrices", "all"] = setting("matrices", "which parameters decay")
    clip_norm: float = setting(1.0, "largest gradient norm; 0 means no clipping", minimum=0.0)
    precision: Literal["float32", "float16", "bfloat16"] = setting(
        "float32", "autocast precision; float16 needs CUDA, on the CPU it trains in float32"
    )
    evaluate_every: int = setting(100, "updates between evaluations", minimum=1)
    log_every: int = setting(10, "updates between records of the training loss", minimum=1)
    validation_batches: int = setting(
        0, "random batches per evaluation; 0 means the whole validation split, every window once", minimum=0
    )

    def learning_rate_at(self, step: int) -> float:
        """Learning rate of update `step`, counted from 0: warm-up, then cosine to `final_rate`."""
        if step < self.warmup_steps:
            return self.learning_rate * step / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - 1 - self.warmup_steps)
        low = self.learning_rate * self.final_rate
        return low + (self.learning_rate - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    def most_log_move(self, multiplier: float = 1.0, steps: int | None = None) -> float:
        """The most that Adam can move a parameter over the whole training, or over the first `steps` updates:
        sum of the rates x multiplier x the largest single update for these betas.

        An update is at most (1 − β1)/√((1 − β2)(1 − β1²/β2))-fold the rate (Cauchy–Schwarz over the
        two moving averages): 1.165 for 0.9/0.95. Weight decay is not counted.
        """
        b1, b2 = self.beta1, self.beta2
        if b1 == 0.0:
            largest = 1.0 / math.sqrt(1 - b2)
        elif b1 * b1 >= b2:
            return math.inf
        else:
            largest = (1 - b1) / math.sqrt((1 - b2) * (1 - b1 * b1 / b2))
        updates = self.steps if steps is None else steps
        return largest * multiplier * _sum_of_rates(self, updates)


@lru_cache(maxsize=4096)
def _sum_of_rates(training: TrainConfig, updates: int) -> float:
    return math.fsum(map(training.learning_rate_at, range(updates)))


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """Everything that decides a training: model, training, text, seed."""

    model: ModelConfig
    training: TrainConfig
    corpus: str = "tinyshakespeare"
    tokenizer: str = "characters"
    seed: int = 0
    preset: str = "small"


@dataclass(frozen=True, kw_only=True)
class ImportedConfig:
    """What is known of a model that was trained elsewhere: how, and from which seed, is not."""

    model: ModelConfig
    corpus: str
    tokenizer: str
    preset: str = "imported"
    training: None = None
    seed: None = None


def smoke() -> tuple[ModelConfig, TrainConfig]:
    """Seconds on a laptop: does it run, does it learn anything at all."""
    model = ModelConfig(context_length=64, n_layers=2, n_heads=2, d_model=64)
    training = TrainConfig(steps=200, batch_size=16, learning_rate=2e-3, warmup_steps=20, evaluate_every=50)
    return model, training


def small() -> tuple[ModelConfig, TrainConfig]:
    """Minutes on one core, about 0.8 M parameters: the size of the runs that ship."""
    return ModelConfig(), TrainConfig()


def paper() -> tuple[ModelConfig, TrainConfig]:
    """The paper's size and training, to the letter (arXiv 2605.26355; its published script)."""
    model = ModelConfig(context_length=256, n_layers=6, n_heads=8, d_model=256, dropout=0.1)
    training = TrainConfig(
        steps=5001,
        batch_size=64,
        learning_rate=3e-4,
        final_rate=0.0,
        warmup_steps=300,
        decay_on="all",
        precision="float16",
        evaluate_every=500,
        validation_batches=50,
    )
    return model, training


PRESETS: dict[str, Callable[[], tuple[ModelConfig, TrainConfig]]] = {
    "smoke": smoke,
    "small": small,
    "paper": paper,
}


def preset(name: str) -> tuple[ModelConfig, TrainConfig]:
    """The preset of that name; ValueError names the valid ones."""
    if name not in PRESETS:
        raise ValueError(f"preset: expected one of ({', '.join(PRESETS)}), got {name!r}; choose one of them")
    return PRESETS[name]()


def to_plain(config: Any) -> Plain:
    """A settings dataclass as plain data."""
    return dataclasses.asdict(config)


def experiment_from_plain(data: Mapping[str, Any]) -> ExperimentConfig:
    """The inverse of `to_plain` for an ExperimentConfig; every value is checked."""
    rest = dict(data)
    model = read_settings(ModelConfig, rest.pop("model", {}), "model")
    training = read_settings(TrainConfig, rest.pop("training", {}), "training")
    hollow = {"model": model, "training": training, **rest}
    return read_settings(ExperimentConfig, hollow, "config")


def flatten(data: Mapping[str, Any], prefix: str = "") -> Plain:
    """Nested mappings as one mapping by dotted key: {"a": {"b": 1}} gives {"a.b": 1}."""
    flat: Plain = {}
    for key, value in data.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat.update(flatten(value, dotted + "."))
        else:
            flat[dotted] = value
    return flat


def with_overrides(data: Mapping[str, Any], overrides: Mapping[str, Any]) -> Plain:
    """Plain data with values replaced by dotted key, or by a key's last part where that is unique.

    Raises ValueError for a key that is not there, or is ambiguous, naming the valid ones.
    """
    valid = list(flatten(data))
    result = _deep_copy(data)
    for key, value in overrides.items():
        found = [dotted for dotted in valid if dotted == key] or [
            dotted for dotted in valid if dotted.endswith("." + key)
        ]
        if len(found) != 1:
            got = f"{key!r}, which fits {' and '.join(found)}" if found else repr(key)
            raise ValueError(
                f"setting: expected one of ({', '.join(found or valid)}), got {got}; name one of them"
            )
        *path, last = found[0].split(".")
        target = result
        for part in path:
            target = target[part]
        target[last] = value
    return result


def _deep_copy(data: Mapping[str, Any]) -> Plain:
    return {key: _deep_copy(value) if isinstance(value, Mapping) else value for key, value in data.items()}
