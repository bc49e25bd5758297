"""Run folders: opened from anywhere, half lines survived, broken ones explained, nothing invented."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated_runs import write_run

from ega_mope.analysis.runs import describe, summarise, summarise_all
from ega_mope.config import Plain
from ega_mope.runs import BrokenRun, Run, RunWriter, checked_name, free_name, list_runs, open_run


@pytest.fixture
def folder(tiny_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's runs: one copy that a test may break."""
    runs = tmp_path / "runs"
    shutil.copytree(tiny_runs / "ega-causal-mope-s0", runs / "mine")
    shutil.copytree(tiny_runs / ".corpora", runs / ".corpora")
    monkeypatch.setenv("EGA_MOPE_RUNS", str(runs))
    return runs


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def mine() -> Run | BrokenRun:
    return next(run for run in list_runs() if run.name == "mine")


def test_by_name_by_folder_and_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    paths = {open_run(how).path for how in ("mine", str(folder / "mine"), folder / "mine", "./mine")}
    assert paths == {folder / "mine"}


def test_an_unknown_run_names_those_there_are(folder: Path) -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        open_run("yours")
    assert "'yours'" in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_moved_elsewhere_opens_with_its_text(folder: Path, tmp_path: Path) -> None:
    text = Run(folder / "mine").corpus().text
    shutil.move(folder / "mine", tmp_path / "elsewhere")
    run = Run(tmp_path / "elsewhere")
    assert run.name == "elsewhere"
    assert run.model("cpu").config.d_model == 16
    assert run.corpus().text == text, "found among the user's runs"


def test_a_missing_text_says_where_to_put_it(folder: Path) -> None:
    shutil.rmtree(folder / ".corpora")
    with pytest.raises(ValueError, match=r"sentences\.txt.*\.corpora"):
        Run(folder / "mine").corpus()


def test_half_a_last_line_is_survived(folder: Path) -> None:
    run = Run(folder / "mine")
    records, learned = run.records(), run.learned()
    for name in ("metrics.jsonl", "learned.jsonl"):
        path = folder / "mine" / name
        path.write_bytes(path.read_bytes() + b'{"step": 9, "spl')
    assert run.records() == records and run.learned() == learned
    writer = RunWriter(folder / "mine")
    writer.append("metrics.jsonl", {"step": 9, "split": "train", "loss_nats": 1.25})
    writer.close()
    added = [record for record in run.records() if record not in records]
    assert added == [{"step": 9, "split": "train", "loss_nats": 1.25}]


def test_half_a_line_in_the_middle_is_survived_too(folder: Path) -> None:
    run, path = Run(folder / "mine"), folder / "mine" / "metrics.jsonl"
    before = {split: curve.loss_nats.tolist() for split, curve in run.curves().items()}
    path.write_bytes(b'{"step": 0, "split": "tra\n5\n' + path.read_bytes())
    assert {split: curve.loss_nats.tolist() for split, curve in run.curves().items()} == before
    path.write_bytes(b"")
    assert run.curves() == {} and run.best() is None


def test_curves_hold_the_numbers_of_the_records(folder: Path) -> None:
    again: list[dict[str, Any]] = [
        {"step": 2, "split": "train", "loss_nats": 0.25, "tokens": 7, "seconds": 1.5},
        {"step": 1, "split": "train", "loss_nats": None, "diverged": True},
        {"step": 9, "loss_nats": 1.0},
    ]
    writer = RunWriter(folder / "mine")
    for record in again:
        writer.append("metrics.jsonl", record)
    writer.close()
    run = Run(folder / "mine")
    for split, curve in run.curves().items():
        records = [record for record in run.records() if record["split"] == split]
        assert curve.step.tolist() == [record["step"] for record in records]
        for column in ("tokens", "seconds", "loss_nats"):
            expected = [math.nan if record.get(column) is None else record[column] for record in records]
            assert getattr(curve, column).tolist() == pytest.approx(expected, rel=0, nan_ok=True)
    train = run.curves()["train"]
    assert math.isnan(train.loss_nats[train.step == 1][0]) and train.loss_nats[train.step == 2] == [0.25]


