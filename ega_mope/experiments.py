"""One training from its settings to a finished run folder: the only place where the two meet."""

from __future__ import annotations

import dataclasses
import json
import platform
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import ega_mope
from ega_mope.analysis.audit import audit, cannot_audit
from ega_mope.config import (
    ExperimentConfig,
    ImportedConfig,
    Plain,
    experiment_from_plain,
    preset,
    to_plain,
    with_overrides,
)
from ega_mope.generation import continue_text
from ega_mope.model import choose_device, parameter_counts, resolve
from ega_mope.priors import take_priors
from ega_mope.runs import FORMAT, Run, RunWriter, free_name
from ega_mope.text import (
    CORPORA,
    TOKENIZERS,
    ByteTokenizer,
    Corpus,
    Tokenizer,
    load_corpus,
    split_ids,
    store_corpus,
)
from ega_mope.training import Checkpoint, Ended, Learned, Metrics, Record, Step, train, used_precision


def compose(
    attention: Plain,
    position: Plain,
    *,
    preset_name: str = "small",
    corpus: str = "tinyshakespeare",
    tokenizer: str = "characters",
    seed: int = 0,
    overrides: Iterable[str] = (),
) -> ExperimentConfig:
    """An experiment from a preset, two mechanisms (`{"name": …, setting: value}`) and KEY=VALUE overrides.

    A key is dotted, or its last part where that is unique; a value is JSON or else taken as text. A
    corpus that is a file is remembered by its absolute path. ValueError for whatever is not valid.
    """
    model, training = preset(preset_name)
    model = resolve(dataclasses.replace(model, attention=attention, position=position))
    if corpus not in CORPORA and Path(corpus).exists():
        corpus = str(Path(corpus).absolute())
    config = ExperimentConfig(
        model=model, training=training, corpus=corpus, tokenizer=tokenizer, seed=seed, preset=preset_name
    )
    return experiment_from_plain(with_overrides(to_plain(config), dict(map(_key_and_value, overrides))))


