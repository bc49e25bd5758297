"""The command line: `ega-mope …`, also `python -m ega_mope …`.

Each subject has a file here; heavy libraries are imported inside the commands, so that help is instant.
Exit status: 0 done, 2 bad input (one line on stderr), 1 a fault of ours.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import click

import ega_mope
from ega_mope.cli.data import data
from ega_mope.cli.runs import runs, show
from ega_mope.cli.train import train


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(ega_mope.__version__, package_name="ega-mope")
def cli() -> None:
    """A lab for Energy-Gated Attention (EGA) and Morlet Positional Encoding (MoPE).

    RUN is the name of a run (yours first, then the shipped ones) or a folder.
    """


for command in (data, train, runs, show):
    cli.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        answer = cli.main(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except (click.ClickException, ValueError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"error: {' '.join(message.split())}", err=True)
        return 2
    except click.Abort:
        click.echo("stopped", err=True)
        return 1
    except Exception:
        traceback.print_exc()
        click.echo(
            "error: this is a fault of the lab, not of your input; the lines above say where", err=True
        )
        return 1
    return answer if isinstance(answer, int) else 0


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run())
