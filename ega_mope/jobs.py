"""A queue of trainings in a folder of runs, worked off by a process of its own.

The app only writes run folders, the queue and STOP files: closing a tab or the server loses nothing.
`.queue.json` names the runs that wait, in order. Whoever adds one makes sure that a worker is there
(`python -m ega_mope work`), a detached process that starts one detached trainer after the other and
ends when nothing waits. Locks see to it that there is one worker a folder and one trainer a run.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import filelock

from ega_mope.config import ExperimentConfig, to_plain
from ega_mope.experiments import default_name, describe, prepare
from ega_mope.model import choose_device
from ega_mope.runs import (
    BrokenRun,
    Run,
    RunWriter,
    list_runs,
    numbered_names,
    request_stop,
    to_json_bytes,
    write_atomically,
)
from ega_mope.text import CORPORA, store_corpus
from ega_mope.training import time_updates

COMMAND = (sys.executable, "-m", "ega_mope")
POLL_SECONDS = 0.3
SAMPLE_TOKENS = 160
"""Length of the sample text that a queued training writes at each evaluation."""

_starting = threading.Lock()
_started: dict[Path, subprocess.Popen[bytes]] = {}
"""The worker that this process started last in each folder. It takes seconds to get to its lock, on a busy machine
many, and a page asks every second: one that is on its way is waited for."""


def limit() -> int:
    """How many trainings run at once: `EGA_MOPE_JOBS`, else 1."""
    value = os.environ.get("EGA_MOPE_JOBS") or "1"
    if not value.isdigit() or int(value) < 1:
        raise ValueError(
            f"EGA_MOPE_JOBS: expected a whole number from 1 on, got {value!r}; change or unset it"
        )
    return int(value)


def queued(runs: Path) -> list[str]:
    """The names of the runs that wait, or are just being started, in order."""
    path = runs / ".queue.json"
    return json.loads(path.read_bytes()) if path.exists() else []


@contextmanager
def _queue(runs: Path) -> Iterator[list[str]]:
    """The queue to be changed in place, with nobody else at it meanwhile."""
    runs.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(runs / ".queue.lock"):
        names = queued(runs)
        before = list(names)
        yield names
        if names != before:
            write_atomically(runs / ".queue.json", to_json_bytes(names))


def enqueue(config: ExperimentConfig, runs: Path, *, corpus_name: str | None = None) -> Path:
    """Make the run's folder, with the status `queued`, and put it at the end of the queue.

    `corpus_name` is what a pasted or uploaded text is called. ValueError for what cannot be trained.
    """
    prepared = prepare(config)
    if corpus_name is not None:
        prepared = dataclasses.replace(
            prepared,
            corpus=dataclasses.replace(prepared.corpus, name=corpus_name),
            config=dataclasses.replace(prepared.config, corpus=corpus_name),
        )
    if prepared.corpus.name not in CORPORA:
        store_corpus(prepared.corpus.text, runs / ".corpora")
    folder = _claim(runs, default_name(prepared.config))
    writer = RunWriter(folder)
    try:
        document = describe(prepared, choose_device("auto"), folder.name)
        writer.start(document, prepared.tokenizer, prepared.priors)
        writer.set_status("queued", 0)
    finally:
        writer.close()
    put_back(runs, folder.name)
    return folder


def _claim(runs: Path, wanted: str) -> Path:
    """A folder that nobody else has: making it is what claims the name."""
    runs.mkdir(parents=True, exist_ok=True)
    for name in numbered_names(wanted):
        try:
            (runs / name).mkdir()
        except FileExistsError:
            continue
        return runs / name
    raise AssertionError("numbered names do not end")


def put_back(runs: Path, name: str) -> None:
    """Put a stopped or interrupted run at the end of the queue, once, and see that somebody works on it."""
    with _queue(runs) as names:
        if name not in names and _state(runs / name) != "running":
            names.append(name)
    ensure_worker(runs)


def move_up(runs: Path, name: str) -> None:
    """Exchange a waiting run with the one before it."""
    with _queue(runs) as names:
        at = names.index(name) if name in names else 0
        if at:
            names[at - 1], names[at] = names[at], names[at - 1]


def stop(run: Run) -> None:
    """Take a waiting run out of the queue, or ask its trainer to end cleanly."""
    with _queue(run.path.parent) as names:
        if run.name in names:
            names.remove(run.name)
    if state_of(run, []) == "running":
        request_stop(run.path)
    elif run.status.state == "queued":
        _settle(run.path, "stopped", None)


def delete(run: Run) -> None:
    """Remove a run for good; ValueError while it is running or waiting."""
    runs = run.path.parent
    if run.name in queued(runs) or state_of(run, []) == "running":
        raise ValueError(
            f"{run.name}: expected a run that is neither running nor waiting, got one that is; stop it first"
        )
    going = runs / f".deleted-{run.name}-{os.getpid()}-{time.time_ns()}"
    run.path.rename(going)
    shutil.rmtree(going)


def state_of(run: Run, waiting: list[str]) -> str:
    """Its state for a person: a run said to be queued that no queue holds was interrupted before it began."""
    state = run.status.state
    if state != "running" and run.name in waiting:
        return "queued"
    return "interrupted" if state == "queued" else state


def ensure_worker(runs: Path) -> None:
    """Start the worker of this folder, unless one is there or nothing waits."""
    if not queued(runs):
        return
    lock = filelock.FileLock(runs / ".worker.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return
    lock.release()
    with _starting:
        last = _started.get(runs)
        if last is None or last.poll() is not None or _has_begun(runs, last.pid):
            _started[runs] = _detached(["work", "--runs", str(runs)], runs / ".worker.log")


def _has_begun(runs: Path, pid: int) -> bool:
    """Whether the worker with that process id has had the lock; it may have let go of it again, to end."""
    path = runs / ".worker.pid"
    return path.exists() and path.read_text() == str(pid)


def work(runs: Path) -> None:
    """Start waiting runs in order, as many at once as `limit` says, until none waits and all have ended."""
    lock = filelock.FileLock(runs / ".worker.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return
    trainers: dict[str, subprocess.Popen[bytes]] = {}
    try:
        write_atomically(runs / ".worker.pid", str(os.getpid()).encode())
        while True:
            _look_after(runs, trainers)
            with _queue(runs) as names:
                if not names and not trainers:
                    # Released while the queue is held: what is added next finds no worker and starts one.
                    lock.release()
                    return
                waiting = [name for name in names if name not in trainers]
            if waiting and len(trainers) < limit() and len(trainers) + _others(runs, trainers) < limit():
                trainers[waiting[0]] = _start(runs, waiting[0])
            time.sleep(POLL_SECONDS)
    finally:
        lock.release()


def _start(runs: Path, name: str) -> subprocess.Popen[bytes]:
    threads = os.environ.get("OMP_NUM_THREADS") or max(1, (os.cpu_count() or 1) // limit())
    arguments = ["train", "--runs", str(runs), "--name", name, "--resume"]
    arguments += ["--threads", str(threads), "--samples", str(SAMPLE_TOKENS)]
    return _detached(arguments, runs / name / "train.log")


def _look_after(runs: Path, trainers: dict[str, subprocess.Popen[bytes]]) -> None:
    """Take runs that have begun or ended out of the queue; say why where one could not begin."""
    for name, trainer in list(trainers.items()):
        code = trainer.poll()
        begun = code is not None or _state(runs / name) == "running"
        with _queue(runs) as names:
            taken_out = name not in names
            if begun and not taken_out:
                names.remove(name)
        if taken_out and not begun:
            trainer.terminate()
        if code is not None:
            del trainers[name]
            if code > 0 and _state(runs / name) not in ("finished", "failed", "diverged"):
                _settle(runs / name, "failed", _last_line(runs / name / "train.log"))


def _others(runs: Path, trainers: dict[str, subprocess.Popen[bytes]]) -> int:
    """How many runs in this folder others are training: an earlier worker's, or a person's at the command line."""
    return sum(
        not isinstance(run, BrokenRun) and run.name not in trainers and run.status.state == "running"
        for run in list_runs([runs])
    )


def _state(folder: Path) -> str | None:
    try:
        return Run(folder).status.state
    except ValueError:
        return None


def _settle(folder: Path, state: str, error: str | None) -> None:
    """Write the status of a run that nobody trains; leave one that somebody does."""
    try:
        writer = RunWriter(folder)
    except ValueError:
        return
    try:
        writer.set_status(state, Run(folder).status.step, error)
    finally:
        writer.close()


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1].removeprefix("error: ") if lines else "ended before it began, without a word"


def _detached(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    """A command of the lab in a session of its own."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=environment(),
        )


