"""`ega-mope scales`: the scales that a run's Morlet positions learned."""

from __future__ import annotations

import sys

import click

from ega_mope.cli.output import json_option, note, print_json, print_table, run_argument


@click.command()
@run_argument
@click.option(
    "--step", type=click.IntRange(0), help="A training step whose scales are recorded [the best weights]."
)
@click.option(
    "--refits",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Bootstrap refits: are the clusters stable?",
)
@click.option("--trajectories", "ways", is_flag=True, help="With --csv: a row a pair and recorded step.")
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print a row a pair as CSV, in full precision.")
def scales(run: str, step: int | None, refits: int, ways: bool, as_json: bool, as_csv: bool) -> None:
    """Every Morlet pair of RUN: ω, σ, period, reach, band, cluster, and where it started.

    omega in rad/token; sigma, period and reach in tokens. Pairs count from 0, clusters from 1 by rising
    sigma. reach_tokens in --json is where 1 % of the envelope is left. On stderr: how many clusters there
    are, now and at the start, with --refits how often each number of them wins on bootstrap draws of the
    pairs, how far the scales moved against the most that was possible, and how much of the context
    carries any position.
    """
    from ega_mope.analysis.clusters import verdict
    from ega_mope.analysis.position_norm import morlet_norm
    from ega_mope.analysis.scales import movement, pairs_table
    from ega_mope.analysis.scales import scales as read_scales
    from ega_mope.analysis.stability import stability
    from ega_mope.analysis.trajectories import trajectories
    from ega_mope.runs import open_run

    if as_json and as_csv:
        raise ValueError("output: expected --json or --csv, got both; choose one of them")
    if ways and not as_csv:
        raise ValueError("--trajectories: expected --csv beside it, got none; add --csv")
    opened = open_run(run)
    if ways:
        trajectories(opened).table().to_csv(sys.stdout, index=False)
        return
    found = read_scales(opened, step)
    stable = stability(found.points, found.clusters, refits) if refits else None
    if as_json:
        answer = found.to_json()
        print_json(answer | {"stability": stable.to_json()} if stable else answer)
        return
    table = pairs_table(found)
    if as_csv:
        table.to_csv(sys.stdout, index=False)
        return
    shown = table.drop(columns=["projected", "omega_free"])
    rows = [[None if value != value else value for value in row] for row in shown.itertuples(index=False)]
    print_table(list(shown.columns), rows)
    note(verdict(found.clusters, found.start_clusters))
    if stable:
        note(stable.in_words)
        starts = found.start_points
        if starts is not None and found.start_clusters:
            note(f"Start: {stability(starts, found.start_clusters, refits).in_words}")
    note(movement(found))
    note(morlet_norm(found, opened.config.model.context_length).in_words)
