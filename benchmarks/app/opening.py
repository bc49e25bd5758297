"""What a visitor waits for before the first click: help, the first page, a long text."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.app.clicks import WATCH, open_page
from benchmarks.app.server import browser, new_page, server
from benchmarks.measuring import Line

FIRST, UPLOADS, HELPS = 3, 3, 7


def help_text(root: Path) -> Line:
    """`ega-mope --help` as a process of its own."""
    command, wall, cpu = [sys.executable, "-m", "ega_mope", "--help"], [], []
    environment = os.environ | {"PYTHONPATH": str(root)}
    for _ in range(1 + HELPS):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, env=environment, cwd=root, check=True, stdout=subprocess.DEVNULL)
        wall.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return Line("ega-mope --help", "s", 0.3, wall[1:], "wall", warm_up=1, more={"cpu_seconds": cpu[1:]})


def first_content(root: Path) -> Line:
    """A fresh server and a fresh browser: from the address to the title and the first table of runs."""
    samples, whole = [], []
    for _ in range(FIRST):
        with server(root) as served, browser() as opened:
            page = new_page(opened)
            start = time.perf_counter()
            page.goto(served.url)
            page.get_by_test_id("stDataFrame").first.wait_for()
            samples.append(time.perf_counter() - start)
            page.get_by_role("figure").last.wait_for()
            whole.append(time.perf_counter() - start)
    more = {"until_the_last_figure_seconds": whole}
    return Line("first content of a server that is up", "s", 3.0, samples, "wall", more=more)


def first_shaded_view(root: Path, text: str) -> Line:
    """Energy gates: from a file of `text` to its first view, shaded; a new text each time, on a warm server."""
    samples = []
    with server(root) as served, browser() as opened:
        page = new_page(opened)
        page.add_init_script(f"document.addEventListener('DOMContentLoaded', {WATCH})")
        open_page(served, page, "Energy_gates?text=upload")
        for number in range(1 + UPLOADS):
            mark = f"upload {number}"
            content = (mark + text[len(mark) :]).encode()
            start = time.perf_counter()
            page.locator("input[type=file]").set_input_files(
                {"name": f"{number}.txt", "mimeType": "text/plain", "buffer": content}
            )
            page.locator(".gates .text").filter(has_text=mark).wait_for()
            samples.append(time.perf_counter() - start)
            page.get_by_role("figure").last.wait_for()
    name = f"{len(text):,} character upload, first shaded view"
    return Line(name, "s", 3.0, samples[1:], "wall", warm_up=1, more={"warm_up_samples": samples[:1]})