def _key_and_value(item: str) -> tuple[str, Any]:
    key, equals, value = item.partition("=")
    if not equals:
        raise ValueError(f"setting: expected KEY=VALUE, got {item!r}; write for example training.steps=500")
    try:
        return key.strip(), json.loads(value)
    except ValueError:
        return key.strip(), value


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A training that is ready to go: settings filled in, text read and split."""

    config: ExperimentConfig
    corpus: Corpus
    tokenizer: Tokenizer
    train_ids: np.ndarray
    validation_ids: np.ndarray
    priors: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    """Parameters taken from other runs, by name, and for config.json where they are from."""
    prior_sources: Plain = dataclasses.field(default_factory=dict)


def prepare(config: ExperimentConfig) -> Prepared:
    """Load the text, fit the tokenizer, fill in the vocabulary, take what other runs give; ValueError for
    whatever cannot be trained."""
    if config.tokenizer not in TOKENIZERS:
        raise ValueError(
            f"tokenizer: expected one of ({', '.join(TOKENIZERS)}), got {config.tokenizer!r}; choose one of them"
        )
    corpus = load_corpus(config.corpus)
    tokenizer = TOKENIZERS[config.tokenizer].fit(corpus.text)
    train_ids, validation_ids = split_ids(tokenizer.encode(corpus.text), config.model.context_length)
    if config.tokenizer == "bytes":
        # Only what the model met in training counts as seen.
        tokenizer = ByteTokenizer(np.unique(train_ids).tolist())
    model = resolve(dataclasses.replace(config.model, vocabulary_size=tokenizer.vocabulary_size))
    # Builds it without its weights: sizes that a mechanism refuses are found before there is a folder.
    parameter_counts(model)
    model, taken = take_priors(model)
    return Prepared(
        dataclasses.replace(config, model=model),
        corpus,
        tokenizer,
        train_ids,
        validation_ids,
        {name: value for one in taken.values() for name, value in one.values.items()},
        {where: one.source for where, one in taken.items()},
    )


def default_name(config: ExperimentConfig) -> str:
    """A name that says what the run is: corpus, preset, mechanisms, seed."""
    attention, position = config.model.attention, config.model.position
    corpus = Path(config.corpus).stem if config.corpus not in CORPORA else config.corpus
    norm = [attention["gate_norm"]] if "gate_norm" in attention else []
    start = [position["init"]] if position.get("init", "paper") != "paper" else []
    taken = ["from-run"] if attention.get("from_run") or position.get("from_run") else []
    parts = [corpus, config.preset, attention["name"], *norm, position["name"], *start, *taken]
    parts.append(f"s{config.seed}")
    return "-".join("".join(c if c.isalnum() or c in "._" else "-" for c in part) for part in parts)


def describe(prepared: Prepared, device: torch.device, name: str) -> Plain:
    """The config.json of a run: with the weights beside it, it loads by itself."""
    config = prepared.config
    evaluation: Plain = {
        "corpus_sha256": prepared.corpus.sha256,
        "split": "validation",
        "tokenizer": config.tokenizer,
        "context": config.model.context_length,
    }
    if config.training.validation_batches:
        evaluation |= {
            "batches": config.training.validation_batches,
            "batch_size": config.training.batch_size,
        }
    else:
        context = config.model.context_length
        evaluation |= {"stride": context, "windows": (len(prepared.validation_ids) - 1) // context}
    return {
        "format": FORMAT,
        "name": name,
        "preset": config.preset,
        "seed": config.seed,
        "model": to_plain(config.model),
        "training": to_plain(config.training),
        "tokenizer": config.tokenizer,
        "corpus": {
            "name": prepared.corpus.name,
            "sha256": prepared.corpus.sha256,
            "tokenizer": config.tokenizer,
            "characters": len(prepared.corpus.text),
            "train_tokens": len(prepared.train_ids),
            "validation_tokens": len(prepared.validation_ids),
        },
        "evaluation": evaluation,
        "parameters": parameter_counts(config.model),
        "versions": {
            "ega_mope": ega_mope.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "device": {
            "type": device.type,
            "name": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
            "threads": torch.get_num_threads(),
            "precision": used_precision(config.training, device),
        },
        "git_commit": _git_commit(),
        **({"priors": prepared.prior_sources} if prepared.prior_sources else {}),
    }


def run_experiment(
    config: ExperimentConfig,
    runs: Path,
    *,
    name: str | None = None,
    device: str = "auto",
    sample_tokens: int = 0,
    audited: bool = True,
    watch: Callable[[Record], None] = lambda record: None,
) -> tuple[Path, str]:
    """Train a new run in the folder `runs`; returns its folder and how it ended.

    SIGINT, SIGTERM and a file called STOP in the run's folder end it cleanly and resumably. With
    `sample_tokens` it writes a text of that length at each evaluation. A finished run is `audited`: does
    it see the future? `watch` sees every record.
    """
    prepared = prepare(config)
    name = name or free_name(runs, default_name(prepared.config))
    writer = _Writing(prepared, choose_device(device), sample_tokens, audited, watch)
    return runs / name, writer.write(runs / name, resume=False)


def resume_experiment(
    folder: Path,
    *,
    device: str = "auto",
    sample_tokens: int = 0,
    audited: bool = True,
    watch: Callable[[Record], None] = lambda record: None,
) -> str:
    """Go on with an interrupted or stopped run from its last saved state, to the same losses; says how it ended."""
    run = Run(folder)
    if isinstance(run.config, ImportedConfig):
        raise ValueError(
            f"{run.name}: expected a run that was trained here, got an imported one; train a new run instead"
        )
    if run.status.state == "finished":
        return "finished"
    corpus = run.corpus()
    tokenizer = run.tokenizer
    train_ids, validation_ids = split_ids(tokenizer.encode(corpus.text), run.config.model.context_length)
    prepared = Prepared(run.config, corpus, tokenizer, train_ids, validation_ids, run.priors())
    return _Writing(prepared, choose_device(device), sample_tokens, audited, watch).write(folder, resume=True)


@dataclasses.dataclass(frozen=True)
class _Writing:
    """How one training is written down."""

    prepared: Prepared
    device: torch.device
    sample_tokens: int
    audited: bool
    watch: Callable[[Record], None]

    def write(self, folder: Path, *, resume: bool) -> str:
        """Train into `folder`; returns how it ended."""
        prepared = self.prepared
        writer = RunWriter(folder)
        try:
            if resume and Run(folder).status.state == "finished":
                # By another trainer, while this one waited for the lock: there is no state to go on from.
                return "finished"
            if prepared.corpus.name not in CORPORA:
                # Before config.json: whoever finds a run to resume finds its text too.
                store_corpus(prepared.corpus.text, folder.parent / ".corpora")
            if not resume:
                document = describe(prepared, self.device, folder.name)
                writer.start(document, prepared.tokenizer, prepared.priors)
            writer.clear_stop()
            state = writer.load_state() if resume else None
            writer.set_status("running", state["step"] if state else 0)
            with signals_noted() as signalled:
                return self._follow(writer, state, lambda: signalled() or writer.stop_requested)
        except ValueError:
            raise
        except BaseException as error:
            writer.set_status("failed", writer.last_step, f"{type(error).__name__}: {error}")
            raise
        finally:
            writer.close()

    def _follow(self, writer: RunWriter, state: dict[str, Any] | None, stop: Callable[[], bool]) -> str:
        """Write each record where it belongs."""
        ended = "failed"
        prepared = self.prepared
        for record in train(
            prepared.config,
            prepared.train_ids,
            prepared.validation_ids,
            device=self.device,
            start=prepared.priors,
            state=state,
            stop=stop,
        ):
            match record:
                case Metrics():
                    line = dataclasses.asdict(record)
                    for key in ("diverged", "peak_memory_bytes"):
                        if not line[key]:
                            del line[key]
                    writer.append("metrics.jsonl", line)
                case Learned():
                    writer.append("learned.jsonl", dataclasses.asdict(record))
                case Checkpoint():
                    # Weights first: a kill between the two resumes from the older state and writes them again.
                    if record.best:
                        writer.save_weights(record.state["model"])
                    writer.save_state(record.state)
                    self._sample(writer, record)
                case Step():
                    writer.heartbeat(record.step)
                case Ended():
                    ended = record.state
                    writer.clear_stop()
                    if ended == "finished":
                        self._audit(writer, record.step)
                        writer.drop_state()
                    writer.set_status(ended, record.step)
            self.watch(record)
        return ended

    def _audit(self, writer: RunWriter, step: int) -> None:
        """Say in audit.json whether the best weights see the future, or why that cannot be told."""
        if not self.audited:
            return
        run = Run(writer.path)
        try:
            answer = audit(
                run,
                self.prepared.validation_ids,
                device=self.device.type,
                progress=lambda fraction, doing: writer.heartbeat(step),
            )
        except ValueError as error:
            answer = cannot_audit(run.name, run.config.model.context_length, str(error))
        writer.save_audit(answer.to_plain())

    def _sample(self, writer: RunWriter, record: Checkpoint) -> None:
        """What the model writes now, from a random stream of its own: training goes on as without it."""
        if not self.sample_tokens:
            return
        first = self.prepared.tokenizer.decode(self.prepared.train_ids[:1].tolist())
        written = continue_text(
            record.model, self.prepared.tokenizer, first, tokens=self.sample_tokens, seed=0, temperature=0.8
        )
        writer.append("samples.jsonl", {"step": record.step, "text": first + written.text})


@contextmanager
def signals_noted() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM only set a flag meanwhile; outside the main thread nothing is changed."""
    flag = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield flag.is_set
        return
    caught = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: flag.set()) for number in caught}
    try:
        yield flag.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _git_commit() -> str | None:
    """The commit of the lab's own checkout; None outside one."""
    root = Path(__file__).resolve().parent.parent
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
