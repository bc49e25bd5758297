"""`ega-mope app`: open the lab in the browser."""

from __future__ import annotations

import os
import runpy
import sys
from importlib import import_module
from pathlib import Path

import click


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port to serve on [8501, or the next free one].")
@click.option("--headless", is_flag=True, help="Serve without opening a browser.")
def app(port: int | None, headless: bool) -> None:
    """Open the lab in the browser, on your runs and the shipped ones. Ctrl-C ends it."""
    from ega_mope.runs import runs_folder

    root = Path(__file__).resolve().parents[2]
    script = root / "app.py"
    if not (script.is_file() and (root / "pages").is_dir()):
        raise ValueError(
            f"app: expected app.py and pages/ beside the package in {root}, got none; "
            "clone the lab and run `pip install -e .` in the clone"
        )
    os.environ["EGA_MOPE_RUNS"] = str(runs_folder())
    options = [f"--server.port={port}"] if port else []
    options += ["--server.headless=true"] if headless else []
    # What the first page would import, torch above all: a server that is up answers at once.
    import_module("ega_mope.analysis.home")
    # In this process, so that Ctrl-C and every other signal reach the server itself.
    sys.argv = ["streamlit", "run", str(script), *options]
    runpy.run_module("streamlit", run_name="__main__", alter_sys=True)
