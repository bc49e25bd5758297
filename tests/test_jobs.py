"""The queue of trainings: its order, what becomes of killed and stopped runs, and that a worker works it off."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ega_mope import jobs
from ega_mope.config import ExperimentConfig
from ega_mope.experiments import compose
from ega_mope.runs import Run


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker is started: the queue stays as it is put."""
    monkeypatch.setattr(jobs, "ensure_worker", lambda runs: None)


def experiment(text: Path, seed: int = 0) -> ExperimentConfig:
    sizes = ["context_length=32", "d_model=16", "steps=4", "evaluate_every=2", "warmup_steps=1"]
    return compose(
        {"name": "ega"}, {"name": "mope"}, preset_name="smoke", corpus=str(text), seed=seed, overrides=sizes
    )


def state(run: Path) -> str:
    return jobs.state_of(Run(run), jobs.queued(run.parent))


def test_runs_wait_in_order_and_can_be_moved_up(idle: None, small_text: Path, tmp_path: Path) -> None:
    first, second, third = (jobs.enqueue(experiment(small_text, seed), tmp_path) for seed in range(3))
    assert jobs.queued(tmp_path) == [first.name, second.name, third.name]
    jobs.move_up(tmp_path, third.name)
    assert jobs.queued(tmp_path) == [first.name, third.name, second.name]
    assert state(second) == "queued"


def test_the_same_experiment_twice_gets_two_folders(idle: None, small_text: Path, tmp_path: Path) -> None:
    one, other = (jobs.enqueue(experiment(small_text), tmp_path) for _ in range(2))
    assert one != other
    assert Run(one).settings() == Run(other).settings()


def test_a_pasted_text_names_its_runs_and_is_kept(idle: None, small_text: Path, tmp_path: Path) -> None:
    run = jobs.enqueue(experiment(small_text), tmp_path, corpus_name="pasted-1234")
    assert run.name.startswith("pasted-1234-smoke-ega")
    small_text_again = Run(run).corpus()
    assert small_text_again.name == "pasted-1234"
    assert small_text_again.text == small_text.read_text()


def test_what_cannot_be_built_is_refused_and_leaves_no_run(
    idle: None, small_text: Path, tmp_path: Path
) -> None:
    config = compose(
        {"name": "dot"},
        {"name": "rope"},
        preset_name="smoke",
        corpus=str(small_text),
        overrides=["n_heads=16", "d_model=16"],
    )
    with pytest.raises(ValueError, match="even number of channels per head, got 1"):
        jobs.enqueue(config, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_waiting_run_is_stopped_by_leaving_the_queue(idle: None, small_text: Path, tmp_path: Path) -> None:
    run = jobs.enqueue(experiment(small_text), tmp_path)
    jobs.stop(Run(run))
    assert jobs.queued(tmp_path) == []
    assert state(run) == "stopped"
    jobs.put_back(tmp_path, run.name)
    jobs.put_back(tmp_path, run.name)
    assert jobs.queued(tmp_path) == [run.name]


def test_a_run_that_no_queue_holds_was_interrupted(idle: None, small_text: Path, tmp_path: Path) -> None:
    run = jobs.enqueue(experiment(small_text), tmp_path)
    (tmp_path / ".queue.json").write_text("[]")
    assert state(run) == "interrupted"


def test_deleting_asks_for_a_run_at_rest(idle: None, small_text: Path, tmp_path: Path) -> None:
    run = jobs.enqueue(experiment(small_text), tmp_path)
    with pytest.raises(ValueError, match="stop it first"):
        jobs.delete(Run(run))
    jobs.stop(Run(run))
    jobs.delete(Run(run))
    assert not run.exists()


@pytest.mark.parametrize("value", ["0", "two", "-1"])
def test_the_limit_is_a_whole_number(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGA_MOPE_JOBS", value)
    with pytest.raises(ValueError, match="EGA_MOPE_JOBS: expected a whole number"):
        jobs.limit()


def test_a_worker_trains_what_waits_and_says_why_one_failed(
    idle: None, small_text: Path, tmp_path: Path
) -> None:
    good = jobs.enqueue(experiment(small_text), tmp_path)
    lost = jobs.enqueue(experiment(small_text, seed=1), tmp_path)
    document = json.loads((lost / "config.json").read_text())
    document["corpus"]["sha256"] = "0" * 64
    (lost / "config.json").write_text(json.dumps(document))

    jobs.work(tmp_path)

    assert state(good) == "finished"
    assert [sample["step"] for sample in Run(good).samples()] == [0, 2, 4]
    assert state(lost) == "failed"
    assert "expected its text" in (Run(lost).status.error or "")
    assert jobs.queued(tmp_path) == []


SLOW_WORKER = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[-1])
while not (folder / "go").exists():
    time.sleep(0.05)
(folder / ".worker.pid").write_text(str(os.getpid()))
(folder / "began").touch()
time.sleep(60)
"""


def test_a_worker_on_its_way_is_waited_for_and_another_started_when_it_ends_or_has_let_go(
    small_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page asks every second: on a busy machine, where a worker starts slowly, each would slow the others."""
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "ensure_worker", lambda runs: None)
        jobs.enqueue(experiment(small_text), tmp_path)
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", SLOW_WORKER))
    workers: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*given: Any, **more: Any) -> subprocess.Popen[bytes]:
        workers.append(popen(*given, **more))
        return workers[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    try:
        for _ in range(5):
            jobs.ensure_worker(tmp_path)
        assert len(workers) == 1

        workers[0].kill()
        workers[0].wait()
        for _ in range(5):
            jobs.ensure_worker(tmp_path)
        assert len(workers) == 2

        # It had the lock and let go of it, since nothing waited: what was added since needs another one.
        (tmp_path / "go").touch()
        until((tmp_path / "began").exists)
        jobs.ensure_worker(tmp_path)
        assert len(workers) == 3
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def until(happened: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_probe_estimates_without_leaving_a_run(small_text: Path) -> None:
    estimate = jobs.probe(experiment(small_text), seconds=0.05)
    assert estimate.seconds > 0
    assert estimate.weight_bytes == 4 * estimate.parameters
