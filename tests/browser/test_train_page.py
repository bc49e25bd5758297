"""Journeys on the Train page: start on pasted text, reload, watch it finish, stop and resume, queue and kill."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from ega_mope import jobs
from ega_mope.config import ExperimentConfig
from ega_mope.experiments import run_experiment
from ega_mope.runs import Run

PATIENCE_MS = 120_000
QUICK = "steps=40 evaluate_every=20 context_length=32 d_model=16"
LONG = "steps=4000 evaluate_every=20 context_length=32 d_model=16 warmup_steps=2"


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """An empty folder of runs; trainings outlive the app, so what is still at it is killed in the end."""
    folder = tmp_path / "runs"
    yield folder
    (folder / ".queue.json").write_text("[]")
    for status in folder.glob("*/status.json"):
        pid = json.loads(status.read_text())["pid"]
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def train(
    serve: Callable[..., str], visit: Callable[..., Page], page: Page, runs: Path, small_text: Path
) -> Page:
    """The Train page of a fresh server without any runs, with a pasted text."""
    return paste(visit(page, f"{serve(runs=runs)}/Train"), small_text.read_text()[:1700])


def paste(page: Page, text: str) -> Page:
    choose(page, "Text", "paste a text")
    page.get_by_label("Your text").fill(text)
    page.get_by_label("Your text").press("Control+Enter")
    expect(page.get_by_text("characters, kept once as")).to_be_visible()
    return page


def choose(page: Page, label: str, value: str) -> None:
    page.get_by_role("combobox", name=label).first.click()
    page.get_by_role("option", name=value, exact=True).click()


def start(page: Page, settings: str, seeds: str = "0") -> None:
    if not page.get_by_label("Seeds", exact=True).is_visible():
        page.get_by_text("New training").click()
    field(page, "Other settings", settings)
    field(page, "Seeds", seeds)
    page.get_by_role("button", name=re.compile("^Start ")).click()


def field(page: Page, label: str, value: str) -> None:
    box = page.get_by_label(label, exact=True)
    box.fill(value)
    box.press("Enter")
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()


def only_run(runs: Path) -> Run:
    return Run(next(runs.glob("pasted-*")))


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def losses(run: Run) -> list[tuple[str, int, float]]:
    return [(record["split"], record["step"], record["loss_nats"]) for record in run.records()]


def test_a_training_survives_a_reload_and_ends_on_the_other_pages(train: Page, runs: Path) -> None:
    start(train, QUICK)
    expect(train.get_by_text(re.compile("^(queued|running): step"))).to_be_visible(timeout=PATIENCE_MS)
    train.reload()
    expect(train.get_by_text("finished: step 40 of 40")).to_be_visible(timeout=PATIENCE_MS)
    expect(train.get_by_text("What it writes at step 40")).to_be_visible()
    run = only_run(runs)
    assert run.status.state == "finished"
    train.get_by_test_id("stMain").get_by_role("link", name="Learned scales").click()
    expect(train.get_by_role("heading", name="Learned scales")).to_be_visible(timeout=PATIENCE_MS)
    assert f"run={run.name}" in train.url


def test_stopping_and_resuming_gives_the_uninterrupted_losses(
    train: Page, runs: Path, tmp_path: Path
) -> None:
    steps = "steps=400 evaluate_every=20 context_length=32 d_model=16"
    start(train, steps)
    until(lambda: any(runs.glob("pasted-*/metrics.jsonl")), "the training did not begin")
    train.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop").click()
    expect(train.get_by_text(re.compile("^stopped: step"))).to_be_visible(timeout=PATIENCE_MS)
    stopped = only_run(runs)
    assert 0 < stopped.status.step < 400
    train.get_by_role("button", name="Resume").click()
    expect(train.get_by_text("finished: step 400 of 400")).to_be_visible(timeout=PATIENCE_MS)
    resumed = only_run(runs)
    torch.set_num_threads(1)  # as the app's trainers, which keep to OMP_NUM_THREADS here
    assert isinstance(resumed.config, ExperimentConfig)
    whole = dataclasses.replace(resumed.config, corpus=resumed.corpus().source)
    folder, ended = run_experiment(whole, tmp_path / "whole", device="cpu", audited=False)
    assert ended == "finished"
    assert losses(Run(folder)) == losses(resumed)


def test_a_killed_training_reads_interrupted_and_the_next_one_runs(train: Page, runs: Path) -> None:
    start(train, QUICK, seeds="0-2")
    until(
        lambda: len(jobs.queued(runs)) == 3 or any(runs.glob("pasted-*-s2/status.json")),
        "not all were queued",
    )
    second, third = (next(runs.glob(f"pasted-*-s{seed}")) for seed in (1, 2))
    until(
        lambda: (second / "status.json").exists() and Run(second).status.state == "running",
        "the second did not run",
    )
    os.kill(json.loads((second / "status.json").read_text())["pid"], signal.SIGKILL)
    until(lambda: Run(third).status.state == "finished", "the third did not run")
    assert Run(second).status.state == "interrupted"
    train.goto(f"{train.url.split('?')[0]}?run={second.name}")
    expect(train.get_by_text(re.compile("^interrupted: step"))).to_be_visible(timeout=PATIENCE_MS)
    train.get_by_role("button", name="Resume").click()
    expect(train.get_by_text("finished: step 40 of 40")).to_be_visible(timeout=PATIENCE_MS)


def test_two_tabs_resume_the_same_run_once(
    train: Page, pages: Callable[..., Page], visit: Callable[..., Page], runs: Path
) -> None:
    start(train, LONG)
    until(lambda: any(runs.glob("pasted-*/metrics.jsonl")), "the training did not begin")
    train.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop").click()
    expect(train.get_by_text(re.compile("^stopped: step"))).to_be_visible(timeout=PATIENCE_MS)
    other = visit(pages(), train.url)
    for tab in (train, other):
        tab.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Resume").click()
    until(lambda: only_run(runs).status.state == "running", "it was not resumed")
    before = json.loads((only_run(runs).path / "status.json").read_text())["pid"]
    expect(other.get_by_text(re.compile("^running: step"))).to_be_visible(timeout=PATIENCE_MS)
    assert not json.loads((runs / ".queue.json").read_text())
    other.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop").click()
    expect(train.get_by_text(re.compile("^stopped: step"))).to_be_visible(timeout=PATIENCE_MS)
    assert before is not None
    text = (only_run(runs).path / "train.log").read_text()
    assert "expected a run that nobody is training" not in text


def test_a_mistake_in_the_form_is_one_line(train: Page) -> None:
    field(train, "Other settings", "n_heads=3")
    expect(train.get_by_test_id("stAlert")).to_contain_text("expected a multiple of n_heads")
    expect(train.get_by_role("heading", name="Trainings")).to_be_visible()
