"""`ega-mope correlation`: how far back the heads of runs look on a text, beside their controls."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ega_mope.cli.output import device_option, json_option, note, print_frame, print_json
from ega_mope.cli.texts import given_text, text_options


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@text_options
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print a row a head as CSV, in full precision.")
@click.option(
    "--by-distance", is_flag=True, help="With --csv: a row a head and distance, scores and attention."
)
@device_option
def correlation(
    runs: tuple[str, ...],
    text: str | None,
    text_file: Path | None,
    as_json: bool,
    as_csv: bool,
    by_distance: bool,
    device: str,
) -> None:
    """How far back each head of each RUN looks on a text, in tokens: do heads become local by themselves?

    mean_distance with its 95 % interval over windows; half_within: half of the attention lies this near or
    nearer; even_distance: the same for attention that is spread evenly; shuffled_…: the same tokens in random
    order. kernel_r_squared: how much of the mean score by distance has the shape of the wavelets' mean
    kernel. Attention is taken before any gate.
    """
    from ega_mope.analysis.locality import locality, locality_in_words
    from ega_mope.runs import open_run

    if as_json and as_csv:
        raise ValueError("output: expected --json or --csv, got both; choose one of them")
    if by_distance and not as_csv:
        raise ValueError("--by-distance: expected --csv beside it, got none; add --csv")
    wanted = given_text(text, text_file)
    found = [locality(open_run(run), wanted, device=device) for run in runs]
    if as_json:
        print_json([one.to_json() for one in found])
        return
    import pandas as pd

    tables = [(one.by_distance() if by_distance else one.table()).assign(run=one.run) for one in found]
    table = pd.concat(tables, ignore_index=True)
    table = table[["run", *table.columns.drop("run")]]
    if as_csv:
        table.to_csv(sys.stdout, index=False)
        return
    print_frame(table)
    for one in found:
        future = " (sees the future)" if one.sees_future else ""
        note(f"{one.run}{future}: {locality_in_words(one.ranges)}")