def test_what_was_read_is_kept_until_its_file_changes(folder: Path) -> None:
    first, curves = mine(), Run(folder / "mine").curves()
    assert mine() is first and Run(folder / "mine").curves() is curves
    writer = RunWriter(folder / "mine")
    writer.append("metrics.jsonl", {"step": 9, "split": "validation", "loss_nats": 0.5})
    writer.set_status("stopped", 9)
    writer.close()
    assert isinstance(first, Run)
    best = first.best()
    assert best is not None and best.step == 9 and first.status.state == "stopped"
    edit(folder / "mine" / "config.json", lambda d: d.update(seed=7))
    renewed = mine()
    assert isinstance(renewed, Run) and renewed.seed == 7
    edit(folder / "mine" / "config.json", lambda d: d.update(seed=8))
    shutil.rmtree(folder / "mine")
    assert "mine" not in {run.name for run in list_runs()}


def test_learned_names_are_those_of_the_last_whole_record(folder: Path) -> None:
    run, path = Run(folder / "mine"), folder / "mine" / "learned.jsonl"
    assert {"attention.threshold", "position.omega"} <= run.learned_names
    path.write_bytes(path.read_bytes() + b'{"step": 9, "values": {"position.sigma": [1.0')
    assert "attention.threshold" in run.learned_names
    path.unlink()
    assert run.learned_names == frozenset()


def test_the_last_record_of_a_step_counts(folder: Path) -> None:
    writer = RunWriter(folder / "mine")
    writer.append("metrics.jsonl", {"step": 3, "split": "validation", "loss_nats": 0.5})
    writer.close()
    run = Run(folder / "mine")
    assert [p.loss_nats for p in run.validation() if p.step == 3] == [0.5]
    best = run.best()
    assert best is not None and (best.step, best.loss_nats) == (3, 0.5)
    steps = [record["step"] for record in run.records() if record["split"] == "validation"]
    assert steps == [0, 3, 6]


def test_losses_that_were_not_finite_are_no_numbers(folder: Path) -> None:
    writer = RunWriter(folder / "mine")
    writer.append("metrics.jsonl", {"step": 6, "split": "validation", "loss_nats": None, "diverged": True})
    writer.close()
    run = Run(folder / "mine")
    final = run.final()
    assert final is not None and final.step == 3
    table = run.metrics()
    row = table[(table.split == "validation") & (table.step == 6)].iloc[0]
    assert math.isnan(row.loss_nats) and row.diverged
    assert table.diverged.sum() == 1


def test_the_metrics_table_has_numbers(folder: Path) -> None:
    table = Run(folder / "mine").metrics()
    assert list(table.columns) == [
        "step", "tokens", "seconds", "split", "loss_nats", "lr", "grad_norm", "tokens_per_second",
        "peak_memory_bytes", "diverged",
    ]  # fmt: skip
    assert table.loss_nats.dtype == "float64" and (table.loss_nats > 0).all()
    assert len(table) == 3 + 6


def test_the_most_memory_of_any_evaluation_is_the_runs_peak(folder: Path) -> None:
    run = Run(folder / "mine")
    (run.path / "metrics.jsonl").write_text("")
    assert run.peak_memory_bytes() is None and describe(run)["peak_memory_bytes"] is None
    writer = RunWriter(run.path)
    for step, peak in ((1, 500), (2, 900), (3, 700)):
        writer.append("metrics.jsonl", {"step": step, "split": "train", "loss_nats": 1.0})
        writer.append(
            "metrics.jsonl",
            {"step": step, "split": "validation", "loss_nats": 1.0, "peak_memory_bytes": peak},
        )
    writer.close()
    assert run.peak_memory_bytes() == describe(run)["peak_memory_bytes"] == 900
    by_split = run.metrics().groupby("split")["peak_memory_bytes"]
    assert by_split.max()["validation"] == 900 and by_split.count()["train"] == 0


