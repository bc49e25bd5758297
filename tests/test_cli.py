"""The command line: exit codes, one line of error, one JSON document, instant help."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ega_mope.cli import cli, run
from ega_mope.runs import Run

TINY = [
    f"--set={setting}"
    for setting in (
        "model.context_length=12",
        "n_layers=1",
        "d_model=8",
        "batch_size=2",
        "steps=4",
        "warmup_steps=1",
        "evaluate_every=2",
        "log_every=1",
        "validation_batches=1",
    )
]


def train(text: Path, runs: Path, *more: str) -> list[str]:
    return [
        "train",
        "--preset",
        "smoke",
        "--corpus",
        str(text),
        "--runs",
        str(runs),
        "--device",
        "cpu",
        *TINY,
        *more,
    ]


def errors_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr of a command that must end with status 2 and print nothing."""
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
    return printed.err


def test_help_is_instant_because_nothing_heavy_is_imported() -> None:
    script = (
        "import sys\n"
        "from ega_mope.cli import cli, run\n"
        "for name in (None, *cli.commands):\n"
        "    assert run([name, '--help'] if name else ['--help']) == 0\n"
        "heavy = {'torch', 'streamlit', 'pandas', 'numpy', 'plotly', 'sklearn', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stderr.strip() == "[]"
    for name in ("train", "runs", "show", "data", "import"):
        assert f"\n  {name} " in answer.stdout


def test_every_command_says_what_it_does() -> None:
    for name, command in cli.commands.items():
        assert command.help, name


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert shown == capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trian"], "trian"),
        (["train", "--stepz", "3"], "--stepz"),
        (["train", "--seed", "minus"], "seed"),
        (["train", "--seed", "-1"], "seed"),
        (["show"], "RUN"),
        (["show", "nowhere"], "nowhere"),
        (["data", "no-such-corpus"], "tinyshakespeare"),
        (["train", "--preset", "huge"], "smoke, small, paper"),
        (["train", "--attention", "eag"], "dot, ega"),
        (["train", "--attention", "ega", "--gate-norm", "batch"], "causal"),
        (["train", "--attention", "dot", "--gate-norm", "causal"], "no settings"),
        (["train", "--position", "morlet"], "mope"),
        (["train", "--corpus", "no-such-file.txt"], "no-such-file.txt"),
        (["train", "--corpus", "{text}", "--tokenizer", "words"], "characters, bytes"),
        (["train", "--set", "steps"], "KEY=VALUE"),
        (["train", "--set", "stepz=3"], "training.steps"),
        (["train", "--set", "name=rope"], "model.position.name"),
        (["train", "--set", "steps=0"], "at least 1"),
        (["train", "--set", "steps=many"], "kind int"),
        (["train", "--set", "learning_rate=1e999"], "finite"),
        (["train", "--set", "d_model=30", "--set", "n_heads=4"], "28"),
        (["train", "--corpus", "{text}", "--set", "context_length=100000"], "context_length"),
        (["train", "--corpus", "{text}", "--name", "../up"], "name"),
        (["train", "--corpus", "{text}", "--device", "tpu"], "auto, cpu, cuda"),
        (["train", "--corpus", "{text}", "--runs", "{text}"], "folder"),
        (["train", "--resume"], "--name"),
        (["train", "--resume", "--name", "nowhere"], "nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_status_2_and_one_line(
    arguments: list[str],
    says: str,
    small_text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    message = errors_of([part.format(text=small_text) for part in arguments], capsys)
    assert says.split(",")[0] in message
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA GPU here")
def test_asking_for_cuda_where_there_is_none(
    small_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = train(small_text, tmp_path / "runs", "--device", "cuda")
    assert "--device cpu" in errors_of(arguments, capsys)
    assert not (tmp_path / "runs").exists()


def test_a_fault_of_ours_is_status_1_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError("not your fault")

    monkeypatch.setattr("ega_mope.analysis.runs.summarise_all", fail)
    assert run(["runs"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "not your fault" in printed.err and "a fault of the lab" in printed.err.splitlines()[-1]


def test_training_answers_with_one_json_document(
    small_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(train(small_text, tmp_path, "--attention", "ega", "--name", "one", "--json")) == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    made = Run(tmp_path / "one")
    best, final = made.best(), made.final()
    assert best is not None and final is not None
    assert answer == {
        "name": "one",
        "path": str(tmp_path / "one"),
        "status": "finished",
        "best_loss_nats": best.loss_nats,
        "final_loss_nats": final.loss_nats,
        "peak_memory_bytes": made.peak_memory_bytes(),
        "sees_future": False,
    }
    assert "step 4/4" in printed.err


def test_settings_on_the_command_line_reach_the_run(small_text: Path, tmp_path: Path) -> None:
    more = ["--attention", "ega", "--gate-norm", "none", "--position", "mope", "--seed", "3", "--name", "one"]
    wished = ["--set", "position.init=multiscale", "--set", "training.learning_rate=0.5"]
    assert run(train(small_text, tmp_path, *more, *wished)) == 0
    made = Run(tmp_path / "one")
    assert made.config.model.attention["gate_norm"] == "none"
    assert made.config.model.position["init"] == "multiscale"
    assert made.config.training is not None and made.config.training.learning_rate == 0.5
    assert made.seed == 3 and made.config.model.d_model == 8


def test_the_end_of_a_training_says_where_it_is(
    small_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(train(small_text, tmp_path, "--name", "one")) == 0
    assert f"finished: {tmp_path / 'one'}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["runs"], ["show", "ega-causal-mope-s0"], ["data", "{text}"]])
def test_json_is_one_document_and_nothing_else(
    arguments: list[str],
    tiny_runs: Path,
    small_text: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))
    arguments = [part.format(text=small_text) for part in arguments]
    assert run([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    json.loads(printed.out, parse_constant=pytest.fail)
    assert printed.out.count("\n") == 1 and printed.err == ""
    assert run(arguments) == 0
    assert capsys.readouterr().out.count("\n") > 1, "and without it, something to read"


def test_runs_are_listed_with_their_folder_and_what_they_are(
    tiny_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))
    assert run(["runs"]) == 0
    printed = capsys.readouterr()
    assert str(tiny_runs) in printed.err
    line = next(line for line in printed.out.splitlines() if line.startswith("ega-sequence-mope-s1"))
    assert line.split()[1:6] == ["finished", "ega", "sequence", "mope", "1"] and line.endswith("yes")


def test_an_empty_folder_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path))
    monkeypatch.setattr("ega_mope.runs.reading.shipped_folder", lambda: tmp_path / "none")
    assert run(["runs"]) == 0
    assert "ega-mope train" in capsys.readouterr().err
    assert run(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_ctrl_c_ends_a_real_training_cleanly(small_text: Path, tmp_path: Path) -> None:
    arguments = train(small_text, tmp_path, "--name", "long", "--set", "steps=1000000", "--json")
    command = [sys.executable, "-m", "ega_mope", *arguments, "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        metrics = tmp_path / "long" / "metrics.jsonl"
        while not (metrics.exists() and b'"train"' in metrics.read_bytes()):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert json.loads(out)["status"] == "stopped"
    stopped = Run(tmp_path / "long")
    assert stopped.status.state == "stopped" and stopped.status.step > 0
    assert (stopped.path / "training_state.pt").exists()
