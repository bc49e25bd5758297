"""`ega-mope length`: how a run reads on beyond its training length."""

from __future__ import annotations

import click

from ega_mope.cli.output import device_option, json_option, note, print_frame, print_json, run_argument


@click.command()
@run_argument
@click.option(
    "--factor",
    default=4.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Window, in training lengths.",
)
@click.option(
    "--windows", default=64, show_default=True, type=click.IntRange(1), help="Windows to read, at most."
)
@device_option
@json_option
def length(run: str, factor: float, windows: int, device: str, as_json: bool) -> None:
    """Validation loss of RUN by position, in windows longer than it was trained on.

    restarted_nats is the same tokens' loss when reading starts afresh every training length, excess_nats the
    difference: above 0, reading on is worse than starting afresh. Runs with learned positions know no
    position beyond their training length.
    """
    from ega_mope.analysis.length import loss_by_position
    from ega_mope.runs import open_run

    found = loss_by_position(open_run(run), factor=factor, most_windows=windows, device=device)
    if as_json:
        print_json(found.to_json())
        return
    if found.sees_future:
        note(f"{found.run} sees the future: its losses are not those of predicting the next token")
    note(f"trained on {found.context_length} tokens, read {found.windows} windows of {found.length}")
    columns = ["from", "to", "loss_nats", "standard_error", "restarted_nats", "excess_nats", "excess_error"]
    print_frame(found.table[columns])
