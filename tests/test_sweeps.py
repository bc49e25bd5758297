"""Sweeps: which runs, under which names, and that kills, failures and other trainers change nothing."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ega_mope import cli
from ega_mope.config import Plain
from ega_mope.experiments import resume_experiment, run_experiment
from ega_mope.runs import Run, RunWriter, request_stop
from ega_mope.sweeps import (
    GRIDS,
    Cell,
    Outcome,
    Planned,
    Progress,
    cells_of,
    plan,
    read_seeds,
    summarise,
    sweep,
)
from ega_mope.training import Record, Step

TINY = (
    "context_length=16", "n_layers=1", "d_model=16", "steps=12", "batch_size=2", "warmup_steps=2",
    "evaluate_every=4", "log_every=2",
)  # fmt: skip
PAIR = [
    Cell(label="plain", attention={"name": "dot"}, position={"name": "learned"}),
    Cell(label="both", attention={"name": "ega"}, position={"name": "mope"}),
]
DEADLINE_SECONDS = 300


def tiny_plan(
    corpus: Path, cells: list[Cell] = PAIR, seeds: tuple[int, ...] = (0,), *more: str
) -> list[Planned]:
    return plan(cells, seeds, preset_name="smoke", corpus=str(corpus), overrides=(*TINY, *more))


def train_here(planned: Planned, folder: Path, watch: Callable[[Record], None] = lambda record: None) -> Path:
    return run_experiment(planned.config, folder, name=planned.names[0], device="cpu", watch=watch)[0]


def stop_at(folder: Path, planned: Planned, step: int) -> Callable[[Record], None]:
    """Asks the run to stop once it has made this step."""

    def watch(record: Record) -> None:
        if isinstance(record, Step) and record.step == step:
            request_stop(folder / planned.names[0])

    return watch


def content(run: Path) -> tuple[Any, ...]:
    """What a run came to, without the clock: losses, learned scalars, weights."""
    opened = Run(run)
    timeless = [
        {
            key: value
            for key, value in record.items()
            if key not in ("seconds", "tokens_per_second", "peak_memory_bytes")
        }
        for record in opened.records()
    ]
    return opened.status.state, timeless, opened.learned(), (run / "model.safetensors").read_bytes()


def contents(folder: Path) -> dict[str, tuple[Any, ...]]:
    return {path.name: content(path) for path in sorted(folder.iterdir()) if not path.name.startswith(".")}


# Grids and plans


def test_the_named_grids_are_what_they_say() -> None:
    assert [cell.label for cell in cells_of("2x2")] == [
        "dot + learned", "dot + mope", "ega causal + learned", "ega causal + mope"
    ]  # fmt: skip
    study = cells_of("study")
    assert [cell.label for cell in study[:4]] == [cell.label for cell in cells_of("2x2")]
    norms = [(cell.attention.get("gate_norm"), cell.position["name"]) for cell in study[4:]]
    assert norms == [
        ("sequence", "learned"), ("sequence", "mope"), ("visible", "learned"), ("visible", "mope")
    ]  # fmt: skip


def test_the_other_mechanisms_are_trained_equally_long_beside_what_they_are_held_against(
    small_text: Path,
) -> None:
    planned = plan(cells_of("mechanisms"), [0], corpus=str(small_text))
    settings = [run.settings for run in planned]
    assert {one["training.steps"] for one in settings} == {1000}

    def differ(one: Plain, other: Plain) -> set[str]:
        absent = object()
        return {key for key in one | other if one.get(key, absent) != other.get(key, absent)}

    by_label = {run.cell.label: run.settings for run in planned}
    baseline, gated, mope = (
        by_label[label] for label in ("dot + learned", "ega causal + learned", "dot + mope")
    )
    # Each is one mechanism away from the baseline, EGA causal or MoPE from its usual start.
    for one in settings:
        assert any(
            all(key.startswith(part) for key in differ(one, beside))
            for beside in (baseline, gated, mope)
            for part in ("model.attention", "model.position")
        ), one


def test_the_planted_grid_is_what_its_claims_ask_for(small_text: Path) -> None:
    planned = plan(cells_of("planted"), [0], corpus="planted")
    positions = [run.config.model.position for run in planned]
    assert [(p["name"], p["rate_multiplier"]) for p in positions] == [("mope", 10), ("mope_relative", 10)]
    assert positions[0]["init"] == "multiscale"
    assert all(run.config.model.attention["gate_norm"] == "causal" for run in planned)


def test_a_grid_of_a_mechanism_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Cell(label="new", attention={"name": "ega", "gate_norm": "nowhere"}, position={"name": "none"})
    monkeypatch.setitem(GRIDS, "2x2", [absent])
    with pytest.raises(ValueError, match=r"cell new: attention ega\.gate_norm: expected one of .*'nowhere'"):
        cells_of("2x2")


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0-5", [0, 1, 2, 3, 4, 5]), ("3", [3]), ("7, 0-2,1", [7, 0, 1, 2]), ("4-4", [4])],
)
def test_seeds_are_read_in_order_each_once(text: str, seeds: list[int]) -> None:
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "5-0", "-1", "a", "1..3", "1,,2", "1-", "1.5"])
def test_seeds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="seeds: expected something like 0-5"):
        read_seeds(text)


def test_a_toml_file_lists_cells(tmp_path: Path, small_text: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        '[[cell]]\nattention = "dot"\nposition = "rope"\n'
        '[[cell]]\nattention = { name = "ega", gate_norm = "none" }\n'
        'position = { name = "mope", init = "multiscale" }\n'
        'set = { steps = 7, training.learning_rate = 3e-4, "model.dropout" = 0.5 }\nlabel = "mine"\n'
    )
    runs = tiny_plan(small_text, cells_of(str(file)))
    assert [planned.cell.label for planned in runs] == ["dot + rope", "mine"]
    first, second = (planned.config for planned in runs)
    assert (first.training.steps, second.training.steps) == (12, 7)
    assert (second.training.learning_rate, second.model.dropout) == (3e-4, 0.5)
    assert second.model.attention["gate_norm"] == "none" and second.model.position["init"] == "multiscale"


CELL = '[[cell]]\nattention = "dot"\nposition = "rope"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cell = ]", "expected a TOML file of cells, got .*line 1"),
        ("", r"expected one or more \[\[cell\]\] tables"),
        ("cell = 3", r"expected one or more \[\[cell\]\] tables"),
        ("steps = 3\n" + CELL, r"expected only \(cell\), got 'steps'"),
        (CELL + "steps = 3", r"cell 1: expected only \(attention, position, set, label\), got 'steps'"),
        ('[[cell]]\nattention = "dot"', r"cell 1\.position: expected a name or a table with one, got None"),
        (CELL + '[[cell]]\nattention = "dto"\nposition = "rope"', r"cell 2\.attention: .*got 'dto'"),
        ('[[cell]]\nattention = { name = "ega", norm = 1 }\nposition = "rope"', "ega: .*got 'norm'"),
        (CELL + "set = 3", r"cell 1\.set: expected a table"),
        (CELL + "label = 3", r"cell 1\.label: expected text"),
        (CELL + CELL, "expected a label for each cell, got 'dot \\+ rope' twice"),
    ],
)
def test_a_faulty_toml_file_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        cells_of(str(tmp_path / "grid.toml"))
    assert str(caught.value).startswith("grid.toml: ") and "\n" not in str(caught.value)


def test_neither_a_grid_nor_a_file_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"grid: expected one of \(2x2, study, mechanisms, planted\) or a TOML file, got '3x3'",
    ):
        cells_of("3x3")


def test_a_plan_goes_seed_by_seed_under_the_usual_names(small_text: Path) -> None:
    runs = tiny_plan(small_text, PAIR, (4, 2))
    assert [planned.names[0] for planned in runs] == [
        f"sentences-smoke-{cell}-s{seed}" for seed in (4, 2) for cell in ("dot-learned", "ega-causal-mope")
    ]
    assert {planned.config.training.steps for planned in runs} == {12}
    assert len({planned.key for planned in runs}) == 4


def test_cells_that_differ_in_a_setting_no_name_shows_never_share_one(small_text: Path) -> None:
    cells = [
        Cell(label=rate, attention={"name": "dot"}, position={"name": "learned"}, overrides=(f"learning_rate={rate}",))
        for rate in ("0.1", "0.2", "0.3")
    ]  # fmt: skip
    runs = tiny_plan(small_text, cells)
    names = [planned.names[0] for planned in runs]
    assert names[0] == "sentences-smoke-dot-learned-s0" and len(set(names)) == 3
    assert all(name.startswith(f"{names[0]}-") for name in names[1:])
    # The same from other company: a name depends on the run's own settings.
    assert tiny_plan(small_text, cells[1:])[0].names[-1] == names[1]


def test_a_setting_of_one_mechanism_goes_to_the_cells_that_have_it(small_text: Path) -> None:
    plain, both = tiny_plan(small_text, PAIR, (0,), "position.init=multiscale", "gate_norm=none")
    assert plain.config.model.position == {"name": "learned"}
    assert both.config.model.position["init"] == "multiscale"
    assert both.config.model.attention["gate_norm"] == "none"
    with pytest.raises(ValueError, match=r"cell plain: setting: expected one of .*got 'no_such_setting'"):
        tiny_plan(small_text, PAIR, (0,), "no_such_setting=1")


def test_what_cannot_be_trained_is_refused_before_anything_starts(small_text: Path) -> None:
    with pytest.raises(ValueError, match="cell plain: context_length 5,000: expected"):
        tiny_plan(small_text, PAIR, (0,), "context_length=5000")
    twin = Cell(label="twin", attention={"name": "ega", "gate_norm": "causal"}, position={"name": "mope"})
    with pytest.raises(ValueError, match="got 'both' and 'twin' alike"):
        tiny_plan(small_text, [*PAIR, twin])


# What is there already


@pytest.fixture
def finished(tmp_path: Path, small_text: Path) -> tuple[Path, list[Planned]]:
    """A folder where the first of two planned runs has finished."""
    runs = tiny_plan(small_text)
    train_here(runs[0], tmp_path / "runs")
    return tmp_path / "runs", runs


@pytest.mark.parametrize("resume", [False, True])
def test_a_finished_run_is_not_trained_again_whatever_it_is_called(
    resume: bool, finished: tuple[Path, list[Planned]]
) -> None:
    folder, runs = finished
    (folder / runs[0].names[0]).rename(folder / "my-own-name")
    before = contents(folder)
    said: list[Progress] = []
    outcomes = sweep(runs[:1], folder, resume=resume, device="cpu", watch=said.append)
    assert [(outcome.path.name, outcome.state) for outcome in outcomes] == [("my-own-name", "finished")]
    assert contents(folder) == before
    assert said[-1].done == said[-1].total == 1 and not any(progress.running for progress in said)


def test_a_run_left_off_needs_resume_and_then_ends_as_if_never_stopped(
    tmp_path: Path, small_text: Path, finished: tuple[Path, list[Planned]]
) -> None:
    whole, runs = finished
    folder = tmp_path / "stopped"
    train_here(runs[0], folder, stop_at(folder, runs[0], 6))
    assert Run(folder / runs[0].names[0]).status.state == "stopped"
    with pytest.raises(ValueError, match=f"got 1 left off \\({runs[0].names[0]}\\); add --resume"):
        sweep(runs, folder, device="cpu")
    assert [path.name for path in folder.iterdir() if path.name[0] != "."] == [runs[0].names[0]]
    assert [outcome.state for outcome in sweep(runs[:1], folder, resume=True, device="cpu")] == ["finished"]
    assert content(folder / runs[0].names[0]) == content(whole / runs[0].names[0])


def test_a_run_that_another_process_trains_is_waited_for(tmp_path: Path, small_text: Path) -> None:
    (planned,) = tiny_plan(small_text, PAIR[:1])
    path = train_here(planned, tmp_path, stop_at(tmp_path, planned, 4))
    writer = RunWriter(path)
    writer.set_status("running", 4)
    said: list[str] = []

    def watch(progress: Progress) -> None:
        said.append(progress.said or "")
        if progress.said and "elsewhere" in progress.said:
            # The other trainer goes on to the end.
            writer.close()
            resume_experiment(path, device="cpu")

    outcomes = sweep([planned], tmp_path, device="cpu", watch=watch)
    assert [outcome.state for outcome in outcomes] == ["finished"]
    assert said[0] == f"{path.name}: being trained elsewhere, coming back to it"
    assert not any("begun" in line or "going on" in line for line in said)


def test_a_failing_run_and_a_taken_name_keep_nothing_else_from_running(
    tmp_path: Path, small_text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cells = [*PAIR, Cell(label="bare", attention={"name": "dot"}, position={"name": "none"})]
    blocked, named, free = tiny_plan(small_text, cells)
    folder = tmp_path / "runs"
    folder.mkdir()
    # A file where the first run's folder belongs, and another experiment under the second's usual name.
    (folder / blocked.names[0]).write_text("in the way")
    other = tiny_plan(small_text, cells, (0,), "steps=2")[1]
    taken = train_here(other, folder)
    before = content(taken)
    outcomes = sweep([blocked, named, free], folder, jobs=2, device="cpu")
    assert [(outcome.path.name, outcome.state) for outcome in outcomes] == [
        (blocked.names[0], "failed"), (named.names[1], "finished"), (free.names[0], "finished")
    ]  # fmt: skip
    assert outcomes[0].problem and "expected a folder that can be written" in outcomes[0].problem
    assert content(taken) == before
    summary = summarise(outcomes)
    assert [(row["cell"], row["n"], row["failed"]) for row in summary["cells"]] == [
        ("plain", 0, 1), ("both", 1, 0), ("bare", 1, 0)
    ]  # fmt: skip
    assert summary["cells"][0]["mean_best_loss_nats"] is None
    assert summary["one_evaluation"]
    assert capfd.readouterr().out == ""


def test_a_summary_averages_over_the_finished_seeds(tmp_path: Path, small_text: Path) -> None:
    runs = tiny_plan(small_text, PAIR[:1], (0, 1, 2))
    paths = [train_here(planned, tmp_path) for planned in runs[:2]]
    outcomes = [
        *(Outcome(planned, path, "finished") for planned, path in zip(runs, paths, strict=False)),
        Outcome(runs[2], tmp_path / "never", "waiting", "the sweep was stopped"),
    ]
    row = summarise(outcomes)["cells"][0]
    finals = [point.loss_nats for path in paths if (point := Run(path).final())]
    bests = [point.loss_nats for path in paths if (point := Run(path).best())]
    assert (row["n"], row["failed"], row["unfinished"]) == (2, 0, 1)
    assert row["mean_final_loss_nats"] == pytest.approx(sum(finals) / 2, rel=1e-12)
    assert row["mean_best_loss_nats"] == pytest.approx(sum(bests) / 2, rel=1e-12)


# Kills and company


def command(folder: Path, corpus: Path, grid: Path, *more: str) -> list[str]:
    settings = [word for item in (*TINY, "steps=300", "evaluate_every=50") for word in ("--set", item)]
    return [
        sys.executable, "-m", "ega_mope", "sweep", "--grid", str(grid), "--seeds", "0-1", "--preset", "smoke",
        "--corpus", str(corpus), "--runs", str(folder), "--device", "cpu", *settings, *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def one_cell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    grid = tmp_path_factory.mktemp("grid") / "one.toml"
    grid.write_text('[[cell]]\nattention = "ega"\nposition = "mope"\n')
    return grid


@pytest.fixture(scope="module")
def uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, small_text: Path, one_cell: Path
) -> dict[str, tuple[Any, ...]]:
    """What the sweep of `command` comes to when nothing happens to it, trained here."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    overrides = (*TINY, "steps=300", "evaluate_every=50")
    for planned in plan(
        cells_of(str(one_cell)), (0, 1), preset_name="smoke", corpus=str(small_text), overrides=overrides
    ):
        train_here(planned, folder)
    return contents(folder)