def test_a_trainer_that_is_gone_reads_as_interrupted(folder: Path) -> None:
    path = folder / "mine" / "status.json"
    edit(path, lambda d: d.update(state="running", pid=999_999_999, host=__import__("socket").gethostname()))
    assert Run(folder / "mine").status.state == "interrupted"
    edit(path, lambda d: d.update(host="another machine", heartbeat=0.0))
    assert Run(folder / "mine").status.state == "interrupted"
    edit(path, lambda d: d.update(heartbeat=__import__("time").time()))
    assert Run(folder / "mine").status.state == "running", "a fresh heartbeat from another machine"
    path.unlink()
    assert Run(folder / "mine").status.state == "interrupted"


def test_a_run_being_written_reads_as_running(folder: Path) -> None:
    writer = RunWriter(folder / "mine")
    writer.set_status("running", 4)
    assert Run(folder / "mine").status.state == "running"
    writer.close()
    assert Run(folder / "mine").status.state == "interrupted"


def test_two_writers_are_one_too_many(folder: Path) -> None:
    writer = RunWriter(folder / "mine")
    with pytest.raises(ValueError, match="in training"):
        RunWriter(folder / "mine")
    writer.close()
    RunWriter(folder / "mine").close()


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda run: (run / "config.json").unlink(), "config.json"),
    "half a config": (lambda run: (run / "config.json").write_text('{"format": 1,'), "JSON"),
    "a list": (lambda run: (run / "config.json").write_text("[]"), "object"),
    "a newer format": (lambda run: edit(run / "config.json", lambda d: d.update(format=99)), "format 1"),
    "no model": (lambda run: edit(run / "config.json", lambda d: d.pop("model")), "model"),
    "no corpus": (lambda run: edit(run / "config.json", lambda d: d.update(corpus=None)), "corpus"),
    "no evaluation": (lambda run: edit(run / "config.json", lambda d: d.pop("evaluation")), "evaluation"),
    "an unknown mechanism": (
        lambda run: edit(run / "config.json", lambda d: d["model"]["attention"].update(name="magic")),
        "magic",
    ),
    "half a status": (lambda run: (run / "status.json").write_text("{"), "status.json"),
    "a status without a state": (lambda run: (run / "status.json").write_text("{}"), "state"),
    "metrics without losses": (
        lambda run: (run / "metrics.jsonl").write_text('{"split": "validation", "step": 1}\n'),
        "loss_nats",
    ),
    "words for numbers": (
        lambda run: (run / "metrics.jsonl").write_text(
            '{"split": "train", "step": "one", "loss_nats": 1.0}\n'
        ),
        "expected loss records in metrics.jsonl",
    ),
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_folder_is_listed_with_its_problem_and_hides_no_other(how: str, folder: Path) -> None:
    shutil.copytree(folder / "mine", folder / "whole")
    act, says = BREAKS[how]
    act(folder / "mine")
    broken = mine()
    assert isinstance(broken, BrokenRun)
    assert says in broken.problem and "\n" not in broken.problem
    rows = {row["name"]: row for row in summarise_all()}
    assert rows["mine"]["problem"] == broken.problem
    assert rows["mine"]["status"] is None
    assert rows["whole"]["problem"] is None and rows["whole"]["status"] == "finished"


def test_missing_or_foreign_weights_are_one_line(folder: Path, tiny_runs: Path) -> None:
    shutil.copy(tiny_runs / "dot-learned-s0" / "model.safetensors", folder / "mine")
    with pytest.raises(ValueError, match="expected weights that fit") as caught:
        Run(folder / "mine").model("cpu")
    assert "\n" not in str(caught.value)
    (folder / "mine" / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ValueError, match="expected weights that fit"):
        Run(folder / "mine").model("cpu")
    (folder / "mine" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="no such file"):
        Run(folder / "mine").model("cpu")


