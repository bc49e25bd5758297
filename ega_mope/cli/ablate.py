"""`ega-mope ablate`: what a trained model needs, each part taken out in turn."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ega_mope.cli.output import device_option, json_option, note, print_frame, print_json, run_argument
from ega_mope.cli.texts import optional_text, text_options


@click.command()
@run_argument
@text_options
@click.option(
    "--windows",
    default=8,
    show_default=True,
    type=click.IntRange(1),
    help="Validation windows to read, spread evenly.",
)
@click.option("--whole", is_flag=True, help="Read the whole validation split instead; takes minutes.")
@click.option(
    "--bands", default="sigma", show_default=True, metavar="sigma|omega", help="What puts pairs into bands."
)
@device_option
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print a row a change as CSV, in full precision.")
def ablate(
    run: str,
    text: str | None,
    text_file: Path | None,
    windows: int,
    whole: bool,
    bands: str,
    device: str,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Open each gate of RUN, take out each band of Morlet pairs, and rank what the model needs.

    loss_change is validation loss with the change less without, nats per token, on the same windows:
    above 0 the model needs the part; low and high are its 95 % interval over windows. kl_nats is how far
    predictions move (mean KL divergence), on the text where one is given, else on those windows. Random pairs
    removed are the control of a band: as many pairs, drawn once. Ctrl-C stops it.
    """
    from ega_mope.analysis.ablation import ablate as take_out
    from ega_mope.runs import open_run

    if as_json and as_csv:
        raise ValueError("output: expected --json or --csv, got both; choose one of them")
    found = take_out(
        open_run(run),
        optional_text(text, text_file),
        most_windows=None if whole else windows,
        bands_by=bands,
        device=device,
        progress=_progress,
    )
    if as_json:
        print_json(found.to_json())
        return
    table = found.table()
    if as_csv:
        table.to_csv(sys.stdout, index=False)
        return
    shown = table.assign(clear=table["clear"].map({True: "yes", False: "no"}))
    print_frame(shown)
    if found.sees_future:
        note(f"{found.run} sees the future: its losses are not those of predicting the next token")
    for line in (found.what_was_read, *found.findings, *found.notes):
        note(line)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{done / total:4.0%}\033[K", nl=done == total, err=True)
