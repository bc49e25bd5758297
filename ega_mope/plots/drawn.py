"""A figure that is finished: what is sent of it is worked out once, however often it is shown."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from plotly.graph_objects import Figure

__all__ = ["Drawn", "Figure"]


class Drawn(Figure):
    """A figure as it is sent, which nothing changes any more: to be shown and not to be built upon.

    Streamlit shows each figure twice, the second time as a copy of the first. It is sent so that plotly finds
    the copy the same and leaves the picture as it stands: without a template, with lists of numbers in place
    of packed ones, and with a mark that says that the data is what it was. Other data is another element to
    Streamlit, which begins anew.
    """

    def __init__(self, fig: Figure) -> None:
        # Not a figure's own beginning, which would check once more what is finished.
        self._sent = _lists_for_packed(fig.to_dict())
        self._sent["layout"].pop("template", None)
        self._sent["layout"]["datarevision"] = 1

    def to_dict(self) -> dict[str, Any]:
        """What the browser gets: shared by all who look, so read it only."""
        return self._sent

    def clickable(self) -> Drawn:
        """The same with what Streamlit adds to a figure whose points can be chosen, which would be a change."""
        other = Drawn.__new__(Drawn)
        added = {"clickmode": "event+select", "dragmode": "pan"}
        other._sent = {**self._sent, "layout": {**self._sent["layout"], **added}}
        return other


def _lists_for_packed(sent: Any) -> Any:
    """The same with every packed row of numbers as a list; packed tables stay, as they are told apart well."""
    if isinstance(sent, list | tuple):
        return [_lists_for_packed(item) for item in sent]
    if not isinstance(sent, dict):
        return sent
    if "bdata" in sent and "shape" not in sent:
        row = np.frombuffer(base64.b64decode(sent["bdata"]), np.dtype(sent["dtype"]))
        return [number if math.isfinite(number) else None for number in row.tolist()]
    return {key: _lists_for_packed(value) for key, value in sent.items()}
