"""A figure that is finished: what is sent of it is worked out once, however often it is shown."""

from __future__ import annotations

from typing import Any

from plotly.graph_objects import Figure

__all__ = ["Drawn", "Figure"]


class Drawn(Figure):
    """A figure as it is sent, which nothing changes any more: to be shown and not to be built upon."""

    def __init__(self, fig: Figure) -> None:
        # Not a figure's own beginning, which would check once more what is finished.
        self._sent = fig.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """What the browser gets: shared by all who look, so read it only."""
        return self._sent
