"""`ega-mope correlates` and `ega-mope spectral`: what a run's gates go with."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ega_mope.cli.output import (
    device_option,
    json_option,
    note,
    print_frame,
    print_json,
    print_table,
    run_argument,
)
from ega_mope.cli.texts import given_text, text_options

csv_option = click.option("--csv", "as_csv", is_flag=True, help="Print the table behind the answer as CSV.")


@click.command()
@run_argument
@text_options
@click.option(
    "--characters", type=click.IntRange(1), metavar="N", help="Measure the first N characters [2000]."
)
@click.option(
    "--draws", type=click.IntRange(2), metavar="N", help="Bootstrap draws behind each interval [200]."
)
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the draws and the shuffled text."
)
@json_option
@csv_option
@device_option
def correlates(
    run: str,
    text: str | None,
    text_file: Path | None,
    characters: int | None,
    draws: int | None,
    seed: int,
    as_json: bool,
    as_csv: bool,
    device: str,
) -> None:
    """What the gates of RUN go with on a text: a sentence a head.

    Gate and weight change of each head are correlated by rank with rarity, surprisal, boundaries, function words,
    repeats and position of the characters; a partial correlation holds all others. Beside them the same on the
    shuffled text, and the attention that characters receive in the most comparable run without gates. An
    interval in a sentence is widened so that those of all heads and features hold at once. --csv has every
    correlation: a row a text, outcome, head and feature.
    """
    from ega_mope.analysis.gate_meaning import correlates as analysis
    from ega_mope.analysis.gate_meaning import words
    from ega_mope.runs import list_runs, open_run

    _one_output(as_json, as_csv)
    opened = open_run(run)
    found = analysis.correlates(
        opened,
        given_text(text, text_file),
        runs=list_runs(),
        characters=characters or analysis.CHARACTERS,
        draws=draws or analysis.DRAWS,
        seed=seed,
        model_of=lambda one: one.model(device),
        progress=_progress,
    )
    if as_json:
        print_json(words.to_json(found))
    elif as_csv:
        words.correlations_table(found).to_csv(sys.stdout, index=False)
    else:
        print_table(
            ["layer", "head", "its gate"], [(v.layer, v.head, v.sentence) for v in words.verdicts(found)]
        )
    for line in words.notes(found):
        note(line)


@click.command()
@run_argument
@click.option(
    "--permutations", type=click.IntRange(19), metavar="N", help="Random orders of the channels [200]."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the random orders.")
@json_option
@csv_option
def spectral(run: str, permutations: int | None, seed: int, as_json: bool, as_csv: bool) -> None:
    """Whether the projections of RUN's gates are spectral.

    The highest peak of |ŵ_k|² over the channels' frequencies is compared with that of the same weights in random
    orders: "spectral" where at most 5 % of orders reach it, else "general salience".
    """
    from ega_mope.analysis.gate_meaning import spectral as analysis
    from ega_mope.runs import open_run

    _one_output(as_json, as_csv)
    found = analysis.spectral(open_run(run), permutations=permutations or analysis.PERMUTATIONS, seed=seed)
    table = found.heads_table()
    if as_json:
        print_json(found.to_json())
    elif as_csv:
        table.to_csv(sys.stdout, index=False)
    else:
        print_frame(table)
    note(found.sentence())


def _one_output(as_json: bool, as_csv: bool) -> None:
    if as_json and as_csv:
        raise ValueError("output: expected one of --json, --csv, got both; choose one")


def _progress(share: float, doing: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{share:4.0%} {doing}\033[K", nl=share >= 1, err=True)
