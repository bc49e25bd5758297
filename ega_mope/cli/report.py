"""`ega-mope report`: run folders as one document."""

from __future__ import annotations

from pathlib import Path

import click

from ega_mope.cli.claims import chosen_runs
from ega_mope.cli.output import note

MARKER = "findings"


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--runs",
    "folder",
    type=click.Path(path_type=Path),
    help="Report the runs in this folder [yours and the shipped].",
)
@click.option("--html", type=click.Path(path_type=Path), help="Write one HTML file that opens offline.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write Markdown, without the figures.")
@click.option(
    "--findings",
    is_flag=True,
    help="Print the generated part of docs/FINDINGS.md [shipped runs]; with --markdown FILE, put it between that "
    "file's markers.",
)
def report(
    runs: tuple[str, ...], folder: Path | None, html: Path | None, markdown: Path | None, findings: bool
) -> None:
    """Write what RUNs (all runs unless named) say: claims, 2×2s, loss curves, audits."""
    if findings:
        _findings(runs, folder, html, markdown)
        return
    if html is None and markdown is None:
        raise ValueError("report: expected --html FILE, --markdown FILE or --findings, got none; give one")
    from ega_mope.report import as_html, as_markdown, sections

    found = chosen_runs(runs, folder)
    if not found:
        raise ValueError("report: expected runs, got none; train some, or name a folder with --runs")
    made = sections(found)
    if html is not None:
        _write(html, as_html(made))
    if markdown is not None:
        _write(markdown, f"# EGA/MoPE Lab: report\n\n{as_markdown(made)}\n")


def _findings(runs: tuple[str, ...], folder: Path | None, html: Path | None, markdown: Path | None) -> None:
    from ega_mope.report import as_markdown, between_markers
    from ega_mope.report import findings as generated
    from ega_mope.runs import shipped_folder

    if html is not None:
        raise ValueError(
            "report: expected --findings alone or with --markdown, got --html too; leave one out"
        )
    text = as_markdown(generated(chosen_runs(runs, folder if runs or folder else shipped_folder())))
    if markdown is None:
        click.echo(text)
        return
    if not markdown.is_file():
        raise ValueError(
            f"markdown: expected a file with the markers of {MARKER}, got {markdown}; write it first"
        )
    _write(markdown, between_markers(markdown.read_text(encoding="utf-8"), MARKER, text))


def _write(path: Path, text: str) -> None:
    from ega_mope.runs import write_atomically

    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise ValueError(
            f"report: expected a file that can be written, got {path} ({error.strerror}); choose another"
        ) from error
    note(f"{len(text.encode()) / 1e6:.2f} MB: {path.absolute()}")
