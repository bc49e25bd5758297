"""What commands that compare runs have in common: which runs, which loss of each, in which unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ega_mope.runs import Run

runs_argument = click.argument("runs", nargs=-1, metavar="[RUN]...")
metric_option = click.option(
    "--metric", default="nats", show_default=True, metavar="nats|bits|perplexity", help="Scale."
)
compare_point_option = click.option(
    "--compare-point",
    default="best",
    show_default=True,
    metavar="best|final|common_step",
    help="Which validation loss of each run.",
)


def named_or_all(runs: tuple[str, ...]) -> list[Run]:
    """The runs of these names or folders; without any, every run that can be read."""
    from ega_mope.runs import Run, list_runs, open_run

    return [open_run(run) for run in runs] or [run for run in list_runs() if isinstance(run, Run)]
