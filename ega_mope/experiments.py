"""One training from its settings to a finished run folder: the only place where the two meet."""

from __future__ import annotations

import dataclasses
import platform
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ega_mope
from ega_mope.config import ExperimentConfig, Plain, to_plain
from ega_mope.model import build_model, choose_device, resolve
from ega_mope.runs import FORMAT, RunWriter, experiment_from_document, free_name
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


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A training that is ready to go: settings filled in, text read and split."""

    config: ExperimentConfig
    corpus: Corpus
    tokenizer: Tokenizer
    train_ids: np.ndarray
    validation_ids: np.ndarray


def prepare(config: ExperimentConfig) -> Prepared:
    """Load the text, fit the tokenizer, fill in the vocabulary; ValueError for whatever cannot be trained."""
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
    config = dataclasses.replace(config, model=model)
    return Prepared(config, corpus, tokenizer, train_ids, validation_ids)


def default_name(config: ExperimentConfig) -> str:
    """A name that says what the run is: corpus, preset, mechanisms, seed."""
    attention, position = config.model.attention, config.model.position
    corpus = Path(config.corpus).stem if config.corpus not in CORPORA else config.corpus
    norm = [attention["gate_norm"]] if "gate_norm" in attention else []
    start = [position["init"]] if position.get("init", "paper") != "paper" else []
    parts = [corpus, config.preset, attention["name"], *norm, position["name"], *start, f"s{config.seed}"]
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
        "parameters": build_model(config.model, config.seed).parameter_counts(),
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
    }


def run_experiment(
    config: ExperimentConfig,
    runs: Path,
    *,
    name: str | None = None,
    device: str = "auto",
    watch: Callable[[Record], None] = lambda record: None,
) -> tuple[Path, str]:
    """Train a new run in the folder `runs`; returns its folder and how it ended.

    SIGINT, SIGTERM and a file called STOP in the run's folder end it cleanly and resumably. `watch`
    sees every record.
    """
    prepared = prepare(config)
    name = name or free_name(runs, default_name(prepared.config))
    return runs / name, _write(prepared, runs / name, choose_device(device), resume=False, watch=watch)


def resume_experiment(
    folder: Path, *, device: str = "auto", watch: Callable[[Record], None] = lambda record: None
) -> str:
    """Go on with an interrupted or stopped run from its last saved state, to the same losses; says how it ended."""
    from ega_mope.runs import Run

    run = Run(folder)
    if run.status.state == "finished":
        return "finished"
    corpus = run.corpus()
    tokenizer = run.tokenizer
    train_ids, validation_ids = split_ids(tokenizer.encode(corpus.text), run.config.model.context_length)
    prepared = Prepared(experiment_from_document(run.document), corpus, tokenizer, train_ids, validation_ids)
    return _write(prepared, folder, choose_device(device), resume=True, watch=watch)


def _write(
    prepared: Prepared, folder: Path, device: torch.device, *, resume: bool, watch: Callable[[Record], None]
) -> str:
    writer = RunWriter(folder)
    try:
        if not resume:
            writer.start(describe(prepared, device, folder.name), prepared.tokenizer)
        if prepared.corpus.name not in CORPORA:
            store_corpus(prepared.corpus.text, folder.parent / ".corpora")
        writer.clear_stop()
        state = writer.load_state() if resume else None
        writer.set_status("running", state["step"] if state else 0)
        with _signals_noted() as signalled:
            return _follow(
                prepared, writer, device, state, lambda: signalled() or writer.stop_requested, watch
            )
    except ValueError:
        raise
    except BaseException as error:
        writer.set_status("failed", writer.last_step, f"{type(error).__name__}: {error}")
        raise
    finally:
        writer.close()


def _follow(
    prepared: Prepared,
    writer: RunWriter,
    device: torch.device,
    state: dict[str, Any] | None,
    stop: Callable[[], bool],
    watch: Callable[[Record], None],
) -> str:
    """Write each record where it belongs."""
    ended = "failed"
    for record in train(
        prepared.config, prepared.train_ids, prepared.validation_ids, device=device, state=state, stop=stop
    ):
        match record:
            case Metrics():
                line = dataclasses.asdict(record)
                if not record.diverged:
                    del line["diverged"]
                writer.append("metrics.jsonl", line)
            case Learned():
                writer.append("learned.jsonl", dataclasses.asdict(record))
            case Checkpoint():
                # Weights first: a kill between the two resumes from the older state and writes them again.
                if record.best:
                    writer.save_weights(record.state["model"])
                writer.save_state(record.state)
            case Step():
                writer.heartbeat(record.step)
            case Ended():
                ended = record.state
                writer.clear_stop()
                if ended == "finished":
                    writer.drop_state()
                writer.set_status(ended, record.step)
        watch(record)
    return ended


@contextmanager
def _signals_noted() -> Iterator[Callable[[], bool]]:
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
