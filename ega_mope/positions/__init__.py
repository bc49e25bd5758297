"""Position encodings by name. A new one is a file in this folder and a line here."""

from ega_mope.positions.alibi import LinearBiasPosition
from ega_mope.positions.base import Position
from ega_mope.positions.learned import LearnedPosition
from ega_mope.positions.mope import MorletPosition
from ega_mope.positions.mope_relative import RelativeMorletPosition
from ega_mope.positions.none import NoPosition
from ega_mope.positions.rope import RotaryPosition
from ega_mope.positions.sinusoidal import SinusoidalPosition

POSITIONS: dict[str, type[Position]] = {
    "learned": LearnedPosition,
    "sinusoidal": SinusoidalPosition,
    "rope": RotaryPosition,
    "mope": MorletPosition,
    "mope_relative": RelativeMorletPosition,
    "alibi": LinearBiasPosition,
    "none": NoPosition,
}

__all__ = ["POSITIONS", "Position"]
