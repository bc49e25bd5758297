"""`ega-mope data`: get a corpus and say what it is."""

from __future__ import annotations

import click

from ega_mope.cli.output import json_option, print_json


@click.command()
@click.argument("name")
@json_option
def data(name: str, as_json: bool) -> None:
    """Get the corpus NAME (tinyshakespeare, python-docs, planted, or a file) and say what it is.

    TinyShakespeare is looked up in EGA_MOPE_DATA, then in the user's cache, then fetched once.
    """
    from ega_mope.text import load_corpus

    corpus = load_corpus(name)
    document = {
        "name": corpus.name,
        "characters": len(corpus.text),
        "alphabet": len(set(corpus.text)),
        "bytes": len(corpus.text.encode()),
        "sha256": corpus.sha256,
        "source": corpus.source,
    }
    if as_json:
        print_json(document)
        return
    for key, value in document.items():
        click.echo(f"{key:<10}  {value:,}" if isinstance(value, int) else f"{key:<10}  {value}")
