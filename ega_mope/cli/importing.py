"""`ega-mope import`: somebody else's checkpoint becomes a run."""

from __future__ import annotations

from pathlib import Path

import click

from ega_mope.cli.output import json_option, note, print_json


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--corpus", metavar="NAME|FILE", help="The text it was trained on.")
@click.option(
    "--vocabulary",
    type=click.Path(path_type=Path),
    help="Its characters in id order: a text file, or .json with a list.",
)
@click.option("--name", help="Name of the run; the file's name unless given.")
@click.option(
    "--runs", "folder", type=click.Path(path_type=Path), help="Folder of runs [EGA_MOPE_RUNS, else ./runs]."
)
@json_option
def import_(
    file: Path,
    corpus: str | None,
    vocabulary: Path | None,
    name: str | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Make a run of FILE, a checkpoint of the paper's published script or nanoGPT's ckpt.pt.

    Nothing in FILE is executed. It does not say which characters its tokens are: without --corpus or
    --vocabulary, 65 tokens are read as TinyShakespeare's alphabet.
    """
    from ega_mope.analysis.runs import future_mark
    from ega_mope.importers import import_checkpoint
    from ega_mope.runs import Run, runs_folder

    folder = (folder or runs_folder()).absolute()
    imported = import_checkpoint(file, folder, corpus=corpus, vocabulary=vocabulary, name=name)
    run = Run(imported.path)
    if as_json:
        mechanisms = {key: getattr(run.config.model, key) for key in ("attention", "position")}
        facts = {"name": run.name, "path": str(run.path), "step": run.status.step, "notes": imported.notes}
        print_json({**facts, **mechanisms, "sees_future": run.sees_future})
        return
    for line in imported.notes:
        note(line)
    mark = future_mark(run.sees_future)
    click.echo(f"imported: {run.path}{f' ({mark})' if mark else ''}")
