"""`ega-mope mechanisms`: every mechanism in the registries."""

from __future__ import annotations

import dataclasses

import click

from ega_mope.cli.output import json_option, print_json, print_table


@click.command()
@json_option
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
def mechanisms(as_json: bool, markdown: bool) -> None:
    """List every mechanism: what it is, whether it sees the future, what it costs."""
    from ega_mope.analysis.mechanisms import entries, markdown_table

    found = entries()
    if as_json:
        print_json([dataclasses.asdict(entry) for entry in found])
    elif markdown:
        click.echo(markdown_table(found))
    else:
        sizes = list(found[0].parameters)
        print_table(
            ["kind", "name", "sees the future", "memory", *(f"parameters at {size}" for size in sizes)],
            [
                [
                    e.kind,
                    e.name,
                    "no" if e.causal else "yes",
                    e.memory,
                    *(e.parameters[size] for size in sizes),
                ]
                for e in found
            ],
        )
