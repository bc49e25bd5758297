"""`ega-mope superadditivity`: do EGA and MoPE gain more together than the sum of their parts?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ega_mope.cli.chosen import compare_point_option, metric_option, named_or_all, runs_argument
from ega_mope.cli.output import json_option, note, print_frame, print_json

if TYPE_CHECKING:
    from ega_mope.analysis.factorial import Family
    from ega_mope.analysis.superadditivity import Superadditivity


@click.command()
@runs_argument
@metric_option
@compare_point_option
@click.option("--family", metavar="KEY", help="Which 2×2, where there are several (listed on stderr).")
@click.option(
    "--over-training", is_flag=True, help="The gains at every step at which all runs were validated."
)
@json_option
def superadditivity(
    runs: tuple[str, ...],
    metric: str,
    compare_point: str,
    family: str | None,
    over_training: bool,
    as_json: bool,
) -> None:
    """Interaction of EGA and MoPE in the 2×2 among RUNs (all runs unless named).

    Of several 2×2s it takes the causal one with most seeds unless --family names another.
    """
    from ega_mope.analysis.factorial import find_families
    from ega_mope.analysis.plain import plain_rows
    from ega_mope.analysis.superadditivity import superadditivity as measure
    from ega_mope.analysis.superadditivity_report import course_table

    chosen = named_or_all(runs)
    result = measure(chosen, metric=metric, compare_point=compare_point, family=family)
    course = course_table(result) if over_training else None
    if as_json:
        asked = {} if course is None else {"over_training": plain_rows(course)}
        print_json(result.to_json() | asked)
    if result.refused:
        raise ValueError(f"superadditivity: {result.refused}")
    others = [found for found in find_families(chosen) if found.complete]
    if len(others) > 1:
        _list_others(others, result)
    if not as_json:
        _print(result)
        if course is not None:
            print_frame(course)


def _list_others(families: list[Family], result: Superadditivity) -> None:
    """What --family may name."""
    from ega_mope.analysis.runs import future_mark

    note(f"{len(families)} complete 2×2s; choose one with --family:")
    for family in families:
        taken = " (this one)" if result.family and family.key == result.family.key else ""
        marked = " · ".join(filter(None, (family.label, future_mark(family.sees_future))))
        note(f"  {family.key}: {marked}{taken}")


def _print(result: Superadditivity) -> None:
    """The verdict first, then the cells beside the paper's, then whatever qualifies it."""
    from ega_mope.analysis.superadditivity_report import (
        FUTURE_NOTE,
        PAPER_NOTE,
        cells_table,
        remarks,
        verdict,
    )

    assert result.family is not None
    click.echo(verdict(result))
    click.echo(f"{result.family.label}; {result.compare_point}, {result.unit}")
    print_frame(cells_table(result))
    if result.family.sees_future:
        click.echo(f"⚠ sees the future: {FUTURE_NOTE}")
    for line in (*remarks(result), f"the paper's: {PAPER_NOTE}"):
        click.echo(line)
