"""What is audited: any callable from ids to logits, called in one mode at a time and left as it was found."""

from __future__ import annotations

import contextlib
import copy
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Stage = Literal["evaluation", "training", "as called"]


@dataclass(frozen=True)
class Mode:
    """One way of calling the model. A plain function has no training switch: it is only "as called"."""

    stage: Stage
    precision: Literal["own", "bf16"]


_ALONE = threading.RLock()
"""Random states belong to the whole process: two audits at once would not repeat."""


class CallError(Exception):
    """The model raised, or answered something else than logits; the text says which, in one line."""


class Subject:
    """A model under audit.

    `logits` repeats: the random state is set before every call, so that dropout draws the same numbers.
    bf16 is torch's autocast, as in training; the model's own weights are never cast.
    """

    def __init__(self, call: Callable[[Tensor], Any]) -> None:
        self.call = call
        self.module = call if isinstance(call, nn.Module) else None
        tensors = [*self.module.parameters(), *self.module.buffers()] if self.module is not None else []
        self.device = tensors[0].device if tensors else torch.device("cpu")
        self.dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)

    def modes(self) -> list[Mode]:
        """Every mode that can be asked for, the most telling first."""
        stages: tuple[Stage, ...] = ("as called",) if self.module is None else ("evaluation", "training")
        own = [Mode(stage, "own") for stage in stages]
        return own + [Mode(stage, "bf16") for stage in stages if self.dtype == torch.float32]

    def name(self, mode: Mode) -> str:
        """The mode in words, such as "training, float32"."""
        precision = "bf16" if mode.precision == "bf16" else str(self.dtype).removeprefix("torch.")
        return f"{mode.stage}, {precision}"

    def resolution(self, mode: Mode) -> float:
        """The relative distance of neighbouring numbers (one unit in the last place) in this mode."""
        return torch.finfo(torch.bfloat16 if mode.precision == "bf16" else self.dtype).eps

    def logits(
        self, ids: Int[Tensor, "batch time"], mode: Mode, seed: int = 0
    ) -> Float[Tensor, "batch time v"]:
        """Detached logits in float32 or better; CallError where the model cannot do it."""
        if self.module is not None:
            self.module.train(mode.stage == "training")
        _fix_random_state(seed)
        with (
            torch.set_grad_enabled(mode.stage == "training"),
            torch.autocast(self.device.type, torch.bfloat16, enabled=mode.precision == "bf16"),
        ):
            try:
                answer = self.call(ids.to(self.device))
            except Exception as error:  # whatever somebody else's model raises is an answer to report
                first_line = (str(error).strip().splitlines() or [""])[0]
                raise CallError(f"{type(error).__name__}: {first_line[:160]}") from error
        if not isinstance(answer, Tensor) or answer.ndim != 3 or answer.shape[:2] != ids.shape:
            got = list(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            raise CallError(
                f"expected a tensor of logits [{ids.shape[0]}, {ids.shape[1]}, vocabulary], got {got}"
            )
        answer = answer.detach()
        return answer if answer.dtype == torch.float64 else answer.float()

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[None]:
        """Whatever the audit does inside, the model's mode and buffers and all random states come back after."""
        modules = list(self.module.modules()) if self.module is not None else []
        was_training = [module.training for module in modules]
        buffers = [(b, b.detach().clone()) for b in self.module.buffers()] if self.module is not None else []
        devices = [self.device] if self.device.type == "cuda" else []
        with _ALONE, torch.random.fork_rng(devices):
            numpy_state, python_state = np.random.get_state(), random.getstate()
            try:
                yield
            finally:
                for module, training in zip(modules, was_training, strict=True):
                    module.training = training
                with torch.no_grad():
                    for buffer, before in buffers:
                        buffer.copy_(before)
                np.random.set_state(numpy_state)
                random.setstate(python_state)

    def in_float64(self) -> Subject | None:
        """A copy that computes in float64; None for a plain function and for what cannot be copied."""
        if self.module is None or self.dtype == torch.float64:
            return None
        try:
            return Subject(copy.deepcopy(self.module).double())
        except (RuntimeError, TypeError):
            return None


def _fix_random_state(seed: int) -> None:
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        # The same for the CPU, without the note that the other leaves for each kind of device, traceback and all.
        torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
