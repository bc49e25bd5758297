"""Run folders: the only place that reads or writes them.

A folder is config.json, tokenizer.json, model.safetensors, metrics.jsonl, learned.jsonl, audit.json, status.json
and, while it can be resumed, training_state.pt. Files are replaced atomically or only appended to, so
a kill at any moment loses nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from ega_mope.config import (
    ExperimentConfig,
    ImportedConfig,
    ModelConfig,
    Plain,
    experiment_from_plain,
    flatten,
    read_settings,
    to_plain,
)
from ega_mope.text import CORPORA, Corpus, Tokenizer, load_corpus, tokenizer_from_json

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from ega_mope.model import CharLM

FORMAT = 1
STALE_SECONDS = 60.0
"""A heartbeat older than this, written on another machine, counts as dead."""

METRIC_COLUMNS = (
    "step",
    "tokens",
    "seconds",
    "split",
    "loss_nats",
    "lr",
    "grad_norm",
    "tokens_per_second",
    "diverged",
)


def runs_folder() -> Path:
    """Where the user's runs are: `EGA_MOPE_RUNS`, else `runs` in the current folder. Absolute."""
    return Path(os.environ.get("EGA_MOPE_RUNS") or "runs").expanduser().absolute()


def shipped_folder() -> Path:
    """Where the runs that come with the lab are. Absolute."""
    return Path(__file__).resolve().parent.parent / "checkpoints"


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


@dataclass(frozen=True)
class Status:
    """What a run is doing: queued, running, finished, stopped, diverged, failed or interrupted."""

    state: str
    step: int = 0
    pid: int | None = None
    host: str | None = None
    heartbeat: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class LossPoint:
    """A validation loss and the step it was measured at."""

    step: int
    loss_nats: float


@dataclass(frozen=True)
class BrokenRun:
    """A folder that looks like a run and cannot be read, and why."""

    path: Path
    problem: str

    @property
    def name(self) -> str:
        return self.path.name


