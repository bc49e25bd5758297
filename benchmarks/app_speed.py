"""How fast the app is, against its targets: `python -m benchmarks.app_speed` prints a table and writes app_speed.json.

Judged by CPU seconds or by ratios within one process where nobody waits for a screen, by the clock where somebody does:
there other work on the machine counts against it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.app.clicks import clicks
from benchmarks.app.folders import beside_tensorboard, folders, write_runs
from benchmarks.app.gates import gates_of_a_long_text, long_text
from benchmarks.app.opening import first_content, first_shaded_view, help_text
from benchmarks.app.server import server, why_no_browser
from benchmarks.measuring import Line, Skipped, machine, print_lines, write_json

ROOT = Path(__file__).resolve().parents[1]
RUN = "tinyshakespeare-small-ega-causal-mope-multiscale-s0"
UPLOAD = 100_000

Part = Callable[[], Iterator[Line | Skipped]]


def reading() -> Iterator[Line | Skipped]:
    """Many run folders."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        write_runs(ROOT / "checkpoints", runs)
        yield from folders(runs)
        yield beside_tensorboard(runs, Path(folder) / "events")


def commands() -> Iterator[Line | Skipped]:
    """The command line."""
    yield help_text(ROOT)


def text() -> Iterator[Line | Skipped]:
    """A long text."""
    from ega_mope.runs import Run

    yield gates_of_a_long_text(Run(ROOT / "checkpoints" / RUN))


def screen() -> Iterator[Line | Skipped]:
    """The app in a browser."""
    from ega_mope.runs import Run

    missing = why_no_browser()
    if missing:
        yield Skipped("the app in a browser", missing)
        return
    yield first_content(ROOT)
    yield first_shaded_view(ROOT, long_text(Run(ROOT / "checkpoints" / RUN), UPLOAD))
    with server(ROOT) as served:
        yield from clicks(served, ROOT)


PARTS: dict[str, Part] = {"reading": reading, "commands": commands, "screen": screen, "text": text}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="one part, printed and not written")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "app_speed.json")
    chosen = parser.parse_args()
    start, before = time.perf_counter(), machine()
    lines: list[Line | Skipped] = []
    for name, part in PARTS.items():
        if chosen.only in (None, name):
            print(f"{part.__doc__} …", file=sys.stderr)
            for line in part():
                print_lines([line], sys.stderr)
                lines.append(line)
    print_lines(lines)
    if chosen.only is None:
        seconds = round(time.perf_counter() - start)
        write_json(
            chosen.out, lines, judged=" ".join((__doc__ or "").split()[-36:]), before=before, seconds=seconds
        )


if __name__ == "__main__":
    main()
