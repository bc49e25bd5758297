"""What a report is made of, whatever it is written as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import plotly.graph_objects as go


@dataclass(frozen=True)
class Text:
    """A paragraph of plain text; `strong` where it is a verdict."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of text; `numbers` are the columns that stand to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Notes:
    """Names and what is said of each, folded away where that can be done."""

    title: str
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Commands:
    """Lines for a shell."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Drawing:
    """A figure, made when it is drawn; `alt` is read out in its place."""

    make: Callable[[], go.Figure]
    alt: str
    how_to_read: str


Block = Text | Table | Notes | Commands | Drawing


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    text: str


@dataclass(frozen=True)
class Section:
    """A part of the report with its heading."""

    title: str
    blocks: tuple[Block | Heading, ...]