def test_a_config_of_an_older_lab_opens_with_todays_defaults(folder: Path) -> None:
    def forget(document: dict[str, Any]) -> None:
        del document["model"]["attention"]["signal"]
        del document["model"]["position"]["rate_multiplier"]
        del document["training"]["validation_batches"]

    before = Run(folder / "mine").settings()
    edit(folder / "mine" / "config.json", forget)
    run = Run(folder / "mine")
    assert run.settings() == before
    run.model("cpu")


def test_what_makes_two_runs_the_same_experiment(tiny_runs: Path) -> None:
    def settings(name: str) -> dict[str, Any]:
        return Run(tiny_runs / name).settings()

    assert settings("dot-mope-s0") == settings("dot-mope-s1"), "the seed does not count"
    ega, dot = settings("ega-causal-learned-s0"), settings("dot-learned-s0")
    different = {key for key in ega.keys() | dot.keys() if ega.get(key) != dot.get(key)}
    assert {key.rsplit(".", 1)[0] for key in different} == {"model.attention"}
    assert Run(tiny_runs / "dot-mope-s0").evaluation == Run(tiny_runs / "ega-causal-learned-s1").evaluation


def test_loading_a_model_is_repeatable_and_frozen(folder: Path) -> None:
    run = Run(folder / "mine")
    first, second = run.model("cpu"), run.model("cpu")
    assert all((a == b).all() for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not first.training and not any(p.requires_grad for p in first.parameters())


def test_rows_and_descriptions_say_the_same(folder: Path) -> None:
    run = Run(folder / "mine")
    row, described = summarise(run), describe(run)
    assert list(row) == [
        "name", "path", "status", "attention", "position", "gate_norm", "signal", "corpus", "tokenizer",
        "preset", "seed", "steps", "best_loss_nats", "final_loss_nats", "sees_future", "problem",
    ]  # fmt: skip
    assert (
        row["best_loss_nats"] == described["best"]["loss_nats"] == min(p.loss_nats for p in run.validation())
    )
    assert row["final_loss_nats"] == described["final"]["loss_nats"] == run.validation()[-1].loss_nats
    assert (row["attention"], row["gate_norm"], row["position"]) == ("ega", "causal", "mope")
    parts = {key: value for key, value in described["parameters"].items() if key != "total"}
    assert sum(parts.values()) == described["parameters"]["total"]
    assert parts["attention_gate"] == (16 + 2) * 2 * 2


def test_only_the_sequence_norm_is_marked_as_seeing_the_future(tiny_runs: Path) -> None:
    marked = {run.name for run in list_runs([tiny_runs]) if isinstance(run, Run) and run.sees_future}
    assert marked == {f"ega-sequence-{p}-s{s}" for p in ("learned", "mope") for s in (0, 1)}


@pytest.mark.parametrize("name", ["../up", ".hidden", "-dash", "a b", "", "a/b", "x" * 300, "naïve", "a\n"])
def test_names_that_are_no_plain_folder_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name: expected"):
        checked_name(name)


def test_free_names_count_up(tmp_path: Path) -> None:
    assert free_name(tmp_path, "run") == "run"
    (tmp_path / "run").mkdir()
    (tmp_path / "run-2").mkdir()
    assert free_name(tmp_path, "run") == "run-3"


def test_a_runs_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="expected a folder that can be written"):
        RunWriter(tmp_path / "file" / "run")


def test_an_older_run_means_what_it_meant_before_a_setting_existed(tmp_path: Path, small_text: Path) -> None:
    def older(document: Plain) -> None:
        del document["model"]["position"]["amplitude"]

    run, new = (
        write_run(tmp_path, name, small_text, position={"name": "sinusoidal"}, change=change)
        for name, change in (("old", older), ("new", lambda document: None))
    )

    assert (run.config.model.position["amplitude"], new.config.model.position["amplitude"]) == (1.0, 0.03)
    assert run.settings() != new.settings()
