"""What a benchmark prints and writes: one line a target, and the machine it was measured on."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO


@dataclass(frozen=True)
class Line:
    """One target: what was measured, the bound, every sample, and what decides.

    got is the median of `samples`. `how` says what a sample is: wall or CPU seconds, or a ratio.
    """

    name: str
    unit: str
    target: float
    samples: Sequence[float]
    how: str
    better: Literal["less", "more"] = "less"
    warm_up: int = 0
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def got(self) -> float:
        """The median sample."""
        return statistics.median(self.samples)

    @property
    def met(self) -> bool:
        """Whether the median keeps to the target."""
        return self.got <= self.target if self.better == "less" else self.got >= self.target

    @property
    def asked(self) -> str:
        """The target in words."""
        return f"{'≤' if self.better == 'less' else '≥'} {self.target:g} {self.unit}"

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data, numbers to four digits."""
        rounded = [float(f"{sample:.4g}") for sample in self.samples]
        got = float(f"{self.got:.4g}")
        return asdict(self) | {"samples": rounded, "got": got, "asked": self.asked, "met": self.met}


@dataclass(frozen=True)
class Skipped:
    """A target that could not be measured here, and why."""

    name: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"met": None}


@dataclass(frozen=True)
class Spent:
    """Seconds on the clock, and of one process's work on all its cores."""

    wall: float
    cpu: float


def spent(work: Callable[[], object]) -> Spent:
    """What `work` takes in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def machine() -> dict[str, Any]:
    """What the numbers were measured on, and how busy it was with other things."""
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_average": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }


def _cpu_name() -> str:
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def print_lines(lines: Sequence[Line | Skipped], to: TextIO | None = None) -> None:
    """A table: what, target, got, met or not."""
    width = max(len(line.name) for line in lines)
    print(f"{'':{width}}  {'target':>10}  {'got':>8}", file=to)
    for line in lines:
        if isinstance(line, Skipped):
            print(f"{line.name:{width}}  skipped: {line.reason}", file=to)
            continue
        print(
            f"{line.name:{width}}  {line.asked:>10}  {line.got:8.3g}  {'met' if line.met else 'NOT met'}  ({line.how})",
            file=to,
        )


def markdown(document: dict[str, Any]) -> str:
    """The table that the README shows, from what `write_json` wrote."""
    on = document["machine"]
    lines = [
        f"The app, measured {document['measured']} on {on['cores']} cores of {on['cpu']}; medians.",
        "",
        "| what | asked | got | |",
        "|---|---|---|---|",
    ]
    for line in document["lines"]:
        if line["met"] is None:
            lines.append(f"| {line['name']} | | | not measured: {line['reason']} |")
        else:
            verdict = "met" if line["met"] else "missed"
            lines.append(
                f"| {line['name']} | {line['asked']} | {line['got']:.3g} {line['unit']} | {verdict} |"
            )
    return "\n".join(lines)


def write_json(path: Path, lines: Sequence[Line | Skipped], **facts: Any) -> None:
    """Machine, lines and `facts` as one document."""
    document = {
        "measured": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        **facts,
        "lines": [line.to_json() for line in lines],
    }
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
