"""Checkpoint files: which program saved one, and what is in it."""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ega_mope.config import Plain
from ega_mope.importers.history import as_number
from ega_mope.importers.nanogpt import from_nanogpt_state
from ega_mope.importers.published import from_published_state
from ega_mope.model import CharLM

NUMPY_NUMBERS: list[Any] = [
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float64", "float32", "int64", "int32")),
    np.float64(0).__reduce__()[0],
    (np.float64(0).__reduce__()[0], "numpy.core.multiarray.scalar"),
]
"""What torch may build while it reads besides tensors and plain values: histories often hold numpy numbers."""


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: the model after `step` updates, the losses its author logged, other facts."""

    layout: str
    model: CharLM
    step: int
    history: Any
    facts: Plain
    sha256: str


def read_checkpoint(path: Path) -> Checkpoint:
    """A file that the published script or nanoGPT saved; ValueError for any other."""
    data, sha256 = _load(path)
    keys = sorted(map(str, data))
    if "model_state" in data:
        model = from_published_state(_mapping(data["model_state"], "model_state"))
        return Checkpoint("published script", model, _step(data, "step"), data.get("history"), {}, sha256)
    if {"model", "model_args"} <= data.keys():
        arguments = _mapping(data["model_args"], "model_args")
        n_heads = arguments.get("n_head")
        if not isinstance(n_heads, int) or n_heads < 1:
            raise ValueError(f"{path.name}: expected a whole number model_args['n_head'], got {n_heads!r}")
        model = from_nanogpt_state(_mapping(data["model"], "model"), n_heads)
        best = as_number(data.get("best_val_loss"))
        facts = {} if best is None or not np.isfinite(best) else {"best_val_loss": best}
        return Checkpoint("nanoGPT", model, _step(data, "iter_num"), None, facts, sha256)
    raise ValueError(
        f"{path.name}: expected the published script's model_state, or nanoGPT's model and model_args, "
        f"got the keys ({', '.join(keys[:8])}); import a file that one of the two saved"
    )


def _load(path: Path) -> tuple[dict[Any, Any], str]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"{path}: expected a file to import, got: {error.strerror}; check the path"
        ) from error
    try:
        # A pickle of another protocol reads all the same; one that does not is answered below.
        with torch.serialization.safe_globals(NUMPY_NUMBERS), warnings.catch_warnings(action="ignore"):
            data = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no pickle run its opcodes into errors of any kind
        unsafe = re.search(r"GLOBAL (\S+)", str(error))
        got = f"one that asks to run {unsafe[1]}" if unsafe else "something else"
        raise ValueError(
            f"{path.name}: expected a file by torch.save with tensors and plain values alone, got {got}; "
            "nothing but weights is ever loaded, save it again without other objects"
        ) from error
    return dict(_mapping(data, path.name)), hashlib.sha256(content).hexdigest()


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{where}: expected a dict, got {type(value).__name__}; import a training checkpoint"
        )
    return value


def _step(data: Mapping[str, Any], key: str) -> int:
    step = as_number(data.get(key))
    if step is None or not step.is_integer() or step < 0:
        raise ValueError(f"checkpoint: expected the number of updates as {key!r}, got {data.get(key)!r}")
    return int(step)
