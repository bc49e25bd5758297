"""A training and its run folder: kills, stops, divergence and second writers cost nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from trainer_process import MODEL, tiny_experiment, train_in_a_process

from ega_mope.config import ModelConfig
from ega_mope.experiments import default_name, prepare, resume_experiment, run_experiment
from ega_mope.runs import Run, RunWriter, request_stop
from ega_mope.training import Record, Step


def numbers(run: Run) -> tuple[list[tuple[object, ...]], list[dict[str, object]]]:
    """All losses, gradient norms and learned scalars: what must not depend on how it was interrupted."""
    return [(r["split"], r["step"], r["loss_nats"], r["grad_norm"]) for r in run.records()], run.learned()


def weights(run: Run) -> bytes:
    return (run.path / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, small_text: Path) -> Run:
    """The uninterrupted training at seed 0."""
    path, ended = run_experiment(
        tiny_experiment(small_text), tmp_path_factory.mktemp("whole"), name="whole", device="cpu"
    )
    assert ended == "finished"
    return Run(path)


def at_step(step: int, act: Callable[[], object]) -> Callable[[Record], None]:
    def watch(record: Record) -> None:
        if isinstance(record, Step) and record.step == step:
            act()

    return watch


def test_a_run_folder_says_all_that_decides_it(whole: Run, small_text: Path) -> None:
    document = json.loads((whole.path / "config.json").read_text())
    assert document["model"]["attention"]["gate_norm"] == "causal", "defaults are written out"
    assert document["model"]["vocabulary_size"] == len(set(small_text.read_text()))
    assert document["evaluation"]["corpus_sha256"] == document["corpus"]["sha256"]
    assert document["evaluation"]["batches"] == 2 and document["evaluation"]["context"] == 12
    assert document["parameters"]["total"] == sum(p.numel() for p in whole.model("cpu").parameters())
    assert {"python", "torch", "numpy", "ega_mope"} <= document["versions"].keys()
    assert [r["step"] for r in whole.learned()] == [0, 4, 8, 12, 16, 20]
    assert whole.status.state == "finished" and whole.status.step == 20
    assert not (whole.path / "training_state.pt").exists()


def test_the_saved_weights_are_the_best_ones(small_text: Path, tmp_path: Path) -> None:
    # Rates that grow past what it bears: the best loss is neither the first nor the last.
    config = tiny_experiment(small_text, steps=12, learning_rate=2.0, warmup_steps=19, validation_batches=0)
    run = Run(run_experiment(config, tmp_path, device="cpu")[0])
    best, final = run.best(), run.final()
    assert best is not None and final is not None and 0 < best.step < final.step
    from ega_mope.training import validation_loss

    ids = torch.as_tensor(prepare(config).validation_ids)
    loss = validation_loss(run.model("cpu"), ids, config.training, torch.Generator())
    assert loss == pytest.approx(best.loss_nats, abs=1e-6)


def saved_step(run: Path) -> int:
    """The step that a resumed training would go on from."""
    path = run / "training_state.pt"
    return torch.load(path, weights_only=True)["step"] if path.exists() else 0


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_kills_at_random_moments_change_no_digit(seed: int, small_text: Path, tmp_path: Path) -> None:
    config, chance = tiny_experiment(small_text, seed), random.Random(seed)
    assert train_in_a_process(config, tmp_path, "reference") == 0
    calls = int((tmp_path / "reference.calls").read_text())
    struck, resumed_from = 0, []
    for _ in range(5):
        kill_at = chance.randrange(calls // 10, 2 * calls // 3)
        struck += train_in_a_process(config, tmp_path, "killed", kill_at) == -signal.SIGKILL
        resumed_from.append(saved_step(tmp_path / "killed"))
        if (tmp_path / "killed" / "config.json").exists():
            assert Run(tmp_path / "killed").status.state in ("interrupted", "finished")
    assert train_in_a_process(config, tmp_path, "killed") == 0
    assert struck >= 3 and max(resumed_from) > 0, "or nothing was tried"
    run, reference = Run(tmp_path / "killed"), Run(tmp_path / "reference")
    assert run.status.state == "finished"
    assert numbers(run) == numbers(reference)
    assert weights(run) == weights(reference)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "STOP"])
def test_stopping_is_clean_and_resumable(how: str, whole: Run, small_text: Path, tmp_path: Path) -> None:
    acts: dict[str, Callable[[], object]] = {
        "SIGINT": interrupt,
        "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
        "STOP": lambda: request_stop(tmp_path / "run"),
    }
    before = signal.getsignal(signal.SIGINT)
    watch = at_step(6, acts[how])
    path, ended = run_experiment(tiny_experiment(small_text), tmp_path, name="run", device="cpu", watch=watch)
    run = Run(path)
    assert ended == run.status.state == "stopped"
    stopped_at = run.status.step
    assert stopped_at in (6, 7)
    assert not (path / "STOP").exists()
    assert signal.getsignal(signal.SIGINT) is before
    resumed: list[int] = []
    go_on = resume_experiment(path, device="cpu", watch=lambda record: resumed.append(record.step))
    assert go_on == "finished"
    assert resumed[0] == stopped_at + 1, "from where it stopped, not from the start"
    assert numbers(run) == numbers(whole)
    assert weights(run) == weights(whole)


def test_a_second_stop_and_a_resume_of_what_is_finished(whole: Run, small_text: Path, tmp_path: Path) -> None:
    path, _ = run_experiment(
        tiny_experiment(small_text), tmp_path, name="run", device="cpu", watch=at_step(2, interrupt)
    )
    assert resume_experiment(path, device="cpu", watch=at_step(11, interrupt)) == "stopped"
    assert resume_experiment(path, device="cpu") == "finished"
    assert numbers(Run(path)) == numbers(whole)
    metrics = (path / "metrics.jsonl").read_bytes()
    assert resume_experiment(path, device="cpu") == "finished"
    assert (path / "metrics.jsonl").read_bytes() == metrics


def test_a_stop_left_from_before_does_not_stop_the_next(small_text: Path, tmp_path: Path) -> None:
    path, _ = run_experiment(
        tiny_experiment(small_text), tmp_path, name="run", device="cpu", watch=at_step(2, interrupt)
    )
    request_stop(path)
    assert resume_experiment(path, device="cpu") == "finished"


def test_a_diverging_run_says_so_in_json(small_text: Path, tmp_path: Path) -> None:
    config = tiny_experiment(small_text, learning_rate=1e6, warmup_steps=0)
    path, ended = run_experiment(config, tmp_path, device="cpu")
    run = Run(path)
    assert ended == run.status.state == "diverged"
    written = (path / "metrics.jsonl").read_text().splitlines()
    lines = [json.loads(line, parse_constant=pytest.fail) for line in written]
    assert lines[-1]["loss_nats"] is None and lines[-1]["diverged"] is True
    assert all("diverged" not in line for line in lines if line["loss_nats"] is not None)
    assert run.metrics().iloc[-1]["diverged"] or run.metrics()["diverged"].any()
    best = run.best()
    assert best is not None and best.step == 0
    assert all(value.isfinite().all() for value in run.model("cpu").state_dict().values())


def test_a_second_writer_is_refused(small_text: Path, tmp_path: Path) -> None:
    refusals: list[str] = []

    def try_another() -> None:
        with pytest.raises(ValueError, match="in training") as caught:
            resume_experiment(tmp_path / "run", device="cpu")
        refusals.append(str(caught.value))
        assert Run(tmp_path / "run").status.state == "running"

    run_experiment(
        tiny_experiment(small_text), tmp_path, name="run", device="cpu", watch=at_step(3, try_another)
    )
    assert len(refusals) == 1
    assert Run(tmp_path / "run").status.state == "finished"


def test_a_name_that_is_taken_is_refused_and_nothing_is_overwritten(small_text: Path, tmp_path: Path) -> None:
    config = tiny_experiment(small_text, steps=2)
    run_experiment(config, tmp_path, name="run", device="cpu")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match="expected a new folder"):
        run_experiment(config, tmp_path, name="run", device="cpu")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    assert Run(tmp_path / "run").status.state == "finished"


def test_unnamed_runs_get_a_name_that_says_what_they_are(small_text: Path, tmp_path: Path) -> None:
    config = tiny_experiment(small_text, steps=1)
    names = [run_experiment(config, tmp_path, device="cpu")[0].name for _ in range(2)]
    assert names == ["sentences-smoke-ega-causal-learned-s0", "sentences-smoke-ega-causal-learned-s0-2"]
    wide = dataclasses.replace(MODEL, position={"name": "mope", "init": "multiscale"})
    assert default_name(dataclasses.replace(config, model=wide)).endswith("ega-mope-multiscale-s0")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokenizer": "words"}, "characters, bytes"),
        ({"corpus": "/nowhere/at/all.txt"}, "tinyshakespeare"),
        ({"model": dataclasses.replace(MODEL, context_length=5000)}, "context_length"),
        ({"model": ModelConfig(attention={"name": "magic"})}, "ega"),
        ({"model": dataclasses.replace(MODEL, n_heads=8, d_model=8, position={"name": "rope"})}, "per head"),
    ],
    ids=["tokenizer", "corpus", "context", "attention", "one channel a head"],
)
def test_what_cannot_be_trained_is_refused_before_a_folder_is_made(
    change: dict[str, object], says: str, small_text: Path, tmp_path: Path
) -> None:
    config = dataclasses.replace(tiny_experiment(small_text), **change)
    with pytest.raises(ValueError, match="expected") as caught:
        run_experiment(config, tmp_path / "runs", device="cpu")
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_a_fault_while_training_is_written_down(small_text: Path, tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("the disk caught fire")

    with pytest.raises(RuntimeError):
        run_experiment(
            tiny_experiment(small_text), tmp_path, name="run", device="cpu", watch=at_step(5, fail)
        )
    status = Run(tmp_path / "run").status
    assert status.state == "failed" and "the disk caught fire" in (status.error or "")
    RunWriter(tmp_path / "run").close()


def test_bytes_never_met_in_training_count_as_unseen(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("abc " * 300 + "xyz " * 20)
    config = dataclasses.replace(tiny_experiment(text), tokenizer="bytes")
    tokenizer = prepare(config).tokenizer
    assert tokenizer.read("a").seen.all() and not tokenizer.read("xé").seen.any()


def test_the_text_is_kept_with_the_runs(small_text: Path, tmp_path: Path) -> None:
    text = tmp_path / "mine.txt"
    text.write_text(small_text.read_text())
    run = Run(run_experiment(tiny_experiment(text, steps=1), tmp_path / "runs", device="cpu")[0])
    text.unlink()
    assert run.corpus().text == small_text.read_text()
    assert run.corpus().name == "mine.txt"
