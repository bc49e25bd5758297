"""Gate signals by name. A new one is a file in this folder and a line here."""

from ega_mope.gate_signals.base import GateSignal
from ega_mope.gate_signals.linear import LinearSignal

GATE_SIGNALS: dict[str, type[GateSignal]] = {
    "linear": LinearSignal,
}

__all__ = ["GATE_SIGNALS", "GateSignal"]
