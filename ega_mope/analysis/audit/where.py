"""Where the future enters: the first module whose output before t depends on tokens after t.

A forward hook on every module records its inputs and outputs, cut to what may not depend on the change,
once with the windows as they are and once with the later tokens (or the other windows) changed. The
module named is the first to finish whose inputs are the same both times and whose output is not. A
module that mixes tokens in functional code of its own, outside its submodules, is thus named itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn

from ega_mope.analysis.audit.changes import movement
from ega_mope.analysis.audit.probe import FLOOR
from ega_mope.analysis.audit.subject import CallError, Mode, Subject

Cut = Callable[[Tensor], Tensor | None]
"""What of a tensor may not depend on the change; None where the tensor does not say which part that is."""


@dataclass(frozen=True)
class _Call:
    """One call of a module: what of its inputs and outputs may not depend on the change."""

    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]


def first_leak(
    subject: Subject,
    mode: Mode,
    ids: Int[Tensor, "window time"],
    changed: Int[Tensor, "window time"],
    cut: Cut,
) -> str | None:
    """Name of the first module that lets the change in; None for a plain function and where none is found."""
    if subject.module is None:
        return None
    try:
        before = _record(subject, mode, ids, cut)
        after = _record(subject, mode, changed, cut)
    except CallError:
        return None
    limit = FLOOR * subject.resolution(mode)
    for a, b in zip(before, after, strict=False):
        if a.name != b.name:
            return None
        if _differ(a.outputs, b.outputs, limit) and not _differ(a.inputs, b.inputs, limit):
            return a.name or f"{type(subject.module).__name__}, outside its submodules"
    return None


def cut_time(batch: int, time: int, first: int) -> Cut:
    """Positions before `first`, on every axis that can be time: [batch, time, …], [time, batch, …],
    [batch, …, query, key], and [batch·time, …] split first."""

    def cut(value: Tensor) -> Tensor | None:
        value = _split(value, batch, time)
        axes = [axis for axis, size in enumerate(value.shape) if size == time]
        for axis in axes:
            value = value.narrow(axis, 0, first)
        return value if axes else None

    return cut


def cut_row(batch: int, time: int, row: int) -> Cut:
    """One window of the batch, on every axis of the batch's size, [batch·time, …] split first."""

    def cut(value: Tensor) -> Tensor | None:
        value = _split(value, batch, time)
        axes = [axis for axis, size in enumerate(value.shape) if size == batch]
        for axis in axes:
            value = value.narrow(axis, row, 1)
        return value if axes else None

    return cut


def _split(value: Tensor, batch: int, time: int) -> Tensor:
    if value.ndim and value.shape[0] == batch * time and batch > 1:
        return value.unflatten(0, (batch, time))
    return value


def _record(subject: Subject, mode: Mode, ids: Tensor, cut: Cut) -> list[_Call]:
    """Every call of every module, in the order in which they finish."""
    assert subject.module is not None
    calls: list[_Call] = []
    waiting: list[list[Tensor]] = []

    def kept(values: Any) -> list[Tensor]:
        parts = (cut(value.detach()) for value in _tensors(values))
        return [part.clone() for part in parts if part is not None]

    def watch(name: str, module: nn.Module) -> Iterator[Any]:
        # Inputs are kept before the call: a module may change them in place.
        def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
            waiting.append(kept((args, kwargs)))

        def leave(_: nn.Module, args: Any, output: Any) -> None:
            calls.append(_Call(name, waiting.pop(), kept(output)))

        yield module.register_forward_pre_hook(enter, with_kwargs=True)
        yield module.register_forward_hook(leave)

    handles = [handle for name, m in subject.module.named_modules() for handle in watch(name, m)]
    try:
        subject.logits(ids, mode)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _differ(a: list[Tensor], b: list[Tensor], limit: float) -> bool:
    """Whether any tensor moved by more than `limit` of its largest entry."""
    for x, y in zip(a, b, strict=False):
        if x.shape != y.shape:
            return True
        if not x.numel():
            continue
        moved = float(movement(x.double().flatten(), y.double().flatten()))
        finite = x.double()[x.isfinite()].abs()
        if moved > limit * (float(finite.max()) if finite.numel() else 0.0):
            return True
    return False
