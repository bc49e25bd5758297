"""No positions at all: the control. Causal attention still tells early tokens from late ones a little."""

from __future__ import annotations

from typing import Any

from ega_mope.positions.base import ActsOn, Position


class NoPosition(Position):
    """Adds nothing; order enters through the causal mask alone."""

    @classmethod
    def acts_on(cls, settings: Any) -> frozenset[ActsOn]:
        return frozenset()
