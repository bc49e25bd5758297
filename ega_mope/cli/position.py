"""`ega-mope position`: what position still says at token b, or τ tokens back."""

from __future__ import annotations

import math
import sys

import click

from ega_mope.cli.output import json_option, note, print_frame, print_json, run_argument


@click.command()
@run_argument
@json_option
@click.option(
    "--csv", "as_csv", is_flag=True, help="Print a row an encoding and token as CSV: what is left of it."
)
def position(run: str, as_json: bool, as_csv: bool) -> None:
    """How far RUN's position encoding carries, beside fixed encodings in a model of its size.

    Encodings that are added to the embeddings are measured by their norm at position b, those that act on
    scores by what they leave of a pair's score or weight at lag τ; measure says which. Reaches in tokens,
    over pairs or heads: where 1/e or 1 % is left; inf for one that never fades. share_of_context: where
    more than 1 % of all of it is left.
    """
    from ega_mope.analysis.position_reach import FIXED, curves, fixed_reaches, run_reaches, summary
    from ega_mope.runs import open_run

    if as_json and as_csv:
        raise ValueError("output: expected --json or --csv, got both; choose one of them")
    opened = open_run(run)
    own = run_reaches(opened)
    model = opened.config.model
    beside = [one for name in FIXED if name != model.position["name"] for one in fixed_reaches(model, name)]
    found = own + beside
    if as_csv:
        curves(found).to_csv(sys.stdout, index=False)
        return
    table = summary(found)
    table.insert(0, "run", [opened.name] * len(own) + ["any of its size"] * len(beside))
    if as_json:
        columns, rows = list(table.columns), table.astype(object).to_numpy().tolist()
        # JSON has no infinity: null stands for a reach that never ends.
        plain = [[None if value == math.inf else value for value in row] for row in rows]
        print_json([dict(zip(columns, row, strict=True)) for row in plain])
        return
    print_frame(table)
    if not own:
        note(f"{opened.name}: position none tells nothing but what the causal mask tells")
