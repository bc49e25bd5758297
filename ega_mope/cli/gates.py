"""`ega-mope gates`: what a run's energy gates do with a text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ega_mope.cli.output import device_option, json_option, note, print_json, print_table, run_argument
from ega_mope.cli.texts import (
    asked_heads,
    given_text,
    head_option,
    layer_option,
    text_options,
)

if TYPE_CHECKING:
    from ega_mope.analysis.gates import GateReading


@click.command()
@run_argument
@text_options
@layer_option
@head_option
@click.option(
    "--shade", default="gate", show_default=True, metavar="gate|z|change", help="What --html and --ansi show."
)
@click.option(
    "--keep-above", default=0.0, show_default=True, type=click.FloatRange(0, 1), help="Gate to keep above."
)
@click.option("--no-weight-change", is_flag=True, help="Gates alone: much faster on long texts.")
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print a row a character and head as CSV.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the shaded text to this file."
)
@click.option("--ansi", is_flag=True, help="Print the shaded text (24-bit colour).")
@device_option
def gates(
    run: str,
    text: str | None,
    text_file: Path | None,
    layer: int | None,
    head: int | None,
    shade: str,
    keep_above: float,
    no_weight_change: bool,
    as_json: bool,
    as_csv: bool,
    html: Path | None,
    ansi: bool,
    device: str,
) -> None:
    """Gate, z-energy and weight change of every character of a text.

    Without --json, --csv, --html or --ansi: a table of the heads. Layers and heads count from 1 here and
    in CSV; the arrays of --json count from 0, as [layer][head][character], and always hold every head.
    --html and --ansi show one head: the one with the largest spread on this text among those that
    --layer and --head leave. Control characters and unread ones are marked. A text longer than the
    context is read in windows at half-context stride.
    """
    from ega_mope.analysis.gates import gates as read_gates
    from ega_mope.runs import open_run

    if as_json + as_csv + ansi + (html is not None) > 1:
        raise ValueError("output: expected one of --json, --csv, --html, --ansi, got several; choose one")
    opened = open_run(run)
    wanted = given_text(text, text_file)
    reading = read_gates(
        opened, wanted, device=device, weight_change=not no_weight_change, progress=_progress
    )
    heads = asked_heads(reading, layer, head)
    one = max(heads, key=lambda place: reading.spread()[place])
    if as_json:
        print_json(reading.to_json())
    elif as_csv:
        from ega_mope.analysis.gate_tables import characters_table

        characters_table(reading, heads).to_csv(sys.stdout, index=False)
    elif html is not None:
        _write_html(reading, html, one, shade, keep_above)
    elif ansi:
        from ega_mope.plots.text import shaded_ansi

        shown = shaded_ansi(reading, layer=one[0], head=one[1], shade=shade, keep_above=keep_above)
        click.echo(shown, color=True, nl=False)
        _say(reading, one, keep_above)
    else:
        _print_heads(reading, heads, keep_above)


def _write_html(
    reading: GateReading, path: Path, place: tuple[int, int], shade: str, keep_above: float
) -> None:
    from ega_mope.plots.text import html_document

    layer, head = place
    notes = [f"Layer {layer + 1}, head {head + 1}.", _kept(reading, place, keep_above)]
    notes += [reading.notice] if reading.notice else []
    document = html_document(
        reading,
        title=f"Energy gates of {reading.run}",
        notes=notes,
        layer=layer,
        head=head,
        shade=shade,
        keep_above=keep_above,
    )
    path.write_text(document, encoding="utf-8")
    click.echo(f"layer {layer + 1}, head {head + 1}: {path.absolute()}")
    _say(reading, place, keep_above)


def _print_heads(reading: GateReading, heads: list[tuple[int, int]], keep_above: float) -> None:
    from ega_mope.analysis.gate_tables import heads_table

    every = heads_table(reading, keep_above)
    table = every.iloc[[layer * reading.gate.shape[1] + head for layer, head in heads]]
    rows = [[None if value != value else value for value in row] for row in table.itertuples(index=False)]
    print_table(list(table.columns), rows)
    _say(reading, max(heads, key=lambda place: reading.spread()[place]), keep_above)


def _kept(reading: GateReading, place: tuple[int, int], bound: float) -> str:
    from ega_mope.analysis.gate_tables import kept_above

    return f"Above g = {bound:g}: {kept_above(reading.gate[place], bound)}."


def _say(reading: GateReading, place: tuple[int, int], bound: float) -> None:
    """What belongs beside any picture of these gates, on stderr."""
    note(f"layer {place[0] + 1}, head {place[1] + 1}: {_kept(reading, place, bound)}")
    unknown = reading.reading.unknown()
    if unknown:
        total = sum(count for _, count in unknown)
        listed = ", ".join(f"{text!a} ×{count}" for text, count in unknown[:8])
        more = ", …" if len(unknown) > 8 else ""
        note(f"{total} of {len(reading.characters)} characters not read by this run: {listed}{more}")
    if reading.notice:
        note(reading.notice)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{done:,} of {total:,} tokens\033[K", nl=done == total, err=True)