def environment() -> dict[str, str]:
    """Ours, and this package importable from any working directory."""
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@dataclass(frozen=True)
class Estimate:
    """What a training will cost on this machine, from a probe of about two seconds."""

    parameters: int
    seconds: float
    weight_bytes: int
    state_bytes: int


def probe(config: ExperimentConfig, seconds: float = 2.0) -> Estimate:
    """Time some updates and evaluation batches of this training; ValueError for what cannot be trained."""
    prepared = prepare(config)
    training = prepared.config.training
    update, batch, parameters = time_updates(
        prepared.config, prepared.train_ids, choose_device("auto"), seconds
    )
    windows = (len(prepared.validation_ids) - 1) // prepared.config.model.context_length
    batches = training.validation_batches or -(-windows // training.batch_size)
    evaluations = 1 + -(-training.steps // training.evaluate_every)
    return Estimate(
        parameters=parameters,
        seconds=training.steps * update + evaluations * batches * batch,
        weight_bytes=4 * parameters,
        # Weights and AdamW's two moments.
        state_bytes=3 * 4 * parameters,
    )


def probe_elsewhere(config: ExperimentConfig) -> Estimate:
    """The same in a process of its own, for an app that never trains in its own."""
    answer = subprocess.run(
        [*COMMAND, "probe"],
        input=json.dumps(to_plain(config)),
        capture_output=True,
        text=True,
        env=environment(),
    )
    if answer.returncode:
        raise ValueError(
            (answer.stderr.strip().splitlines() or ["the probe ended without a word"])[-1].removeprefix(
                "error: "
            )
        )
    return Estimate(**json.loads(answer.stdout))
