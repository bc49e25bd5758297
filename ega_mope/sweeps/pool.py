"""Train the runs of a plan, a few at a time, each in a process of its own; nothing is trained twice.

All that a sweep knows is in the run folders: killed at any moment and started again with `resume`, it ends with
the runs that an undisturbed one ends with. Trainings that a killed sweep leaves behind run on to their end, and
the next sweep waits for them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ega_mope.config import ExperimentConfig, flatten, to_plain
from ega_mope.jobs import COMMAND, environment, queued, state_of
from ega_mope.runs import BrokenRun, Run, is_locked, list_runs
from ega_mope.sweeps.plan import Planned

POLL_SECONDS = 0.1
LOOK_AGAIN_SECONDS = 1.0
"""How often a run that is being trained elsewhere is looked at."""

ENDED = ("finished", "diverged")
"""States that training on would not change."""


@dataclass(frozen=True)
class Outcome:
    """How one run stands at the end of a sweep, and why where it did not finish.

    `state` is finished, diverged, failed, interrupted, stopped, or waiting where it was never begun.
    """

    planned: Planned
    path: Path
    state: str
    problem: str | None = None


@dataclass(frozen=True)
class Progress:
    """How far a sweep is; `said` is what just happened, if anything did.

    `seconds_left` is what the steps still to go would take at the sweep's own speed so far; None before
    there is any.
    """

    done: int
    unfinished: int
    total: int
    running: tuple[str, ...]
    seconds_left: float | None
    said: str | None = None


def sweep(
    runs: Sequence[Planned],
    folder: Path,
    *,
    jobs: int = 1,
    resume: bool = False,
    device: str = "auto",
    watch: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Train what of `runs` is not yet in `folder`, at most `jobs` at a time with one CPU thread each.

    A run of the same settings and seed is taken as it is where it has finished (or diverged), gone on with where
    it was left off, and waited for where another process trains it. One that fails keeps none of the others from
    running. Once `stop` says yes the trainings are ended resumably and the rest is left. Raises ValueError before
    anything starts where there are runs to go on with and `resume` is false.
    """
    pool = _Pool(list(runs), folder, jobs, resume, device, watch)
    pool.refuse_left_off()
    return pool.run(stop)


@dataclass
class _Child:
    planned: Planned
    path: Path
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    first_step: int

    def last_words(self) -> str:
        """Why it ended, as far as it said."""
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        code = self.process.returncode
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return lines[-1].removeprefix("error: ") if lines else f"its process ended with status {code}"


