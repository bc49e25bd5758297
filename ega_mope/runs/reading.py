"""The one reader of run folders: opened by name or folder, listed, each file read when it is asked for."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from ega_mope.runs.curves import METRIC_COLUMNS, Curve, curves
from ega_mope.runs.folder import (
    FORMAT,
    STALE_SECONDS,
    Remembered,
    Status,
    is_locked,
    read_document,
    read_lines,
    runs_folder,
    shipped_folder,
    whole_record,
)
from ega_mope.text import CORPORA, Corpus, Tokenizer, load_corpus, tokenizer_from_json

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from ega_mope.model import CharLM


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


AS_THEY_WERE: dict[str, Plain] = {"sinusoidal": {"amplitude": 1.0}}
"""Settings of positions as they were before they could be set: in an older run that is what a missing one means."""


class Run:
    """One run folder, read lazily. Raises ValueError in one line for what is missing or broken."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.name = self.path.name
        # Asked for again and again: a path is hashed once.
        self._metrics, self._learned, self._audit, self._status = (
            self.path / name for name in ("metrics.jsonl", "learned.jsonl", "audit.json", "status.json")
        )
        self.document: Plain = read_document(self.path / "config.json")
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
        return tokenizer_from_json(read_document(self.path / "tokenizer.json"))

    @property
    def audit(self) -> Plain | None:
        """audit.json, what the causality audit measured; None where this run was not audited."""
        return read_document(self._audit) if self._audit.exists() else None

    @property
    def sees_future(self) -> bool | None:
        """Whether earlier predictions depend on later tokens; None where the audit cannot tell.

        As audited; where the run was not, as its mechanisms declare.
        """
        verdict = _verdict(self._audit)
        if verdict is None:
            return self._declares_future
        return {"causal": False, "sees the future": True}.get(verdict)

    @cached_property
    def _declares_future(self) -> bool:
        from ega_mope.model import is_causal

        return not is_causal(self.config.model)

    @property
    def status(self) -> Status:
        """Its status now; a run whose trainer is gone without a word reads as interrupted."""
        status = _status(self._status) or Status("interrupted")
        if status.state == "running" and not _trainer_alive(self.path, status):
            return dataclasses.replace(status, state="interrupted")
        return status

    def curves(self) -> Mapping[str, Curve]:
        """Losses by split as columns, the last record of each (split, step); read once for all who ask.

        ValueError where a record holds no loss.
        """
        return curves(self._metrics) or {}

    def records(self) -> list[Plain]:
        """metrics.jsonl, the last record of each (split, step), by split and step."""
        last: dict[tuple[str, int], Plain] = {}
        for record in read_lines(self._metrics):
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

    def peak_memory_bytes(self) -> int | None:
        """The most memory that training held at any evaluation; None where none recorded it."""
        return peak_memory_of(self.records())

    def learned(self) -> list[Plain]:
        """learned.jsonl in step order, the last record of each step: {"step": …, "values": {name: …}}."""
        last = {record["step"]: record for record in read_lines(self._learned) if "values" in record}
        return [last[step] for step in sorted(last)]

    @property
    def learned_names(self) -> frozenset[str]:
        """What learned.jsonl last recorded, such as "attention.threshold"; empty where there is none."""
        return _learned_names(self._learned) or frozenset()

    def samples(self) -> list[Plain]:
        """samples.jsonl in step order, the last record of each step: {"step": …, "text": …}."""
        last = {
            record["step"]: record for record in read_lines(self.path / "samples.jsonl") if "text" in record
        }
        return [last[step] for step in sorted(last)]

    def validation(self) -> list[LossPoint]:
        """Finite validation losses in step order."""
        if "validation" not in self.curves():
            return []
        found = self.curves()["validation"].finite
        return [
            LossPoint(step, loss)
            for step, loss in zip(found.step.tolist(), found.loss_nats.tolist(), strict=True)
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
        return dict(self._settings)

    @cached_property
    def _settings(self) -> Plain:
        return comparable_settings(self.config, self.document["corpus"])

    def priors(self) -> dict[str, torch.Tensor]:
        """Parameters it took from other runs to start with, by name; none unless config.json says which."""
        from safetensors.torch import load_file

        path = self.path / "priors.safetensors"
        if "priors" not in self.document:
            return {}
        if not path.exists():
            raise ValueError(
                f"{self.name}: expected what it took from other runs in {path}, got no such file; restore it, or "
                "train a new run"
            )
        return load_file(path)

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


def peak_memory_of(records: Iterable[Mapping[str, Any]]) -> int | None:
    """The most bytes among the records of a metrics.jsonl; None where none holds any."""
    return max((peak for record in records if (peak := record.get("peak_memory_bytes"))), default=None)


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
    position = {**AS_THEY_WERE.get(config.model.position.get("name", ""), {}), **config.model.position}
    return dataclasses.replace(config, model=resolve(dataclasses.replace(config.model, position=position)))


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
    """Every run in the user's folder and among the shipped ones, by name; broken ones say their problem.

    Runs are shared by all who list them, and opened again when their config.json changes.
    """
    found: dict[str, Run | BrokenRun] = {}
    for folder in folders or [runs_folder(), shipped_folder()]:
        if not folder.is_dir():
            continue
        whole = os.path.realpath(folder)
        with os.scandir(folder) as entries:
            named = sorted(entries, key=lambda entry: entry.name)
        for entry in named:
            real = os.path.realpath(entry.path) if entry.is_symlink() else f"{whole}/{entry.name}"
            if entry.is_dir() and not entry.name.startswith(".") and real not in found:
                found[real] = _open_or_explain(folder / entry.name)
    return list(found.values())


def _open_or_explain(path: Path) -> Run | BrokenRun:
    try:
        run = _opened(path / "config.json") or Run(path)
        # What every list shows of a run: one that cannot say it is broken.
        run.curves(), run.status, run.evaluation, run.sees_future
        return run
    except (ValueError, OSError, KeyError, TypeError) as error:
        return BrokenRun(path.absolute(), str(error))


_opened = Remembered(lambda config: Run(config.parent))
_verdict = Remembered(lambda path: str(read_document(path).get("verdict")))


def _read_status(path: Path) -> Status:
    fields = {field.name for field in dataclasses.fields(Status)}
    return Status(**{key: value for key, value in read_document(path).items() if key in fields})


_status = Remembered(_read_status)


def _last_names(path: Path) -> frozenset[str]:
    lines = reversed(path.read_bytes().splitlines())
    records = (record for record in map(whole_record, lines) if record and "values" in record)
    return frozenset(next(records, {"values": ()})["values"])


_learned_names = Remembered(_last_names)


def _trainer_alive(path: Path, status: Status) -> bool:
    if status.host != socket.gethostname():
        return status.heartbeat is not None and time.time() - status.heartbeat < STALE_SECONDS
    return is_locked(path)
