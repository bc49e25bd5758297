"""`ega-mope kernels`: the correlation kernels of a run's Morlet pairs."""

from __future__ import annotations

import click

from ega_mope.cli.output import json_option, print_json, print_table, run_argument


@click.command()
@run_argument
@click.option("--lags", type=click.IntRange(0), metavar="N", help="Lags 0 to N tokens [context length − 1].")
@json_option
def kernels(run: str, lags: int | None, as_json: bool) -> None:
    """C(τ) = exp(−τ²/4σ²)·cos(ωτ) of every Morlet pair of RUN by lag τ in tokens, and their mean.

    Without --json: the mean over all pairs, over each cluster, and the mean's two limits, σ → ∞ and ω = 0.
    """
    from ega_mope.analysis.kernels import cluster_table, kernels_of, kernels_table
    from ega_mope.analysis.scales import scales
    from ega_mope.runs import open_run

    opened = open_run(run)
    found = scales(opened)
    most = opened.config.model.context_length - 1 if lags is None else lags
    if as_json:
        print_json(kernels_of(found, most).to_json())
        return
    table = kernels_table(found, most, ()).merge(cluster_table(found, most), on="lag")
    print_table(list(table.columns), [[int(row[0]), *row[1:]] for row in table.itertuples(index=False)])
