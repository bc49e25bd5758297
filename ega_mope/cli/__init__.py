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
from ega_mope.cli.ablate import ablate
from ega_mope.cli.app import app
from ega_mope.cli.audit import audit
from ega_mope.cli.claims import claims
from ega_mope.cli.compare import compare
from ega_mope.cli.correlates import correlates, spectral
from ega_mope.cli.correlation import correlation
from ega_mope.cli.data import data
from ega_mope.cli.export import export
from ega_mope.cli.gates import gates
from ega_mope.cli.generate import generate
from ega_mope.cli.importing import import_
from ega_mope.cli.kernels import kernels
from ega_mope.cli.length import length
from ega_mope.cli.mechanisms import mechanisms
from ega_mope.cli.position import position
from ega_mope.cli.report import report
from ega_mope.cli.runs import runs, show
from ega_mope.cli.scales import scales
from ega_mope.cli.superadditivity import superadditivity
from ega_mope.cli.surprise import surprise
from ega_mope.cli.sweep import sweep
from ega_mope.cli.train import train
from ega_mope.cli.work import probe, work


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(ega_mope.__version__, package_name="ega-mope")
def cli() -> None:
    """A lab for Energy-Gated Attention (EGA) and Morlet Positional Encoding (MoPE).

    RUN is the name of a run (yours first, then the shipped ones) or a folder.
    """


for command in (
    app,
    data,
    train,
    runs,
    show,
    gates,
    correlates,
    spectral,
    surprise,
    scales,
    position,
    kernels,
    correlation,
    length,
    ablate,
    generate,
    export,
    import_,
    compare,
    superadditivity,
    claims,
    report,
    audit,
    sweep,
    mechanisms,
    work,
    probe,
):
    cli.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        answer = cli.main(args=given or ["--help"], standalone_mode=False)
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
