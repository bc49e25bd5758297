"""A foreign state dict, taken apart name by name until nothing is left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ega_mope.config import ModelConfig
from ega_mope.model import CharLM, build_model


class State:
    """A state dict, freed of its wrappers' prefixes, that knows which entries nobody has taken yet."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.left: dict[str, Tensor] = {}
        for key, value in state.items():
            name = re.sub(r"^((module|_orig_mod)\.)+", "", str(key))
            if not isinstance(value, Tensor):
                raise ValueError(f"state: expected tensors, got {type(value).__name__} as {name!r}")
            if name in self.left:
                raise ValueError(f"state: expected each name once, got {name!r} with and without a prefix")
            if not value.isfinite().all():
                raise ValueError(f"state: expected finite weights, got others in {name!r}; it has diverged")
            self.left[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self.left

    def take(self, name: str) -> Tensor:
        if name not in self.left:
            raise ValueError(
                f"state: expected the key {name!r}, got none; check that the file is whole and of this layout"
            )
        return self.left.pop(name)

    def take_pair(self, theirs: str, ours: str) -> dict[str, Tensor]:
        """Weight and bias of one layer, under our name."""
        return {f"{ours}.{part}": self.take(f"{theirs}.{part}") for part in ("weight", "bias")}

    def count(self, pattern: str) -> int:
        """One more than the largest number that `pattern` catches in a name."""
        found = [int(match[1]) for name in self.left if (match := re.match(pattern, name))]
        return max(found, default=-1) + 1

    def drop(self, pattern: str) -> None:
        """Leave entries out that carry nothing of their own."""
        self.left = {name: value for name, value in self.left.items() if not re.fullmatch(pattern, name)}

    def finish(self) -> None:
        """ValueError if anything is left: it would be a part of the model that we leave out."""
        if self.left:
            raise ValueError(
                f"state: expected only keys of a known layout, got {min(self.left)!r} as well "
                f"({len(self.left)} unknown); a mechanism that this lab cannot represent is not imported"
            )


@contextmanager
def misfits_explained() -> Iterator[None]:
    """Shapes that contradict each other are the file's fault."""
    try:
        yield
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"state: expected shapes that fit together, got: {reason}") from error


def check_tied(head: Tensor, embedding: Tensor) -> None:
    if not torch.equal(head, embedding):
        raise ValueError(
            "state: expected an output head equal to the token embedding, got another; "
            "untied heads cannot be represented"
        )


def model_with(config: ModelConfig, weights: dict[str, Tensor]) -> CharLM:
    """The model with these weights, in float64 where they are, else in float32."""
    model = build_model(config).to(
        torch.float64 if weights["token_embedding.weight"].dtype == torch.float64 else torch.float32
    )
    model.load_state_dict(weights)
    return model.eval()
