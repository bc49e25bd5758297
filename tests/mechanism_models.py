"""Small float64 models and signals with known inputs, for tests of single mechanisms."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ega_mope.config import ModelConfig, Plain
from ega_mope.gate_signals import GATE_SIGNALS
from ega_mope.model import CharLM, build_model

TIME = 40
WIDTH = 16


def model_of(attention: Plain, position: Plain | None = None, **sizes: Any) -> CharLM:
    """A float64 model with weights of ordinary size; at one seed all share what they have in common."""
    shape = {"vocabulary_size": 9, "context_length": TIME, "n_layers": 2, "n_heads": 4, "d_model": WIDTH}
    config = ModelConfig(**{**shape, **sizes}, attention=attention, position=position or {"name": "learned"})
    model = build_model(config, seed=2).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(10.0)
    return model


def ids_of(time: int = TIME) -> Tensor:
    return torch.randint(9, (2, time), generator=torch.Generator().manual_seed(1))


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gap(one: CharLM, other: CharLM) -> float:
    with torch.no_grad():
        return float((one(ids_of()) - other(ids_of())).abs().max())


def with_parameters(model: CharLM, part: str, value: float) -> CharLM:
    """The same model with every parameter whose name holds `part` set to `value`."""
    found = [parameter for name, parameter in model.named_parameters() if part in name]
    assert found
    with torch.no_grad():
        for parameter in found:
            parameter.fill_(value)
    return model


def dot() -> CharLM:
    return model_of({"name": "dot"})


def with_position(name: str, **settings: Any) -> CharLM:
    return model_of({"name": "dot"}, {"name": name, **settings})


def position_of(name: str, **settings: Any) -> Any:
    return with_position(name, **settings).position


def signal_of(name: str, stream: Tensor, x: Tensor | None = None, heads: int = 2) -> Tensor:
    """The signal of a text whose residual stream is `stream` [time] in every channel, [head, time]."""
    signal = GATE_SIGNALS[name](ModelConfig(n_heads=heads, d_model=4)).double()
    for parameter in signal.parameters():
        if parameter.ndim == 2:
            torch.nn.init.eye_(parameter)
    wide = stream.double()[None, :, None].expand(1, -1, 4)
    return signal(wide if x is None else x, wide)[0].detach()


def morlet_by_hand(n: int, omega: float, sigma: float) -> np.ndarray:
    t = np.arange(n) - (n - 1) / 2
    taps = np.exp(-(t**2) / (2 * sigma**2)) * np.exp(1j * omega * t)
    return taps / np.sqrt((np.abs(taps) ** 2).sum())
