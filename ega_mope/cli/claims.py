"""`ega-mope claims`: which of the published claims do the runs bear out?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ega_mope.cli.output import json_option, note, print_json, print_table

if TYPE_CHECKING:
    from ega_mope.analysis.claims import Judged
    from ega_mope.runs import BrokenRun, Run


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--runs",
    "folder",
    type=click.Path(path_type=Path),
    help="Judge the runs in this folder [yours and the shipped].",
)
@click.option("--claim", "wanted", metavar="ID", help="One claim with its test, its numbers and its runs.")
@json_option
@click.option("--markdown", is_flag=True, help="Print Markdown tables.")
@click.option("--csv", is_flag=True, help="Print CSV, all digits.")
def claims(
    runs: tuple[str, ...], folder: Path | None, wanted: str | None, as_json: bool, markdown: bool, csv: bool
) -> None:
    """Hold the published claims against RUNs (all runs unless named).

    Each is judged by a test that was fixed beforehand: it holds, fails, or is undecided, with the reason and the
    command that would decide it.
    """
    from ega_mope.analysis.claims import RULES, judge, tables

    if as_json + markdown + csv > 1:
        raise ValueError("claims: expected one of --json, --markdown, --csv, got several; choose one")
    judged = judge(chosen_runs(runs, folder))
    if wanted is not None:
        judged = [_named(judged, wanted)]
    if as_json:
        print_json(tables.to_json(judged))
    elif csv:
        click.echo(tables.claims_table(judged).to_csv(index=False), nl=False)
    elif markdown:
        click.echo(tables.markdown(judged))
    elif wanted is not None:
        _print_one(judged[0])
    else:
        note(RULES)
        rows = tables.shown_rows(judged)
        print_table(
            ("id", *tables.SHOWN[1:], tables.SHOWN[0]),
            [(one.claim.id, *row[1:], row[0]) for one, row in zip(judged, rows, strict=True)],
        )
        click.echo(
            f"{tables.summary(judged)} `ega-mope claims --claim ID` says why, and what would decide it."
        )


def chosen_runs(names: tuple[str, ...], folder: Path | None) -> list[Run | BrokenRun]:
    """The named runs and those in the folder; without either all runs there are."""
    from ega_mope.runs import list_runs, open_run

    if folder is not None and not folder.is_dir():
        raise ValueError(f"runs: expected a folder of runs, got {folder}, which is none; name another")
    found = [*map(open_run, names), *(list_runs([folder.absolute()]) if folder else [])]
    return found if names or folder else list_runs()


def _named(judged: list[Judged], wanted: str) -> Judged:
    for one in judged:
        if one.claim.id == wanted:
            return one
    known = ", ".join(one.claim.id for one in judged)
    raise ValueError(f"claim: expected one of ({known}), got {wanted!r}; choose one of them")


def _print_one(one: Judged) -> None:
    """The claim in full: test, verdict, why, numbers, the paper's, runs, commands."""
    from ega_mope.analysis.claims import tables

    claim, outcome = one.claim, one.outcome
    paper = f"{tables.number(claim.paper.value, outcome.unit)}; " if claim.paper.value is not None else ""
    for name, text in (
        ("claim", tables.sentence(one)),
        ("test", claim.test),
        ("verdict", outcome.verdict),
        ("why", outcome.reason),
        ("the paper's", f"{paper}{claim.paper.note}"),
        ("runs", ", ".join(run.name for run in outcome.runs) or "none"),
    ):
        click.echo(f"{name + ':':<13}{text}")
    table = tables.parts_table(one)
    print_table([str(column) for column in table.columns], table.to_numpy().tolist())
    for command in outcome.commands:
        click.echo(f"to decide:   {command}")
