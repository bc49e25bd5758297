"""How every command answers: one JSON document or a table on stdout, everything else on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import pandas as pd

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
run_argument = click.argument("run")
device_option = click.option(
    "--device", default="auto", show_default=True, metavar="auto|cpu|cuda", help="Where to compute."
)


def print_json(document: Any) -> None:
    """One JSON document on stdout; a non-finite number is a fault of ours, not JSON."""
    click.echo(json.dumps(document, ensure_ascii=False, allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A plain table: text to the left, numbers to the right, '-' for what is not there."""
    cells = [[_cell(value) for value in row] for row in rows]
    values = [list(column) for column in zip(*cells, strict=True)] or [[] for _ in columns]
    widths = [max(map(len, [name, *column])) for name, column in zip(columns, values, strict=True)]
    click.echo("  ".join(name.ljust(width) for name, width in zip(columns, widths, strict=True)).rstrip())
    for row in cells:
        line = (
            text.rjust(width) if _is_number(text) else text.ljust(width)
            for text, width in zip(row, widths, strict=True)
        )
        click.echo("  ".join(line).rstrip())


def print_frame(table: pd.DataFrame) -> None:
    """A data frame as such a table."""
    from ega_mope.analysis.plain import without_nan

    print_table([str(name) for name in table.columns], without_nan(table).to_numpy().tolist())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _is_number(text: str) -> bool:
    return text.lstrip("+-").replace(".", "", 1).isdigit()


def note(message: str) -> None:
    """A line for the person, on stderr."""
    click.echo(message, err=True)
