"""What does position still say at token b, or τ tokens back? One measure for each kind of encoding.

Encodings that are added to the embeddings are measured by the norm of what they add, by position b.
Those that act on scores are measured by what they leave of a pair's score or weight at lag τ = i − j,
which is the same wherever the query stands:

mope           exp(−b²/2σ²) of each pair; all pairs: the norm
learned        the norm of the table's row b; rows have no parts that fade
sinusoidal     1: every pair has the same norm at every position
rope           1: a rotation keeps the length of every pair of channels at every lag
mope_relative  exp(−τ²/4σ²) of each head, a factor on the weight; its rotation as in rope
alibi          exp(−m τ) of each head, a factor on the weight
none           nothing is added or turned: order enters through the causal mask alone
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from ega_mope.analysis.learned import learned_at_best
from ega_mope.analysis.position_norm import CARRIES
from ega_mope.config import ModelConfig
from ega_mope.model import build_model, mechanism_settings
from ega_mope.positions import POSITIONS, Position
from ega_mope.positions.alibi import LinearBiasPosition
from ega_mope.positions.learned import LearnedPosition
from ega_mope.positions.mope import MorletPosition
from ega_mope.positions.mope_relative import RelativeMorletPosition
from ega_mope.positions.none import NoPosition
from ega_mope.positions.rope import RotaryPosition
from ega_mope.positions.sinusoidal import SinusoidalPosition
from ega_mope.runs import Run

if TYPE_CHECKING:
    import pandas as pd

BY_POSITION, BY_LAG = "position b", "lag τ"
FIXED = ("sinusoidal", "rope", "alibi")
"""Encodings with nothing to learn: what they say follows from the model's size alone."""


@dataclass(frozen=True, kw_only=True)
class PositionReach:
    """How far one way of telling position carries, at 0 … context length − 1 tokens.

    `unit` names the parts that may differ (pairs or heads), `left` what is left of each part as a share of
    its largest, `overall` the same of all parts together. Reaches are in tokens by part: how far away
    1/e and 1 % are left; infinite where a part never fades.
    """

    name: str
    measure: str
    axis: str
    unit: str
    left: Float[np.ndarray, "part time"]
    overall: Float[np.ndarray, " time"]
    reach_1e: Float[np.ndarray, " part"]
    reach_1pct: Float[np.ndarray, " part"]

    @property
    def share(self) -> float:
        """The share of the context that carries any position: where more than 1 % of the largest is left."""
        return float((self.overall > CARRIES).mean())

    def table(self) -> pd.DataFrame:
        """One row a part: its reaches in tokens (inf: it never fades), and the share of the context it covers."""
        import pandas as pd

        return pd.DataFrame(
            {
                self.unit: range(len(self.left)),
                "reach_1e": self.reach_1e,
                "reach_1pct": self.reach_1pct,
                "share_of_context": (self.left > CARRIES).mean(axis=1),
            }
        )


def reaches(position: Position, context_length: int) -> list[PositionReach]:
    """Every way in which this encoding tells position; empty for one that tells none."""
    return _measure(position, np.arange(context_length, dtype=float))


def summary(found: list[PositionReach]) -> pd.DataFrame:
    """One row a way of telling position: the share of the context it covers, and its parts' reaches in tokens."""
    import pandas as pd

    columns = (
        "position", "acts_by", "measure", "share_of_context", "median_reach_1e", "median_reach_1pct",
        "longest_reach_1pct",
    )  # fmt: skip
    rows = [
        (
            one.name, one.axis, one.measure, one.share, float(np.median(one.reach_1e)),
            float(np.median(one.reach_1pct)), float(one.reach_1pct.max()),
        )
        for one in found
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(columns))


def curves(found: list[PositionReach]) -> pd.DataFrame:
    """One row a way and token: what is left of all its parts together, as a share of the largest."""
    import pandas as pd

    parts = [
        pd.DataFrame(
            {"position": one.name, "acts_by": one.axis, "token": range(len(one.overall)), "left": one.overall}
        )
        for one in found
    ]
    return pd.concat(parts, ignore_index=True)


def run_reaches(run: Run) -> list[PositionReach]:
    """`reaches` of a run's encoding at its best weights; they need not be in the folder unless it is a learned
    table. ValueError where neither weights nor record are there."""
    return reaches(_position_of(run), run.config.model.context_length)


def fixed_reaches(config: ModelConfig, name: str) -> list[PositionReach]:
    """`reaches` that one of FIXED would have, with its defaults, in a model of this size."""
    cls, settings = mechanism_settings(POSITIONS, {"name": name}, "position")
    return reaches(cls(config, settings), config.context_length)


def _position_of(run: Run) -> Position:
    if (run.path / "model.safetensors").exists():
        return run.model("cpu").position
    position = build_model(run.config.model).position
    if isinstance(position, MorletPosition | RelativeMorletPosition):
        values = learned_at_best(run)
        morlet = isinstance(position, MorletPosition)
        omega, sigma = ("omega", "sigma") if morlet else ("rotation_omega", "head_sigma")
        with torch.no_grad():
            position.log_omega.copy_(torch.tensor(values[f"position.{omega}"]).log())
            position.log_sigma.copy_(torch.tensor(values[f"position.{sigma}"]).log())
    elif any(True for _ in position.parameters()):
        raise ValueError(
            f"{run.name}: expected its weights, for a {run.config.model.position['name']} table is in them alone, "
            "got none in its folder; choose another run"
        )
    return position


