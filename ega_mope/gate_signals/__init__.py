"""Gate signals by name. A new one is a file in this folder and a line here."""

from ega_mope.gate_signals.base import GateSignal
from ega_mope.gate_signals.daubechies import Daubechies2Signal, Daubechies4Signal
from ega_mope.gate_signals.flux import FluxSignal
from ega_mope.gate_signals.linear import LinearSignal
from ega_mope.gate_signals.morlet import MorletSignal, ParametricMorletSignal
from ega_mope.gate_signals.phase import PhaseCoherenceSignal, PhaseSignal

GATE_SIGNALS: dict[str, type[GateSignal]] = {
    "linear": LinearSignal,
    "flux": FluxSignal,
    "phase": PhaseSignal,
    "phase_coherence": PhaseCoherenceSignal,
    "morlet": MorletSignal,
    "morlet_parametric": ParametricMorletSignal,
    "daubechies2": Daubechies2Signal,
    "daubechies4": Daubechies4Signal,
}

__all__ = ["GATE_SIGNALS", "GateSignal"]
