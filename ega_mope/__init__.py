"""EGA/MoPE Lab: Energy-Gated Attention and Morlet Positional Encoding, to look at and to check.

`import ega_mope as em` is light: torch loads when something first needs it.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "open_run": "ega_mope.runs",
    "list_runs": "ega_mope.runs",
    "build_model": "ega_mope.model",
    "gates": "ega_mope.analysis.gates",
    "scales": "ega_mope.analysis.scales",
    "kernels": "ega_mope.analysis.kernels",
    "superadditivity": "ega_mope.analysis.superadditivity",
    "audit": "ega_mope.analysis.audit",
    "generate": "ega_mope.generation",
    "run_experiment": "ega_mope.experiments",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'ega_mope' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
