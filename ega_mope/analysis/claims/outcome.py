"""What a claim is, what the runs say of it, and the rules that were fixed before looking."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ega_mope.analysis.intervals import Interval
from ega_mope.runs import Run

if TYPE_CHECKING:
    from ega_mope.analysis.claims.evidence import Evidence

Verdict = Literal["holds", "fails", "undecided"]

LEAST = 3
"""Fewest seeds, or runs, that decide anything: one seed never decides, two give an interval that says nothing."""

MARGIN_NATS = 0.005
"""A gain that is surely below this counts as none: the smallest change that the paper reports as a gain
(convolutional attention, lags up to 8: +0.005)."""

RULES = (
    "A gain is the loss without minus the loss with, run against run of the same seed, text, size, training and kind "
    "of device, at each run's lowest validation loss. It is a gain where its 95 % t interval over seeds lies wholly "
    f"above 0, and no gain where the interval ends below {MARGIN_NATS} nats, the smallest change that the paper calls "
    f"one; anything else is undecided, and so is whatever has fewer than {LEAST} seeds. Of several comparisons the one "
    "with most seeds decides, then the one on the paper's text; the others stand beside it. Nothing is corrected for "
    "the number of claims: at 95 %, about one in twenty would be decided by chance alone."
)
"""How every verdict about losses comes about, said once above the table."""


@dataclass(frozen=True)
class Paper:
    """The number that the paper gives (arXiv 2605.26355), marked as theirs. `value` is in the claim's unit."""

    value: float | None
    note: str


NO_NUMBER = Paper(None, "said in words, without a number")


@dataclass(frozen=True)
class Part:
    """One number that a verdict rests on, or that stands beside it. `n` counts seeds or runs."""

    name: str
    estimate: float | None
    unit: str
    interval: Interval | None = None
    n: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the runs say of a claim.

    `estimate` and `interval` are in `unit`; both None where nothing could be computed. `n` counts what the
    interval is over (`n_of`: seeds or runs), None where the answer is exact. `parts` are the numbers behind
    the verdict and beside it, `commands` what would decide a claim that is undecided: of a decided one they
    are dropped.
    """

    verdict: Verdict
    reason: str
    unit: str
    estimate: float | None = None
    interval: Interval | None = None
    n: int | None = 0
    n_of: str = "seeds"
    parts: tuple[Part, ...] = ()
    runs: tuple[Run, ...] = ()
    commands: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.verdict != "undecided":
            object.__setattr__(self, "commands", ())

    @property
    def sees_future(self) -> bool:
        """Whether any run it rests on reads later tokens, or nobody knows."""
        return any(run.sees_future is not False for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence, the test that would confirm it, the paper's number, and the function that applies the test."""

    id: str
    group: str
    sentence: str
    test: str
    paper: Paper
    judge: Callable[[Evidence], Outcome]


@dataclass(frozen=True)
class Judged:
    """A claim and what the runs say of it."""

    claim: Claim
    outcome: Outcome


def told(interval: Interval | None, n: int) -> Literal["gain", "no gain"] | None:
    """What an interval of gains in nats says by RULES; None where it leaves it open."""
    if interval is None or n < LEAST:
        return None
    if interval.low > 0:
        return "gain"
    return "no gain" if interval.high < MARGIN_NATS else None


def all_gain(parts: Iterable[Part]) -> Verdict:
    """Holds where every part is a gain, fails where any surely is none."""
    says = [told(part.interval, part.n or 0) for part in parts]
    return "fails" if "no gain" in says else "undecided" if None in says else "holds"


def none_gains(parts: Iterable[Part]) -> Verdict:
    """Holds where every part surely is no gain, fails where any is one."""
    says = [told(part.interval, part.n or 0) for part in parts]
    return "fails" if "gain" in says else "undecided" if None in says else "holds"


def above(interval: Interval | None, n: int, bound: float) -> Verdict:
    """Holds where the interval lies wholly above the bound, fails where wholly below it."""
    if interval is None or n < LEAST:
        return "undecided"
    return "holds" if interval.low > bound else "fails" if interval.high < bound else "undecided"


def within(interval: Interval | None, n: int, low: float, high: float) -> Verdict:
    """Holds where the interval lies wholly between the bounds, fails where wholly outside them."""
    if interval is None or n < LEAST:
        return "undecided"
    if low <= interval.low and interval.high <= high:
        return "holds"
    return "fails" if interval.high < low or interval.low > high else "undecided"


def too_few(n: int, of: str = "seeds") -> str | None:
    """Why so few cannot decide; None where there are enough."""
    if n >= LEAST:
        return None
    word = of.removesuffix("s") if n == 1 else of
    return (
        f"only {n} {word}, at least {LEAST} are needed" if n else f"no {of} yet, at least {LEAST} are needed"
    )


def weakest(parts: Sequence[Part]) -> Part:
    """The part with the lowest estimate: the one a claim of several gains stands or falls with."""
    return min(parts, key=lambda part: part.estimate if part.estimate is not None else float("inf"))