def wait_until(holds: Callable[[], bool]) -> None:
    """Looks again and again; fails where it takes unreasonably long."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def records_made(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*/metrics.jsonl"))


def ended_or_wrote(process: subprocess.Popen[bytes], folder: Path, records: int) -> bool:
    return process.poll() is not None or records_made(folder) > records


def trainers(folder: Path) -> list[int]:
    """The process numbers in the status files of this folder."""
    documents: Iterator[Plain] = (json.loads(path.read_bytes()) for path in folder.glob("*/status.json"))
    return [document["pid"] for document in documents if document["pid"]]


def kill_everything(parent: subprocess.Popen[bytes], folder: Path) -> None:
    """As when the machine goes down: the sweep first, so that it tells nobody, then its trainers."""
    parent.kill()
    parent.wait()
    for pid in trainers(folder):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def test_a_sweep_stopped_then_killed_then_resumed_equals_an_uninterrupted_one(
    tmp_path: Path, small_text: Path, one_cell: Path, uninterrupted: dict[str, tuple[Any, ...]]
) -> None:
    start = command(tmp_path, small_text, one_cell, "--resume")
    with subprocess.Popen(start, start_new_session=True, stderr=subprocess.PIPE) as stopped:
        wait_until(lambda: records_made(tmp_path) > 10)
        stopped.send_signal(signal.SIGINT)
        _, said = stopped.communicate(timeout=DEADLINE_SECONDS)
    assert stopped.returncode == 1 and b"--resume" in said and b"Traceback" not in said
    first = Run(tmp_path / min(uninterrupted))
    # Cleanly: nobody is at it any more, and its state is that of the step it stopped at.
    assert first.status.state == "stopped" and first.status.step % 50 and trainers(tmp_path) == []
    made = records_made(tmp_path)
    with subprocess.Popen(start, start_new_session=True, stderr=subprocess.DEVNULL) as killed:
        wait_until(lambda: records_made(tmp_path) > made + 20)
        kill_everything(killed, tmp_path)
    assert subprocess.run([*start, "--json"], capture_output=True, check=True).stdout.startswith(b'{"runs": ')
    assert contents(tmp_path) == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_sweep_killed_at_random_moments_equals_an_uninterrupted_one(
    seed: int, tmp_path: Path, small_text: Path, one_cell: Path, uninterrupted: dict[str, tuple[Any, ...]]
) -> None:
    moments = random.Random(seed)
    start = command(tmp_path, small_text, one_cell, "--resume", "--jobs", str(1 + seed % 2))
    for _ in range(3):
        with subprocess.Popen(start, start_new_session=True, stderr=subprocess.DEVNULL) as killed:
            more = records_made(tmp_path) + moments.randrange(100)
            wait_until(partial(ended_or_wrote, killed, tmp_path, more))
            kill_everything(killed, tmp_path)
    subprocess.run(start, check=True, capture_output=True)
    assert contents(tmp_path) == uninterrupted


@pytest.mark.slow
def test_two_sweeps_at_once_train_each_run_once(
    tmp_path: Path, small_text: Path, one_cell: Path, uninterrupted: dict[str, tuple[Any, ...]]
) -> None:
    start = command(tmp_path, small_text, one_cell, "--jobs", "2")
    both = [subprocess.Popen(start, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert contents(tmp_path) == uninterrupted
    for path in tmp_path.glob("*/metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert len(lines) == len({(line["split"], line["step"]) for line in lines})


# The command


def test_the_command_reports_each_cell(
    finished: tuple[Path, list[Planned]], small_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = finished
    grid = tmp_path / "grid.toml"
    grid.write_text('[[cell]]\nattention = "dot"\nposition = "learned"\nlabel = "plain"\n')
    arguments = ["sweep", "--grid", str(grid), "--preset", "smoke", "--corpus", str(small_text)]
    arguments += ["--runs", str(folder), *(word for item in TINY for word in ("--set", item))]
    assert cli.run([*arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    best = Run(folder / answer["runs"][0]["name"]).best()
    assert best and answer["cells"] == [
        {
            "cell": "plain",
            "n": 1,
            "sees_future": False,
            "mean_best_loss_nats": best.loss_nats,
            "mean_final_loss_nats": answer["runs"][0]["final_loss_nats"],
            "failed": 0,
            "unfinished": 0,
        }
    ]
    assert cli.run(arguments) == 0
    printed = capsys.readouterr()
    words = printed.out.splitlines()[1].split()
    assert words[:3] == ["plain", "1", f"{best.loss_nats:.4f}"] and words[-1] == "no"
    assert "[1/1 runs] sentences-smoke-dot-learned-s0: finished" in printed.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--grid", "3x3"], "grid: expected one of"),
        (["--seeds", "5-0"], "seeds: expected something like"),
        (["--corpus", "no-such-corpus"], "or the path of a text file"),
        (["--preset", "huge"], "preset: expected one of"),
        (["--device", "tpu"], "device: expected one of"),
        (["--jobs", "0"], "--jobs"),
    ],
)
def test_the_command_refuses_in_one_line(
    change: list[str], message: str, small_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--grid", "2x2", "--preset", "smoke", "--corpus", str(small_text), "--runs", str(tmp_path)]
    assert cli.run(["sweep", *arguments, *change]) == 2
    said = capsys.readouterr().err
    assert message in said and said.startswith("error: ") and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
