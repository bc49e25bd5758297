"""Does any prediction move when only later tokens, or only other windows, change? One mode at a time.

A movement counts when it exceeds the null: the same comparison with the batch's order, its size and the
kernels' shapes changed but no token. The null is rounding alone, so the threshold is

    max(MARGIN × largest null movement, FLOOR × one unit in the last place of the largest logit).

MARGIN. The maximum over N logits of a Gaussian-tailed rounding error exceeds m times another such maximum
with probability about N^(1 − m²): for m = 8 never. It is there because changing a token may round
elsewhere than changing a shape does. FLOOR. On a CPU most nulls are exactly 0, yet a causal convolution by
FFT carries later tokens' rounding back: 1.6 to 3.2 units measured at widths 32 to 128 and windows 64 to
256, while its null is 0. Whatever moves below the threshold is asked again in float64, where rounding
shrinks 5 × 10⁸ times and a real look ahead does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ega_mope.analysis.audit.changes import (
    Change,
    before,
    distance_bins,
    later_changed,
    movement,
    others_changed,
    position_bins,
)
from ega_mope.analysis.audit.subject import CallError, Mode, Subject

MARGIN = 8.0
FLOOR = 16.0


@dataclass(frozen=True)
class Null:
    """Movements seen although no token changed. `rounding` is the largest that is one of rounding.

    A null draw that costs half the digits or more is no rounding: the prediction depends on how windows
    are put together into a batch, which `batch` then says. Nor is the batch's size a null where a window's
    prediction depends on the other windows (batch statistics): only the order is. `random` means that
    another random state gives other logits (dropout): order and size of the batch would then change
    which window gets which mask, so the null is taken from evaluation, in proportion to the logits.
    """

    rounding: float
    repeat: float
    scale: float
    random: bool
    batch: float
    failed: str | None

    def threshold(self, resolution: float) -> float:
        """The largest movement that is still taken for rounding."""
        return max(MARGIN * self.rounding, FLOOR * resolution * self.scale)


@dataclass(frozen=True)
class Finding:
    """What one mode showed; `problem` says why it showed nothing. Movements are of logits, unitless."""

    mode: str
    problem: str | None = None
    own: float = 0.0
    across: float = 0.0
    null: float = 0.0
    threshold: float = 0.0
    batch: float = 0.0
    hidden: bool = False
    by_distance: list[float] = field(default_factory=list)
    by_position: list[float] = field(default_factory=list)
    worst: Change | None = None
    worst_row: int = 0

    @property
    def sees_own_future(self) -> bool:
        return self.own > self.threshold or self.hidden

    @property
    def sees_other_windows(self) -> bool:
        return self.across > self.threshold

    @property
    def sees_future(self) -> bool:
        return self.sees_own_future or self.sees_other_windows


def measure_null(
    subject: Subject,
    mode: Mode,
    ids: Int[Tensor, "window time"],
    base: Tensor,
    *,
    across: float = 0.0,
    other: Null | None = None,
) -> Null:
    """The null of this mode. `across` is how much a window moves when only the others change; `other` is
    the null of evaluation in the same precision, for modes with dropout."""
    finite = base.abs()[base.isfinite()]
    scale = float(finite.max()) if finite.numel() else 0.0
    repeat = float(movement(subject.logits(ids, mode), base).max())
    is_random = float(movement(subject.logits(ids, mode, seed=1), base).max()) > repeat
    if is_random:
        share = other.rounding / other.scale if other and other.scale else 0.0
        return Null(max(repeat, share * scale), repeat, scale, True, 0.0, None)
    mixes = across > FLOOR * subject.resolution(mode) * scale
    draws, failed = _regrouped(subject, mode, ids, base, orders_only=mixes)
    most = math.sqrt(subject.resolution(mode)) * scale
    rounding = max([repeat, *(d for d in draws if d <= most)])
    return Null(rounding, repeat, scale, False, max([0.0, *(d for d in draws if d > most)]), failed)


def _regrouped(
    subject: Subject, mode: Mode, ids: Tensor, base: Tensor, *, orders_only: bool
) -> tuple[list[float], str | None]:
    """Movement under other orders, sizes and shapes of the batch, same tokens; and what could not be called."""
    n = len(ids)
    forward = torch.arange(n)
    orders = [forward.flip(0), forward.roll(2)]
    sizes = [forward[:1], forward[-1:], forward[: n // 2], forward.repeat(2)[:-1], forward.repeat(4)[:-3]]
    draws, failed = [], None
    for rows in orders if orders_only else orders + sizes:
        try:
            draws.append(float(movement(subject.logits(ids[rows], mode), base[rows.to(base.device)]).max()))
        except CallError as error:
            failed = f"a batch of {len(rows)} windows could not be called ({error})"
    return draws, failed


def probe(
    subject: Subject,
    mode: Mode,
    ids: Int[Tensor, "window time"],
    known: Int[Tensor, " n"],
    other: Null | None,
) -> tuple[Finding, Null | None]:
    """Everything one mode shows: movement before changed tokens, by distance and position; across the batch."""
    name = subject.name(mode)
    try:
        base = subject.logits(ids, mode)
        if not base.isfinite().any():
            return Finding(name, "every logit is infinite or not a number"), None
        across = _moved_across(subject, mode, ids, known, base)
        null = measure_null(subject, mode, ids, base, across=across, other=other)
        threshold = null.threshold(subject.resolution(mode))
        changes = later_changed(ids, known, torch.Generator().manual_seed(0))
        moved = [_moved_before(subject, mode, base, change) for change in changes]
    except CallError as error:
        return Finding(name, f"the model could not be called ({error})"), None
    most = [float(m.max()) for m in moved]
    worst = max(range(len(most)), key=most.__getitem__)
    finding = Finding(
        mode=name,
        problem=_unrepeatable(null, subject.resolution(mode), most[worst], threshold),
        own=most[worst],
        across=across,
        null=null.rounding,
        threshold=threshold,
        batch=null.batch,
        hidden=mode.precision == "own"
        and null.rounding < most[worst] <= threshold
        and _stays_in_float64(subject, mode, ids, changes[worst]),
        by_distance=_by_distance(changes, moved),
        by_position=_by_position(moved),
        worst=changes[worst],
        worst_row=int(moved[worst].amax(dim=1).argmax()),
    )
    return finding, null


def _unrepeatable(null: Null, resolution: float, own: float, threshold: float) -> str | None:
    if null.repeat <= FLOOR * resolution * null.scale or own > threshold:
        return None
    return (
        f"two identical calls with the same random state differ by {null.repeat:.2g}: the model draws random "
        "numbers, or keeps a state, that torch's, NumPy's and Python's random states do not fix"
    )


def _moved_before(subject: Subject, mode: Mode, base: Tensor, change: Change) -> Float[Tensor, "window time"]:
    """Movement of each prediction before the change; 0 from the change on."""
    moved = movement(subject.logits(change.ids, mode), base).cpu()
    return moved.masked_fill(~before(change.first, moved.shape[1]), 0.0)


def _moved_across(subject: Subject, mode: Mode, ids: Tensor, known: Tensor, base: Tensor) -> float:
    """Largest movement in a window when only the other windows of the batch change."""
    changed = others_changed(ids, known, torch.Generator().manual_seed(1))
    return max(float(movement(subject.logits(new, mode)[row], base[row]).max()) for row, new in changed)


def _by_distance(changes: list[Change], moved: list[Tensor]) -> list[float]:
    """Largest movement by distance from the single changed token, in `distance_bins`."""
    time = moved[0].shape[1]
    at = torch.zeros(time)
    for change, m in zip(changes, moved, strict=True):
        if change.kind == "one token":
            earlier = m[:, : change.first].amax(dim=0).flip(0).float()  # distance 1 first
            at[1 : change.first + 1] = torch.maximum(at[1 : change.first + 1], earlier)
    return [float(at[low : high + 1].max()) for low, high in distance_bins(time)]


def _by_position(moved: list[Tensor]) -> list[float]:
    """Largest movement by position in the window, over all changes after it, in `position_bins`."""
    at = torch.stack(moved).amax(dim=(0, 1))
    return [float(at[low : high + 1].max()) for low, high in position_bins(len(at))]


class _Narrow(TorchDispatchMode):
    """Notes whether anything is computed with fewer digits than float64."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        narrow = (torch.float32, torch.float16, torch.bfloat16, torch.complex64)
        outputs = answer if isinstance(answer, tuple | list) else (answer,)
        self.seen |= any(isinstance(a, Tensor) and a.dtype in narrow for a in outputs)
        return answer


def _stays_in_float64(subject: Subject, mode: Mode, ids: Tensor, change: Change) -> bool:
    """Whether a movement as small as rounding is none: computed all in float64 it has not shrunk away.

    False also where float64 cannot be asked, or where the model computes some of it with fewer digits.
    """
    wide = subject.in_float64()
    if wide is None:
        return False
    try:
        with _Narrow() as narrow:
            base = wide.logits(ids, mode)
            moved = float(_moved_before(wide, mode, base, change).max())
        null = measure_null(wide, mode, ids, base)
    except CallError:
        return False
    return not narrow.seen and moved > null.threshold(wide.resolution(mode))
