"""A real server and a real headless Chromium, for the tests in this folder.

Without Chromium they are skipped with a line that says so; with EGA_MOPE_REQUIRE_BROWSER set they fail.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)
PATIENCE_MS = 180_000
"""A page loads in seconds; a machine that trains models meanwhile may need minutes."""

Serve = Callable[..., str]
Visit = Callable[[Page, str], Page]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium."""
    candidates = [os.environ.get("EGA_MOPE_CHROMIUM"), "/usr/bin/chromium", "chromium", "google-chrome"]
    found = next((path for name in candidates if name and (path := shutil.which(name))), None)
    if found:
        return found
    reason = "no Chromium here: install it (Debian: apt-get install chromium) or name it in EGA_MOPE_CHROMIUM"
    if os.environ.get("EGA_MOPE_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """One Chromium for all tests."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield launched
        launched.close()


@pytest.fixture
def serve(chromium: str, tiny_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """`serve()` starts a fresh server on the tiny runs, `serve(runs=folder)` on others; stopped when the test ends."""
    with _servers(tiny_runs, tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="session")
def app(chromium: str, tiny_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Base URL of one server on the tiny runs and the shipped ones, shared by all tests."""
    with _servers(tiny_runs, tmp_path_factory) as start:
        yield start()


@contextmanager
def _servers(runs: Path, folders: pytest.TempPathFactory) -> Iterator[Serve]:
    started: list[subprocess.Popen[bytes]] = []

    def start(runs: Path = runs) -> str:
        folder = folders.mktemp("server")
        port = _free_port()
        log = folder / "log.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "ega_mope", "app", "--headless", f"--port={port}"],
                cwd=folder,
                env=os.environ | {"EGA_MOPE_RUNS": str(runs), "OMP_NUM_THREADS": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        started.append(process)
        url = f"http://localhost:{port}"
        _wait_until_healthy(url, process, log)
        return url

    try:
        yield start
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None:
                break
            time.sleep(0.1)
    pytest.fail(f"the server did not start:\n{log.read_text(errors='replace')}")


@pytest.fixture
def pages(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Makes pages of a given width and colour scheme.

    The test fails in the end if any of them met an error in the console, threw one, or asked anything
    of another machine.
    """
    problems: list[str] = []
    contexts = []

    def new(width: int = 1280, colour_scheme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=colour_scheme,  # type: ignore[arg-type]
        )
        contexts.append(context)
        made = context.new_page()
        made.set_default_timeout(PATIENCE_MS)
        made.on("console", lambda line: problems.append(line.text) if _is_fault(line) else None)
        made.on("pageerror", lambda error: problems.append(str(error)))
        made.on("request", lambda request: None if _local(request.url) else problems.append(request.url))
        return made

    yield new
    for context in contexts:
        context.close()
    assert problems == []


def _is_fault(line: ConsoleMessage) -> bool:
    """On a deep link Streamlit first looks for its server below the page's path; that 404 is no fault."""
    return line.type == "error" and "/_stcore/" not in line.location["url"]


def _local(url: str) -> bool:
    return url.startswith(("http://localhost:", "ws://localhost:", "data:", "blob:"))


@pytest.fixture
def page(pages: Callable[..., Page]) -> Page:
    """A page 1280 pixels wide."""
    return pages()


@pytest.fixture
def visit() -> Visit:
    """`visit(page, url)` opens the address and waits until the whole page stands."""

    def to(page: Page, url: str) -> Page:
        page.goto(url)
        settle(page)
        return page

    return to


def settle(page: Page) -> None:
    """Wait until the page has its title, the server has finished it, and the browser has drawn all of it."""
    page.locator("h1").first.wait_for()
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    page.wait_for_function("!document.querySelector('[data-testid=stSkeleton]')")
