"""What every position encoding offers; a new one is a file beside this and one line in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ega_mope.config import ModelConfig, setting

ActsOn = Literal["input", "query_key", "scores"]
Memory = Literal["linear", "quadratic"]
GeneratorFor = Callable[[str], torch.Generator]
"""Gives the random stream of a parameter by its name inside the module."""


@dataclass(frozen=True)
class Prior:
    """What a mechanism can take from another run's weights, to start from or to be held to.

    parameters  those whose names inside the mechanism begin so
    sizes       of the model that must be equal in both runs, or the parameters would not fit
    settings    of the mechanism that must be equal, or they would not mean the same
    """

    parameters: tuple[str, ...]
    sizes: tuple[str, ...]
    settings: tuple[str, ...] = ()


def from_run_setting(help: str) -> Any:
    """A settings field that names the run whose prior is taken; `ega_mope.priors` looks it up, once, and adds
    the values' hash: NAME@HASH."""
    return setting(None, help, names_run=True)


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """For a mechanism that has none."""


class Position(nn.Module):
    """Tells the model where a token stands.

    A subclass says what it acts on and overrides the methods of just that: `encode` for "input",
    `rotate` for "query_key", `bias` for "scores".
    """

    Settings: ClassVar[type] = NoSettings
    prior: ClassVar[Prior | None] = None
    """What can be taken from another run; a mechanism that has one has the setting `from_run`."""

    def __init__(self, model: ModelConfig, settings: Any) -> None:
        super().__init__()
        self.model = model
        self.settings = settings

    @classmethod
    def acts_on(cls, settings: Any) -> frozenset[ActsOn]:
        """Where this encoding enters the model."""
        raise NotImplementedError

    @classmethod
    def causal(cls, settings: Any) -> bool:
        """Whether no output depends on a later token."""
        return True

    @classmethod
    def memory(cls, settings: Any) -> Memory:
        """How training memory grows with the context length."""
        return "linear"

    def longest(self) -> int | None:
        """How many positions it can tell apart, in tokens; None where there is no end to them."""
        return None

    def encode(self, positions: Int[Tensor, " time"]) -> Float[Tensor, "time d_model"]:
        """What is added to the token embeddings at these positions."""
        raise NotImplementedError

    def rotate(
        self, x: Float[Tensor, "batch head time d_head"], positions: Int[Tensor, " time"]
    ) -> Float[Tensor, "batch head time d_head"]:
        """Queries or keys as seen from these positions."""
        raise NotImplementedError

    def bias(self, query: Int[Tensor, " query"], key: Int[Tensor, " key"]) -> Float[Tensor, "head query key"]:
        """What is added to the attention scores, in nats of unnormalised log-weight."""
        raise NotImplementedError

    def learned(self) -> dict[str, Tensor]:
        """The learned scalars by name, detached; units in the subclass."""
        return {}

    def rate_multipliers(self) -> dict[str, float]:
        """Learning-rate multipliers by parameter name inside this module; others train at 1."""
        return {}

    def initialise(self, generator_for: GeneratorFor) -> None:
        """Set the parameters that do not start as N(0, 0.02) weights or zero biases."""
