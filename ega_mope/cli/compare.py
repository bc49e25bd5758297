"""`ega-mope compare`: losses of runs side by side, by configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ega_mope.cli.chosen import compare_point_option, metric_option, named_or_all, runs_argument
from ega_mope.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from ega_mope.config import Plain


@click.command()
@runs_argument
@metric_option
@compare_point_option
@json_option
def compare(runs: tuple[str, ...], metric: str, compare_point: str, as_json: bool) -> None:
    """Validation losses of RUNs (all runs unless named), a table for each way they were evaluated.

    Runs that differ in the seed alone are one configuration: N, mean, sd, 95 % t interval.
    """
    from ega_mope.analysis.compare import configurations, labels, panels, summary_table
    from ega_mope.analysis.losses import metric_named

    scale = metric_named(metric)
    chosen = named_or_all(runs)
    answer: list[Plain] = []
    for panel in panels(configurations(chosen)):
        table = summary_table(
            panel.configurations, labels(panel.configurations), compare_point, lambda one: scale.convert
        )
        rows = [
            {key: None if value != value else value for key, value in row.items()}
            for row in table.astype(object).to_dict("records")
        ]
        answer.append({"evaluation": panel.title, "unit": scale.unit(panel.tokenizer), "rows": rows})
    if as_json:
        print_json(answer)
        return
    for part in answer:
        click.echo(f"{part['evaluation']}; {compare_point}, {part['unit']}")
        print_table(list(part["rows"][0]), [list(row.values()) for row in part["rows"]])
