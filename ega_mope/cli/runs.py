"""`ega-mope runs` and `ega-mope show`: what there is, and what one run is."""

from __future__ import annotations

import click

from ega_mope.cli.output import json_option, note, print_json, print_table, run_argument


@click.command()
@json_option
@click.option("--markdown", is_flag=True, help="Print a Markdown table of the configurations.")
def runs(as_json: bool, markdown: bool) -> None:
    """List the runs: yours and the shipped ones, broken folders with their problem."""
    from ega_mope.analysis.compare import markdown_table
    from ega_mope.analysis.runs import FUTURE_WORDS, summarise_all
    from ega_mope.runs import Run, list_runs, runs_folder, shipped_folder

    if markdown:
        click.echo(markdown_table(run for run in list_runs() if isinstance(run, Run)))
        return
    rows = summarise_all()
    if as_json:
        print_json(rows)
        return
    note(f"your runs: {runs_folder()}\nshipped runs: {shipped_folder()}")
    if not rows:
        note("no runs yet: `ega-mope train --preset smoke` makes one in seconds")
        return
    columns = (
        "name",
        "status",
        "attention",
        "gate_norm",
        "position",
        "seed",
        "steps",
        "best_loss_nats",
        "problem",
    )
    shown = [
        # Of a folder that cannot be read nothing is said.
        [*(row[column] for column in columns), row["status"] and FUTURE_WORDS[row["sees_future"]]]
        for row in rows
    ]
    print_table([*columns, "sees the future"], shown)


@click.command()
@run_argument
@json_option
def show(run: str, as_json: bool) -> None:
    """Say what RUN is: settings, parameters by part, best and final loss, training's peak memory."""
    from ega_mope.analysis.runs import describe
    from ega_mope.config import flatten
    from ega_mope.runs import open_run

    document = describe(open_run(run))
    if as_json:
        print_json(document)
        return
    for key, value in flatten(document).items():
        click.echo(f"{key:<44}  {value}")