class Run:
    """One run folder, read lazily. Raises ValueError in one line for what is missing or broken."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.name = self.path.name
        self.document: Plain = _read_document(self.path / "config.json")
        if self.document.get("format") != FORMAT:
            raise ValueError(
                f"{self.path}: expected a run of format {FORMAT}, got {self.document.get('format')!r}; "
                "open it with the version of the lab that wrote it"
            )
        self.config: ExperimentConfig | ImportedConfig = config_from_document(self.document)

    @property
    def seed(self) -> int | None:
        """The seed of its weights and batches; None where it was trained elsewhere."""
        return self.config.seed

    @property
    def evaluation(self) -> Plain:
        """What the validation loss was measured on: losses of different evaluations do not compare."""
        return self.document["evaluation"]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return tokenizer_from_json(_read_document(self.path / "tokenizer.json"))

    @property
    def audit(self) -> Plain | None:
        """audit.json, what the causality audit measured; None where this run was not audited."""
        path = self.path / "audit.json"
        return _read_document(path) if path.exists() else None

    @property
    def sees_future(self) -> bool | None:
        """Whether earlier predictions depend on later tokens; None where the audit cannot tell.

        As audited; where the run was not, as its mechanisms declare.
        """
        from ega_mope.model import is_causal

        audit = self.audit
        if audit is None:
            return not is_causal(self.config.model)
        return {"causal": False, "sees the future": True}.get(str(audit.get("verdict")))

    @property
    def status(self) -> Status:
        """Its status now; a run whose trainer is gone without a word reads as interrupted."""
        path = self.path / "status.json"
        data: Plain = _read_document(path) if path.exists() else {"state": "interrupted"}
        fields = {field.name for field in dataclasses.fields(Status)}
        status = Status(**{key: value for key, value in data.items() if key in fields})
        if status.state == "running" and not _trainer_alive(self.path, status):
            return dataclasses.replace(status, state="interrupted")
        return status

    def records(self) -> list[Plain]:
        """metrics.jsonl, the last record of each (split, step), by split and step."""
        last: dict[tuple[str, int], Plain] = {}
        for record in _read_lines(self.path / "metrics.jsonl"):
            if "split" in record and "step" in record:
                last[record["split"], record["step"]] = record
        return [last[key] for key in sorted(last)]

    def metrics(self) -> pd.DataFrame:
        """The same as a table with the columns METRIC_COLUMNS; loss_nats is NaN where it was not finite."""
        import pandas as pd

        table = pd.DataFrame.from_records(self.records(), columns=list(METRIC_COLUMNS))
        numbers = [column for column in METRIC_COLUMNS if column not in ("split", "diverged")]
        table[numbers] = table[numbers].apply(pd.to_numeric)
        table["diverged"] = table["diverged"].eq(True)
        return table

    def learned(self) -> list[Plain]:
        """learned.jsonl in step order, the last record of each step: {"step": …, "values": {name: …}}."""
        last = {
            record["step"]: record
            for record in _read_lines(self.path / "learned.jsonl")
            if "values" in record
        }
        return [last[step] for step in sorted(last)]

    def samples(self) -> list[Plain]:
        """samples.jsonl in step order, the last record of each step: {"step": …, "text": …}."""
        last = {
            record["step"]: record for record in _read_lines(self.path / "samples.jsonl") if "text" in record
        }
        return [last[step] for step in sorted(last)]

    def validation(self) -> list[LossPoint]:
        """Finite validation losses in step order."""
        return [
            LossPoint(record["step"], record["loss_nats"])
            for record in self.records()
            if record["split"] == "validation" and record["loss_nats"] is not None
        ]

    def best(self) -> LossPoint | None:
        """The lowest validation loss; None where none was measured."""
        return min(self.validation(), key=lambda point: (point.loss_nats, point.step), default=None)

    def final(self) -> LossPoint | None:
        """The last validation loss; None where none was measured."""
        points = self.validation()
        return points[-1] if points else None

    def settings(self) -> Plain:
        """What decides whether two runs are the same experiment, by dotted key.

        Model, training and corpus settings count; seed, name, paths, versions, device and times do not.
        """
        return comparable_settings(self.config, self.document["corpus"])

    def corpus(self) -> Corpus:
        """The text it was trained on; ValueError that says how to get it where it is not here."""
        wanted = self.document["corpus"]
        if wanted["sha256"] is None:
            raise ValueError(
                f"{self.name}: expected the text it was trained on, got a run that was imported without one; "
                "import it again with --corpus, or choose another text"
            )
        stored = [
            folder / ".corpora" / f"{wanted['sha256']}.txt" for folder in (self.path.parent, runs_folder())
        ]
        for path in stored:
            if path.exists():
                return dataclasses.replace(load_corpus(path), name=wanted["name"])
        if wanted["name"] not in CORPORA:
            raise ValueError(
                f"{self.name}: expected its text {wanted['name']!r} as {stored[0]}, got no such file; "
                "put it there, or choose another text"
            )
        corpus = load_corpus(wanted["name"])
        if corpus.sha256 != wanted["sha256"]:
            raise ValueError(
                f"{self.name}: expected {wanted['name']} with sha256 {wanted['sha256'][:12]}…, got "
                f"{corpus.sha256[:12]}… from {corpus.source}; use the version it was trained on, or another text"
            )
        return corpus

    def model(self, device: str = "auto", dtype: torch.dtype | None = None) -> CharLM:
        """The best weights, in evaluation mode; a run trained on CUDA opens on the CPU too."""
        from safetensors.torch import load_file

        from ega_mope.model import build_model, choose_device

        path = self.path / "model.safetensors"
        if not path.exists():
            raise ValueError(
                f"{self.name}: expected weights in {path}, got no such file; train it again, or choose another run"
            )
        model = build_model(self.config.model)
        try:
            model.load_state_dict(load_file(path))
        except Exception as error:
            first_line = str(error).strip().splitlines()[0]
            raise ValueError(
                f"{self.name}: expected weights that fit its config.json, got {first_line}; train it again"
            ) from error
        return model.to(choose_device(device), dtype or None).eval().requires_grad_(False)


def comparable_settings(config: ExperimentConfig | ImportedConfig, corpus: Mapping[str, Any]) -> Plain:
    """`Run.settings` of a run with this config whose config.json says this of its corpus."""
    return flatten(
        {
            "model": to_plain(config.model),
            "training": config.training and to_plain(config.training),
            "corpus": {key: corpus[key] for key in ("name", "sha256", "tokenizer")},
        }
    )


def config_from_document(document: Mapping[str, Any]) -> ExperimentConfig | ImportedConfig:
    """The settings in a config.json, with everything filled in that a newer lab has added since."""
    from ega_mope.model import resolve

    try:
        corpus, tokenizer = document["corpus"]["name"], document["tokenizer"]
        config: ExperimentConfig | ImportedConfig
        if "imported" in document:
            model = read_settings(ModelConfig, document["model"], "model")
            config = ImportedConfig(model=model, corpus=corpus, tokenizer=tokenizer)
        else:
            plain = {key: document[key] for key in ("model", "training", "seed", "preset")}
            config = experiment_from_plain({**plain, "corpus": corpus, "tokenizer": tokenizer})
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"config.json: expected model, training, corpus, tokenizer, seed and preset, got none of {error}; restore it"
        ) from error
    return dataclasses.replace(config, model=resolve(config.model))


def open_run(run: str | Path) -> Run:
    """A run by name (the user's runs first, then the shipped ones) or by folder."""
    candidates = [runs_folder() / run, shipped_folder() / run, Path(run).absolute()]
    for path in candidates:
        if (path / "config.json").exists():
            return Run(path)
    known = sorted(run_.name for run_ in list_runs())
    listed = ", ".join(known[:12]) + (", …" if len(known) > 12 else "") if known else "none yet: train one"
    raise ValueError(
        f"run: expected a run folder or the name of one ({listed}), got {str(run)!r}; see `ega-mope runs`"
    )


def list_runs(folders: list[Path] | None = None) -> list[Run | BrokenRun]:
    """Every run in the user's folder and among the shipped ones, by name; broken ones say their problem."""
    found: dict[Path, Run | BrokenRun] = {}
    for folder in folders or [runs_folder(), shipped_folder()]:
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if path.is_dir() and not path.name.startswith(".") and path.resolve() not in found:
                found[path.resolve()] = _open_or_explain(path)
    return list(found.values())


def _open_or_explain(path: Path) -> Run | BrokenRun:
    try:
        run = Run(path)
        # What every list shows of a run: one that cannot say it is broken.
        run.validation(), run.status, run.evaluation, run.sees_future
        return run
    except (ValueError, OSError, KeyError, TypeError) as error:
        return BrokenRun(path.absolute(), str(error))


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

    def start(self, document: Plain, tokenizer: Tokenizer) -> None:
        """Begin a new run; ValueError where the folder holds one already."""
        if (self.path / "config.json").exists():
            raise ValueError(
                f"{self.path.name}: expected a new folder, got one that holds a run; "
                "add --resume to go on with it, or choose another name"
            )
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
        from safetensors.torch import save

        write_atomically(
            self.path / "model.safetensors",
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


def _trainer_alive(path: Path, status: Status) -> bool:
    if status.host != socket.gethostname():
        return status.heartbeat is not None and time.time() - status.heartbeat < STALE_SECONDS
    return is_locked(path)


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


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"


def _read_document(path: Path) -> Plain:
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


def _read_lines(path: Path) -> Iterator[Plain]:
    """The records of a .jsonl file; a line that a kill cut in half is passed over."""
    if not path.exists():
        return
    lines = path.read_bytes().splitlines()
    try:
        # A whole file at once takes half the time.
        yield from (
            record for record in json.loads(b"[" + b",".join(lines) + b"]") if isinstance(record, dict)
        )
        return
    except ValueError:
        pass
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record
