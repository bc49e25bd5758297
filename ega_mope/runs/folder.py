"""What a run folder is: where it lies, what its status says, and how its files are read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import filelock

from ega_mope.config import Plain

T = TypeVar("T")

FORMAT = 1
STALE_SECONDS = 60.0
"""A heartbeat older than this, written on another machine, counts as dead."""


def runs_folder() -> Path:
    """Where the user's runs are: `EGA_MOPE_RUNS`, else `runs` in the current folder. Absolute."""
    return Path(os.environ.get("EGA_MOPE_RUNS") or "runs").expanduser().absolute()


def shipped_folder() -> Path:
    """Where the runs that come with the lab are. Absolute."""
    return Path(__file__).resolve().parents[2] / "checkpoints"


@dataclass(frozen=True)
class Status:
    """What a run is doing: queued, running, finished, stopped, diverged, failed or interrupted."""

    state: str
    step: int = 0
    pid: int | None = None
    host: str | None = None
    heartbeat: float | None = None
    error: str | None = None


def is_locked(path: Path) -> bool:
    """Whether somebody on this machine is writing this run now."""
    if not (path / ".lock").exists():
        return False
    lock = filelock.FileLock(path / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return True
    lock.release()
    return False


def read_document(path: Path) -> Plain:
    """The JSON object in a file of a run; ValueError in one line where there is none."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(
            f"{path.parent.name}: expected {path.name}, got no such file; restore or delete it"
        ) from None
    except ValueError as error:
        raise ValueError(
            f"{path.parent.name}: expected JSON in {path.name}, got {error}; restore it"
        ) from None
    if not isinstance(data, dict):
        raise ValueError(
            f"{path.parent.name}: expected a JSON object in {path.name}, got {type(data).__name__}; restore it"
        )
    return data


def read_lines(path: Path) -> list[Plain]:
    """The records of a .jsonl file, none where there is no file; a line that a kill cut in half is passed over."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [record for line in lines if (record := whole_record(line)) is not None]


def whole_record(line: bytes) -> Plain | None:
    """The JSON object in a line; None where it holds half a one."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


class Remembered(Generic[T]):
    """What `read` makes of a file, kept until the file changes: its time of change, size or inode.

    What it gives is shared by all who ask: look at it, never change it.
    """

    def __init__(self, read: Callable[[Path], T]) -> None:
        self._read = read
        self._known: dict[Path, tuple[tuple[int, int, int], T]] = {}

    def __call__(self, path: Path) -> T | None:
        """None where there is no such file."""
        try:
            stat = path.stat()
        except FileNotFoundError:
            self._known.pop(path, None)
            return None
        # Taken before the file is read: what is written meanwhile is read again next time.
        stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = self._known[path] = stamp, self._read(path)
        return known[1]
