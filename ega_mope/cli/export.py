"""`ega-mope export`: loss records for other people's tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ega_mope.cli.output import note

if TYPE_CHECKING:
    from ega_mope.runs import Run


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path), help="Write one table with a row a record."
)
@click.option(
    "--tensorboard",
    type=click.Path(path_type=Path),
    help="Write event files, a folder a run; runs that see the future end in -sees-the-future.",
)
def export(runs: tuple[str, ...], csv_file: Path | None, tensorboard: Path | None) -> None:
    """Write the loss records of RUNs, training and validation, to a CSV file or for TensorBoard."""
    from ega_mope.runs import open_run

    if csv_file is None and tensorboard is None:
        raise ValueError("export: expected --csv FILE or --tensorboard FOLDER, got neither; give one")
    opened = [open_run(run) for run in runs]
    if csv_file is not None:
        _write_csv(opened, csv_file)
    if tensorboard is not None:
        _write_events(opened, tensorboard)


def _write_csv(runs: list[Run], path: Path) -> None:
    from ega_mope.analysis.export import metrics_table
    from ega_mope.runs import write_atomically

    table = metrics_table(runs)
    try:
        write_atomically(path, table.to_csv(index=False, lineterminator="\n").encode())
    except OSError as error:
        raise ValueError(
            f"export: expected a file that can be written, got {path} ({error.strerror}); choose another"
        ) from error
    note(f"{len(table):,} records of {table['path'].nunique()} runs: {path.absolute()}")


def _write_events(runs: list[Run], folder: Path) -> None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "export: expected the package tensorboard for --tensorboard, got none installed; "
            "install it, or use --csv"
        ) from None
    for run in runs:
        # A curve is named by its folder alone there.
        mark = "-sees-the-future" if run.sees_future else ""
        with SummaryWriter(f"{folder / run.name}{mark}") as writer:
            for record in run.records():
                if record["loss_nats"] is not None:
                    writer.add_scalar(f"loss_nats/{record['split']}", record["loss_nats"], record["step"])
    note(f"event files of {len(runs)} runs: {folder.absolute()}")
