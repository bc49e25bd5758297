"""`ega-mope surprise`: a run's gates beside its own surprisal, and what one character attends to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ega_mope.cli.output import device_option, json_option, note, print_frame, print_json, run_argument
from ega_mope.cli.texts import (
    asked_heads,
    given_text,
    head_option,
    layer_option,
    text_options,
)

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 12


@click.command()
@run_argument
@text_options
@layer_option
@head_option
@click.option(
    "--at", type=click.IntRange(0), metavar="POSITION", help="What the character there attends to instead."
)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print every row as CSV.")
@device_option
def surprise(
    run: str,
    text: str | None,
    text_file: Path | None,
    layer: int | None,
    head: int | None,
    at: int | None,
    as_json: bool,
    as_csv: bool,
    device: str,
) -> None:
    """Where gate and surprisal part on a text, in one head.

    Both by their rank among the text's characters, 0 to 1, since they have no common unit. Without --json or
    --csv: the characters where the ranks differ most. The head is the one with the largest spread of gates among
    those that --layer and --head leave. With --at: what that character attends to, without the gate and with it.
    """
    from ega_mope.analysis.gate_meaning.attended import attended
    from ega_mope.analysis.gate_meaning.surprise import surprise as beside
    from ega_mope.analysis.gates import why_no_gates
    from ega_mope.analysis.plain import plain_rows
    from ega_mope.runs import open_run

    if as_json and as_csv:
        raise ValueError("output: expected one of --json, --csv, got both; choose one")
    opened = open_run(run)
    reason = why_no_gates(opened)
    if reason:
        raise ValueError(f"{run}: expected a run with energy gates, got one where {reason}; choose another")
    model = opened.model(device)
    found = beside(model, given_text(text, text_file), opened.tokenizer)
    place = max(asked_heads(found, layer, head), key=lambda one: found.spread()[one])
    if at is None:
        table = found.surprise_table(*place)
        shown = _furthest(table)
    else:
        table = attended(model, found, at).table(*place)
        shown = table.head(MOST_ROWS)
    if as_json:
        where = {"layer": place[0] + 1, "head": place[1] + 1, "at": at}
        seen = {"sees_future": opened.sees_future, "notice": found.notice}
        print_json({"run": opened.name, **where, **seen, "rows": plain_rows(table)})
    elif as_csv:
        table.to_csv(sys.stdout, index=False)
    else:
        shown = shown.assign(text=[ascii(character) for character in shown["text"]])
        print_frame(shown)
    note(f"layer {place[0] + 1}, head {place[1] + 1}")
    if opened.sees_future is not False:
        note(f"{opened.name} sees the future, or may: its surprisal may already know what comes")
    if found.notice:
        note(found.notice)


def _furthest(table: pd.DataFrame) -> pd.DataFrame:
    """The characters with the largest difference, either way, from the most open gate to the most surprising."""
    known = table.dropna(subset="difference").sort_values("difference", ascending=False, kind="stable")
    half = min(MOST_ROWS // 2, len(known) // 2)
    return known.iloc[[*range(half), *range(len(known) - half, len(known))]]
