"""`ega-mope work` and `ega-mope probe`: what the Train page starts; not for typing."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click

from ega_mope.cli.output import print_json


@click.command(hidden=True)
@click.option("--runs", "folder", required=True, type=click.Path(path_type=Path))
def work(folder: Path) -> None:
    """Train the waiting runs of a folder one after the other; ends when none waits."""
    from ega_mope.jobs import work as work_off

    work_off(folder.absolute())


@click.command(hidden=True)
def probe() -> None:
    """Read an experiment's settings as JSON from stdin and say what training it would cost here."""
    from ega_mope.config import experiment_from_plain
    from ega_mope.jobs import probe as estimate

    print_json(dataclasses.asdict(estimate(experiment_from_plain(json.load(sys.stdin)))))
