"""Sweeps: a grid of configurations at several seeds, trained by a pool of single-thread processes."""

from ega_mope.sweeps.grids import GRIDS, Cell, cells_of, read_seeds
from ega_mope.sweeps.plan import Planned, plan
from ega_mope.sweeps.pool import Outcome, Progress, sweep
from ega_mope.sweeps.summary import summarise

__all__ = [
    "GRIDS",
    "Cell",
    "Outcome",
    "Planned",
    "Progress",
    "cells_of",
    "plan",
    "read_seeds",
    "summarise",
    "sweep",
]