class _Pool:
    def __init__(
        self,
        waiting: list[Planned],
        folder: Path,
        jobs: int,
        resume: bool,
        device: str,
        watch: Callable[[Progress], None],
    ) -> None:
        self.order = {planned.key: n for n, planned in enumerate(waiting)}
        self.waiting = waiting
        self.folder = folder
        self.jobs = jobs
        self.resume = resume
        self.device = device
        self.watch = watch
        present = [run for run in list_runs([folder]) if not isinstance(run, BrokenRun)]
        self.present = {
            planned.key: [run.path for run in present if planned.is_same(run)] for planned in waiting
        }
        self.children: dict[str, _Child] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.look_again: dict[str, float] = {}
        self.began = time.monotonic()
        self.told = 0.0
        self.steps_made = 0

    def refuse_left_off(self) -> None:
        """ValueError where a run was left off and `resume` is false."""
        found = [] if self.resume else [self.find(planned) for planned in self.waiting]
        left_off = [path.name for path, state in found if state not in (*ENDED, "new", "elsewhere")]
        if left_off:
            raise ValueError(
                f"sweep: expected runs that have finished or not begun, got {len(left_off)} left off "
                f"({', '.join(left_off[:3])}{', …' if len(left_off) > 3 else ''}); add --resume to go on with them"
            )

    def run(self, stop: Callable[[], bool]) -> list[Outcome]:
        """Work until nothing waits or `stop` says yes; whatever happens, no trainer is left behind."""
        try:
            while (self.waiting or self.children) and not stop():
                self.reap()
                self.fill()
                self.tell()
                if self.children or self.waiting:
                    time.sleep(POLL_SECONDS)
        finally:
            for child in self.children.values():
                child.process.terminate()
            for child in self.children.values():
                child.process.wait()
        for child in list(self.children.values()):
            self.settle_ended(child, never_begun="waiting")
        for planned in self.waiting:
            path, state = self.find(planned)
            self.settle(planned, path, state if state in ENDED else "waiting", "the sweep was stopped")
        return sorted(self.outcomes.values(), key=lambda outcome: self.order[outcome.planned.key])

    def find(self, planned: Planned) -> tuple[Path, str]:
        """Where this run is, or belongs, and its state there: `new` where nothing is, `elsewhere` where another
        process is at it or the app's queue holds it."""
        looked = [(path, _state_at(path, planned)) for path in self.present[planned.key]]
        ended = [(path, state) for path, state in looked if state in ENDED]
        belongs = [self.folder / name for name in planned.names]
        candidates = [*ended, *looked, *((path, _state_at(path, planned)) for path in belongs)]
        for path, state in candidates:
            if state is not None:
                return path, state
        return belongs[-1], "taken"

    def fill(self) -> None:
        """Start what can be started."""
        for planned in list(self.waiting):
            if len(self.children) >= self.jobs:
                return
            if time.monotonic() < self.look_again.get(planned.key, 0.0):
                continue
            path, state = self.find(planned)
            if state in ENDED:
                self.waiting.remove(planned)
                self.settle(planned, path, state, None)
            elif state == "elsewhere":
                if planned.key not in self.look_again:
                    self.tell(f"{path.name}: being trained elsewhere, coming back to it")
                self.look_again[planned.key] = time.monotonic() + LOOK_AGAIN_SECONDS
            elif state == "taken":
                self.waiting.remove(planned)
                self.settle(planned, path, "failed", "its folder holds something else; move that away")
            elif state == "new" or self.resume:
                self.waiting.remove(planned)
                self.start(planned, path, resume=state != "new")
            else:
                self.waiting.remove(planned)
                self.settle(planned, path, state, "left off meanwhile; add --resume to go on with it")

    def start(self, planned: Planned, path: Path, *, resume: bool) -> None:
        """Begin one training in a process and a session of its own: Ctrl-C reaches the sweep alone."""
        first_step = _step_of(path)
        log = tempfile.TemporaryFile()  # noqa: SIM115  closed once the process has ended
        process = subprocess.Popen(
            [*COMMAND, *_arguments(planned.config, path, self.device, resume=resume)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            env={**environment(), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
        self.children[planned.key] = _Child(planned, path, process, log, first_step)
        self.tell(f"{path.name}: {'going on' if resume else 'begun'}")

    def reap(self) -> None:
        """Take in the trainings that have ended; come back to runs that somebody else got hold of first."""
        for child in list(self.children.values()):
            if child.process.poll() is None:
                continue
            path, state = self.find(child.planned)
            if state == "elsewhere" or path != child.path:
                self.forget(child)
                self.waiting.insert(0, child.planned)
            else:
                self.settle_ended(child)

    def settle_ended(self, child: _Child, never_begun: str = "failed") -> None:
        """Write down how a training of ours ended."""
        path, state = self.find(child.planned)
        problem = child.last_words() if child.process.returncode else None
        if state not in ENDED and problem is None:
            problem = "it was asked to stop"
        self.forget(child)
        self.settle(child.planned, path, never_begun if state == "new" else state, problem)

    def forget(self, child: _Child) -> None:
        """A training of ours is over: its steps count for the speed."""
        self.steps_made += max(0, _step_of(child.path) - child.first_step)
        del self.children[child.planned.key]
        child.log.close()

    def settle(self, planned: Planned, path: Path, state: str, problem: str | None) -> None:
        """One run needs nothing more from this sweep."""
        problem = None if state == "finished" else problem or _error_of(path)
        self.outcomes[planned.key] = Outcome(planned, path, state, problem)
        self.tell(f"{path.name}: {state}" + (f", {problem}" if problem else ""))

    def tell(self, said: str | None = None) -> None:
        """Say how far it is, at most once a second where nothing happened."""
        now = time.monotonic()
        if said is None and now - self.told < 1.0:
            return
        self.told = now
        states = [outcome.state for outcome in self.outcomes.values()]
        self.watch(
            Progress(
                done=states.count("finished"),
                unfinished=len(states) - states.count("finished"),
                total=len(self.order),
                running=tuple(child.path.name for child in self.children.values()),
                seconds_left=self.seconds_left(now - self.began),
                said=said,
            )
        )

    def seconds_left(self, elapsed: float) -> float | None:
        """Steps to go over the speed so far."""
        now = {key: _step_of(child.path) for key, child in self.children.items()}
        made = self.steps_made + sum(
            max(0, now[key] - child.first_step) for key, child in self.children.items()
        )
        to_go = sum(planned.config.training.steps for planned in self.waiting) + sum(
            child.planned.config.training.steps - now[key] for key, child in self.children.items()
        )
        return elapsed * to_go / made if made else None


def _state_at(path: Path, planned: Planned) -> str | None:
    """The state of this run in this folder; `new` where nothing is there, None where something else is."""
    if not (path / "config.json").exists():
        return "elsewhere" if is_locked(path) else "new"
    try:
        run = Run(path)
        if not planned.is_same(run):
            return None
        state = state_of(run, queued(path.parent))
    except (ValueError, OSError):
        return None
    return "elsewhere" if state in ("running", "queued") else state


def _step_of(path: Path) -> int:
    """Steps made so far; 0 where there is no run yet, or none that can be read."""
    try:
        return Run(path).status.step
    except (ValueError, OSError):
        return 0


def _error_of(path: Path) -> str | None:
    """What the run itself says went wrong."""
    try:
        return Run(path).status.error
    except (ValueError, OSError):
        return None


def _arguments(config: ExperimentConfig, path: Path, device: str, *, resume: bool) -> list[str]:
    """What follows `ega-mope` to train this run."""
    words = ["train", "--runs", str(path.parent), "--name", path.name, "--threads", "1", "--device", device]
    if resume:
        return [*words, "--resume"]
    attention, position = config.model.attention, config.model.position
    words += ["--attention", attention["name"], "--position", position["name"], "--preset", config.preset]
    words += ["--corpus", config.corpus, "--tokenizer", config.tokenizer, "--seed", str(config.seed)]
    settings = flatten({"model": to_plain(config.model), "training": to_plain(config.training)})
    for key, value in settings.items():
        if key not in ("model.attention.name", "model.position.name"):
            words += ["--set", f"{key}={json.dumps(value)}"]
    return words
