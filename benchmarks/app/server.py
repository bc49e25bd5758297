"""A server of the lab on the shipped runs alone, and a headless Chromium that visits it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE_SECONDS = 120
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]

    def cpu_seconds(self) -> float:
        """What it has worked so far, on all cores; NaN where the system does not say."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return float("nan")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(root: Path) -> Iterator[Server]:
    """`ega-mope app` with no runs but the shipped ones, from when it answers until the block ends."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        process = subprocess.Popen(
            [sys.executable, "-m", "ega_mope", "app", "--headless", f"--port={port}"],
            cwd=folder,
            env=os.environ | {"EGA_MOPE_RUNS": f"{folder}/runs", "PYTHONPATH": str(root)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            started = Server(f"http://localhost:{port}", process)
            _wait_until_up(started)
            yield started
        finally:
            process.terminate()
            process.wait()


def _wait_until_up(started: Server) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and started.process.poll() is None:
        try:
            with urllib.request.urlopen(f"{started.url}/_stcore/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.02)
    raise RuntimeError("the app's server did not start")


def why_no_browser() -> str | None:
    """None, or what is missing to open a page."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return (
        None
        if _chromium()
        else "no Chromium here (Debian: apt-get install chromium), or name it in EGA_MOPE_CHROMIUM"
    )


def _chromium() -> str | None:
    names = (os.environ.get("EGA_MOPE_CHROMIUM"), "/usr/bin/chromium", "chromium", "google-chrome")
    return next((path for name in names if name and (path := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """One headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=_chromium(), args=list(ARGUMENTS))
        yield opened
        opened.close()


def new_page(opened: Browser) -> Page:
    """A page 1280 pixels wide with nothing in its cache."""
    page = opened.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE_SECONDS * 1000)
    return page
