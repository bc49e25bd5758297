"""A text longer than the context, read in overlapping windows, each token from the one with most past."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True)
class Window:
    """Tokens start … stop − 1 go through the model together; those from `first` on are taken from it."""

    start: int
    stop: int
    first: int


def half_context(length: int) -> int:
    """The stride of windows of `length` tokens: half of it, at least 1."""
    return max(1, length // 2)


def windows_over(tokens: int, length: int) -> list[Window]:
    """Windows of `length` tokens, one every half context, over a text of `tokens` tokens.

    They start at 0, stride, 2·stride … and end with the first one that reaches the text's end, which
    may be shorter. A token is taken from the earliest window that holds it: there it has most past,
    and from the second window on at least length − stride tokens of it.
    """
    stride = half_context(length)
    starts = range(0, max(1, tokens - length + stride), stride)
    reached = [0, *(start + length for start in starts)]
    return [
        Window(start, min(start + length, tokens), first)
        for start, first in zip(starts, reached, strict=False)
    ]


def batches(windows: list[Window], size: int) -> Iterator[list[Window]]:
    """The windows in order, at most `size` at a time, equally long within a batch."""
    for _, alike in groupby(windows, key=lambda window: window.stop - window.start):
        group = list(alike)
        yield from (group[begin : begin + size] for begin in range(0, len(group), size))


def side_by_side(ids: Int[np.ndarray, " token"], length: int, most: int) -> Int[np.ndarray, "window length"]:
    """The first whole windows of `length` tokens, at most `most`; a text shorter than one is one window."""
    length = min(len(ids), length)
    count = min(len(ids) // length, most)
    return ids[: count * length].reshape(count, length)


def spread_evenly(count: int, most: int) -> Int[np.ndarray, " chosen"]:
    """Which of `count` things to take for at most `most` of them, evenly from the first to the last."""
    return np.linspace(0, count - 1, min(most, count)).round().astype(int)
