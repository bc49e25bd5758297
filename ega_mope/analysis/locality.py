"""Do dot-product heads become local by themselves? How far back each head looks, beside its controls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ega_mope.analysis.correlation import Correlation, correlate, even_attention
from ega_mope.analysis.intervals import t_interval
from ega_mope.analysis.kernels import kernels
from ega_mope.analysis.plain import plain_rows
from ega_mope.analysis.scales import why_no_scales
from ega_mope.config import Plain
from ega_mope.model import CharLM, mechanism_settings
from ega_mope.positions import POSITIONS
from ega_mope.runs import Run

if TYPE_CHECKING:
    import pandas as pd

LOCAL = 0.5
"""A head is local where it looks back less than half as far as even attention does."""

INNER = (0.1, 0.9)
"""The quantiles over windows between which a band is drawn."""


@dataclass(frozen=True, kw_only=True)
class HeadRange:
    """How far back one head looks (layer and head from 1): its effective range on a text and on the control.

    `mean_distance` is Σ_j A_ij (i − j) in tokens over the queries of the windows' second halves, the mean
    over windows; `low` and `high` its 95 % interval (Student's t over windows; None with one window).
    `half_within`: half of the attention lies at this distance or nearer. `even_distance`: what
    attention that is spread evenly over all keys would have. `shuffled_*`: the same tokens in random order.
    """

    layer: int
    head: int
    mean_distance: float
    low: float | None
    high: float | None
    half_within: int
    even_distance: float
    shuffled_distance: float
    shuffled_low: float | None
    shuffled_high: float | None

    @property
    def share_of_even(self) -> float:
        """The mean distance, as a share of even attention's."""
        return self.mean_distance / self.even_distance

    @property
    def verdict(self) -> str:
        """`local by place`: on the text and on shuffled text, so whatever is said there. `local by content`: on
        the text alone. `far`: further back than even attention. `between`: none of these clearly."""
        bound = LOCAL * self.even_distance
        if _or(self.high, self.mean_distance) < bound:
            by_place = _or(self.shuffled_high, self.shuffled_distance) < bound
            return "local by place" if by_place else "local by content"
        return "far" if _or(self.low, self.mean_distance) > self.even_distance else "between"


VERDICTS = ("local by place", "local by content", "between", "far")


def _or(bound: float | None, value: float) -> float:
    return value if bound is None else bound


def head_ranges(text: Correlation, shuffled: Correlation) -> list[HeadRange]:
    """Every head's range on a text, beside the same tokens shuffled. ValueError for one that is no such pair."""
    if text.profiles.shape != shuffled.profiles.shape:
        raise ValueError(
            f"locality: expected a text and the same text shuffled, got {text.tokens_read} and "
            f"{shuffled.tokens_read} tokens read; measure both with the same run"
        )
    layers, heads, time = text.profiles.shape[1:]
    even = even_distance(time)
    found = []
    for layer, head in np.ndindex(layers, heads):
        own, control = text.distances[:, layer, head], shuffled.distances[:, layer, head]
        inside, beside = t_interval(own), t_interval(control)
        found.append(
            HeadRange(
                layer=layer + 1,
                head=head + 1,
                mean_distance=float(own.mean()),
                low=inside.low if inside else None,
                high=inside.high if inside else None,
                half_within=_half_within(text.profiles[:, layer, head].mean(axis=0)),
                even_distance=even,
                shuffled_distance=float(control.mean()),
                shuffled_low=beside.low if beside else None,
                shuffled_high=beside.high if beside else None,
            )
        )
    return found


def even_distance(time: int) -> float:
    """The mean distance of even attention over the queries of a window's second half: i/2 for query i."""
    return float(np.arange(time // 2, time).mean() / 2)


def _half_within(profile: Float[np.ndarray, " time"]) -> int:
    return int((profile.cumsum() < 0.5 * profile.sum()).sum())


def ranges_table(ranges: list[HeadRange]) -> pd.DataFrame:
    """One row a head, in full precision."""
    import pandas as pd

    columns = (
        "layer", "head", "mean_distance", "low", "high", "half_within", "even_distance", "share_of_even",
        "shuffled_distance", "shuffled_low", "shuffled_high", "verdict",
    )  # fmt: skip
    table = pd.DataFrame([{name: getattr(one, name) for name in columns} for one in ranges])
    bounds = ["low", "high", "shuffled_low", "shuffled_high"]
    table[bounds] = table[bounds].astype(float)
    return table


def locality_in_words(ranges: list[HeadRange]) -> str:
    """How many of these heads are local, and of what, in one sentence or two."""
    counts = {verdict: sum(one.verdict == verdict for one in ranges) for verdict in VERDICTS}
    local = counts["local by place"] + counts["local by content"]
    shares = np.median([one.share_of_even for one in ranges])
    says = (
        f"{local} of {len(ranges)} heads are local (less than {LOCAL:.0%} as far back as even attention): "
        f"{counts['local by place']} on shuffled text too, {counts['local by content']} on this text alone; "
        f"the median head looks back {shares:.0%} as far as even attention."
    )
    return says if ranges[0].low is not None else f"{says} One window: there are no intervals."


@dataclass(frozen=True)
class KernelFit:
    """S(δ) ≈ offset + slope·C(δ), least squares, each distance weighted by its queries; `r_squared` of it, None
    where S does not vary."""

    offset: float
    slope: float
    r_squared: float | None


def kernel_fit(score: Float[np.ndarray, " time"], kernel: Float[np.ndarray, " time"]) -> KernelFit:
    """How much of a head's mean score by distance has the shape of the pairs' analytic mean kernel.

    In nats; C(0) = 1, so the slope is what the kernel is worth at distance 0 against where it is 0.
    """
    queries = np.arange(len(score), 0, -1.0)
    share = queries / queries.sum()
    s, c = score - share @ score, kernel - share @ kernel
    if not share @ c**2 > 0:
        return KernelFit(float(share @ score), 0.0, None)
    slope = float(share @ (s * c) / (share @ c**2))
    left, total = float(share @ (s - slope * c) ** 2), float(share @ s**2)
    # What rounding leaves of a constant is no variation to explain.
    varies = total > (1e-12 * float(np.abs(score).max())) ** 2
    r_squared = 1 - left / total if varies else None
    return KernelFit(float(share @ score - slope * (share @ kernel)), slope, r_squared)


def biased_by_distance(run: Run) -> bool:
    """Whether the run's positions act on the scores themselves, as ALiBi's and relative Morlet's do."""
    cls, settings = mechanism_settings(POSITIONS, run.config.model.position, "position")
    return "scores" in cls.acts_on(settings)


def kernel_of(run: Run) -> Float[np.ndarray, " time"] | None:
    """The mean kernel of a run's pairs at distances 0 … context length − 1; None where it has no pairs."""
    return None if why_no_scales(run) else kernels(run).mean


@dataclass(frozen=True, kw_only=True)
class Locality:
    """One run on one text: its heads' ranges, and beside them what the text, its shuffle and the kernel do."""

    run: str
    sees_future: bool | None
    text: Correlation
    shuffled: Correlation
    ranges: list[HeadRange]
    kernel: Float[np.ndarray, " time"] | None

    def table(self) -> pd.DataFrame:
        """`ranges_table`, and how well the kernel fits each head's S(δ); NaN where there is no kernel."""
        fits = [self._fit(one.layer - 1, one.head - 1) for one in self.ranges]
        return ranges_table(self.ranges).assign(kernel_r_squared=np.array(fits, dtype=float))

    def _fit(self, layer: int, head: int) -> float | None:
        score = self.text.score[layer, head]
        return None if self.kernel is None else kernel_fit(score, self.kernel[: len(score)]).r_squared

    def by_distance(self) -> pd.DataFrame:
        """`beside_controls` of every head, one below the other; layers and heads count from 1."""
        import pandas as pd

        parts = [
            beside_controls(self.text, self.shuffled, one.layer - 1, one.head - 1, self.kernel).assign(
                layer=one.layer, head=one.head
            )
            for one in self.ranges
        ]
        return pd.concat(parts, ignore_index=True)

    def to_json(self) -> Plain:
        """One run's part of the answer of `ega-mope correlation --json`."""
        return {
            "run": self.run,
            "sees_future": self.sees_future,
            "windows": self.text.windows,
            "tokens_read": self.text.tokens_read,
            "tokens_in_all": self.text.tokens_in_all,
            "heads": plain_rows(self.table()),
        }


def locality(run: Run, text: str, *, model: CharLM | None = None, device: str = "auto") -> Locality:
    """Measure a run's heads on a text and on its tokens shuffled; ValueError for a run without weights."""
    model = model or run.model(device)
    own = correlate(model, run.tokenizer, text)
    control = correlate(model, run.tokenizer, text, shuffled=True)
    return Locality(
        run=run.name,
        sees_future=run.sees_future,
        text=own,
        shuffled=control,
        ranges=head_ranges(own, control),
        kernel=kernel_of(run),
    )


def beside_controls(
    text: Correlation, shuffled: Correlation, layer: int, head: int, kernel: Float[np.ndarray, " time"] | None
) -> pd.DataFrame:
    """One head by distance: S(δ) and attention with their quantiles INNER over windows, the same on shuffled
    text, even attention, and where there is a `kernel` its fit to S."""
    import pandas as pd

    time = text.profiles.shape[-1]
    columns: dict[str, Any] = {"distance": range(time), "queries": text.windows * np.arange(time, 0, -1)}
    for name, own, control in (
        ("score", text.scores, shuffled.scores),
        ("attention", text.attentions, shuffled.attentions),
    ):
        values = own[:, layer, head]
        columns[name] = values.mean(axis=0)
        columns[f"{name} low"], columns[f"{name} high"] = np.quantile(values, INNER, axis=0)
        columns[f"{name} shuffled"] = control[:, layer, head].mean(axis=0)
    columns["even attention"] = even_attention(time)
    if kernel is not None:
        fitted = kernel_fit(text.score[layer, head], kernel[:time])
        columns["kernel fitted"] = fitted.offset + fitted.slope * kernel[:time]
    return pd.DataFrame(columns)
