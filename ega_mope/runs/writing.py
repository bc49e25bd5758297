"""The one writer of run folders: a kill at any moment leaves whole files, or half a last line."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from ega_mope.config import Plain
from ega_mope.runs.folder import Status
from ega_mope.text import Tokenizer

if TYPE_CHECKING:
    import torch


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step: a reader sees the old file or the new one, never a half."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def to_json_bytes(document: Any) -> bytes:
    """One indented JSON document; non-finite numbers are refused rather than written as no JSON."""
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def numbered_names(wanted: str) -> Iterator[str]:
    """`wanted`, `wanted-2`, `wanted-3` … without end."""
    yield wanted
    for number in itertools.count(2):
        yield f"{wanted}-{number}"


def free_name(folder: Path, wanted: str) -> str:
    """`wanted`, or `wanted-2`, `wanted-3` … where that folder is taken."""
    return next(name for name in numbered_names(wanted) if not (folder / name).exists())


def checked_name(name: str) -> str:
    """A run's name; ValueError unless it is letters, digits, dot, dash and underscore."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", name):
        raise ValueError(
            f"name: expected letters, digits, '.', '-' and '_' (not first: '.' or '-'), got {name!r}; choose another"
        )
    return name


class RunWriter:
    """Writes one run folder; holds its lock, so that no two trainers ever write the same run."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"runs: expected a folder that can be written, got {self.path} ({error.strerror}); choose another"
            ) from error
        self._lock = filelock.FileLock(self.path / ".lock")
        try:
            self._lock.acquire(timeout=2)
        except filelock.Timeout:
            raise ValueError(
                f"{self.path.name}: expected a run that nobody is training, got one in training; "
                "wait for it, stop it, or choose another name"
            ) from None
        self._last_heartbeat = 0.0
        self._status = Status("queued")

    def close(self) -> None:
        """Give the run back."""
        self._lock.release()

    def start(
        self, document: Plain, tokenizer: Tokenizer, priors: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        """Begin a new run, which may start from parameters of other runs; ValueError where the folder holds one
        already."""
        if (self.path / "config.json").exists():
            raise ValueError(
                f"{self.path.name}: expected a new folder, got one that holds a run; "
                "add --resume to go on with it, or choose another name"
            )
        if priors:
            self._save_tensors("priors.safetensors", priors)
        write_atomically(self.path / "tokenizer.json", to_json_bytes(tokenizer.to_json()))
        write_atomically(self.path / "config.json", to_json_bytes(document))

    def append(self, file: str, record: Mapping[str, Any]) -> None:
        """Add one line to metrics.jsonl or learned.jsonl, ending first a half line that a kill left."""
        path = self.path / file
        line = json.dumps(record, allow_nan=False) + "\n"
        with path.open("ab") as handle:
            if handle.tell() and not _ends_with_newline(path):
                line = "\n" + line
            handle.write(line.encode())

    def save_weights(self, state: Mapping[str, torch.Tensor]) -> None:
        """Replace model.safetensors."""
        self._save_tensors("model.safetensors", state)

    def _save_tensors(self, file: str, state: Mapping[str, torch.Tensor]) -> None:
        from safetensors.torch import save

        write_atomically(
            self.path / file,
            save({name: value.detach().cpu().contiguous() for name, value in state.items()}),
        )

    def save_audit(self, document: Plain) -> None:
        """Replace audit.json."""
        write_atomically(self.path / "audit.json", to_json_bytes(document))

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace training_state.pt."""
        import io

        import torch

        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        write_atomically(self.path / "training_state.pt", buffer.getvalue())

    def load_state(self) -> Plain | None:
        """The saved training state; None where there is none."""
        import torch

        path = self.path / "training_state.pt"
        if not path.exists():
            return None
        return torch.load(path, map_location="cpu", weights_only=True)

    def drop_state(self) -> None:
        """A finished run needs no training state."""
        (self.path / "training_state.pt").unlink(missing_ok=True)

    def set_status(self, state: str, step: int, error: str | None = None) -> None:
        """Replace status.json; an ended run belongs to no process any more."""
        pid, host = (os.getpid(), socket.gethostname()) if state == "running" else (None, None)
        self._status = Status(state, step, pid, host, round(time.time(), 3), error)
        self._last_heartbeat = time.monotonic()
        write_atomically(self.path / "status.json", to_json_bytes(dataclasses.asdict(self._status)))

    def heartbeat(self, step: int, every: float = 2.0) -> None:
        """Say "still running, at this step", at most once in `every` seconds."""
        if time.monotonic() - self._last_heartbeat >= every:
            self.set_status("running", step)

    @property
    def last_step(self) -> int:
        """The step of the last status written."""
        return self._status.step

    @property
    def stop_requested(self) -> bool:
        """Whether somebody put a file called STOP into the folder."""
        return (self.path / "STOP").exists()

    def clear_stop(self) -> None:
        """Take the request back, once it is answered or the run goes on."""
        (self.path / "STOP").unlink(missing_ok=True)


def request_stop(run: Path) -> None:
    """Ask the trainer of this run to end cleanly."""
    (run / "STOP").touch()


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"