@singledispatch
def _measure(position: Position, at: Float[np.ndarray, " time"]) -> list[PositionReach]:
    raise ValueError(
        f"position: expected one with a measure of its reach, got {type(position).__name__}; "
        "add one to ega_mope/analysis/position_reach.py"
    )


@_measure.register(MorletPosition)
def _morlet(position: MorletPosition, at: Float[np.ndarray, " time"]) -> list[PositionReach]:
    sigma = position.scales()[1].detach().double().cpu().numpy()
    left = np.exp(-(at**2) / (2 * sigma[:, None] ** 2))
    return [
        PositionReach(
            name="mope", measure="norm of what is added: exp(−b²/2σ²) a pair", axis=BY_POSITION, unit="pair", left=left,
            overall=_whole_norm(np.sqrt((left**2).sum(axis=0))), reach_1e=sigma * math.sqrt(2),
            reach_1pct=sigma * math.sqrt(-2 * math.log(CARRIES)),
        )
    ]  # fmt: skip


@_measure.register(LearnedPosition)
def _table(position: LearnedPosition, at: Float[np.ndarray, " time"]) -> list[PositionReach]:
    return [_encoded("learned", "norm of the table's row, which has no parts that fade", position, at)]


@_measure.register(SinusoidalPosition)
def _sinusoidal(position: SinusoidalPosition, at: Float[np.ndarray, " time"]) -> list[PositionReach]:
    return [
        _lasting(
            "sinusoidal",
            "norm of what is added: every pair the same everywhere",
            BY_POSITION,
            len(position.omega),
            at,
        )
    ]


@_measure.register(RotaryPosition)
def _rotary(position: RotaryPosition, at: Float[np.ndarray, " time"]) -> list[PositionReach]:
    turned = _lasting("rope", ROTATION, BY_LAG, len(position.omega), at)
    if not position.settings.learned_table:
        return [turned]
    return [turned, _encoded("rope's table", "norm of the table's row", position, at)]


ROTATION = "length of a pair of channels after its rotation by ω τ: unchanged"


@_measure.register(LinearBiasPosition)
def _linear_bias(position: LinearBiasPosition, at: Float[np.ndarray, " time"]) -> list[PositionReach]:
    slope = position.slope.double().cpu().numpy()
    left = np.exp(-slope[:, None] * at)
    return [
        PositionReach(
            name="alibi", measure="factor on the weight: exp(−m τ) a head", axis=BY_LAG, unit="head", left=left,
            overall=left.mean(axis=0), reach_1e=1 / slope, reach_1pct=-math.log(CARRIES) / slope,
        )
    ]  # fmt: skip


@_measure.register(RelativeMorletPosition)
def _relative(position: RelativeMorletPosition, at: Float[np.ndarray, " time"]) -> list[PositionReach]:
    sigma = position.log_sigma.detach().double().exp().cpu().numpy()
    left = np.exp(-(at**2) / (4 * sigma[:, None] ** 2))
    window = PositionReach(
        name="mope_relative", measure="factor on the weight: exp(−τ²/4σ²) a head", axis=BY_LAG, unit="head", left=left,
        overall=left.mean(axis=0), reach_1e=2 * sigma, reach_1pct=2 * sigma * math.sqrt(-math.log(CARRIES)),
    )  # fmt: skip
    return [window, _lasting("mope_relative's rotation", ROTATION, BY_LAG, len(position.log_omega), at)]


@_measure.register(NoPosition)
def _nothing(position: NoPosition, at: Float[np.ndarray, " time"]) -> list[PositionReach]:
    return []


def _lasting(name: str, measure: str, axis: str, parts: int, at: Float[np.ndarray, " time"]) -> PositionReach:
    """Parts that are all there everywhere."""
    never = np.full(parts, math.inf)
    return PositionReach(
        name=name, measure=measure, axis=axis, unit="pair", left=np.ones((parts, len(at))), overall=np.ones(len(at)),
        reach_1e=never, reach_1pct=never,
    )  # fmt: skip


def _encoded(name: str, measure: str, position: Position, at: Float[np.ndarray, " time"]) -> PositionReach:
    """One part, the whole of what is added, by its norm; it need not fade with distance."""
    with torch.inference_mode():
        device = next(position.parameters()).device
        added = position.encode(torch.arange(len(at), device=device))
    overall = _whole_norm(added.double().norm(dim=-1).cpu().numpy())
    return PositionReach(
        name=name, measure=measure, axis=BY_POSITION, unit="table", left=overall[None], overall=overall,
        reach_1e=np.array([math.inf]), reach_1pct=np.array([math.inf]),
    )  # fmt: skip


def _whole_norm(norm: Float[np.ndarray, " time"]) -> Float[np.ndarray, " time"]:
    return norm / norm.max() if norm.max() > 0 else norm
