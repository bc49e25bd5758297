"""The README's commands and example run, and its tables are what the runs and the registries say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from benchmarks import measuring, train_speed
from ega_mope.cli import run
from ega_mope.runs import shipped_folder

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert found, f"no {language} block in README.md"
    return found[1]


def table(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*)\n<!-- /{name} -->", README, re.DOTALL)
    assert found, f"no table {name} in README.md"
    return found[1]


@pytest.mark.parametrize("command", [line for line in block("sh").splitlines() if line])
def test_every_command_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(command)
    assert program == "ega-mope"
    assert run(arguments) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.strip()


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = block("python")
    exec(compile(example, "README.md", "exec"), {})
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 2
    assert lines[0].count(",") + 1 == len("To be, or not to be")
    assert "sigma" in lines[1]
    assert len([line for line in example.splitlines() if line.strip()]) <= 5


def test_the_mechanisms_are_those_of_the_registries(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mechanisms", "--markdown"]) == 0
    assert table("mechanisms") == capsys.readouterr().out.strip(), "paste `ega-mope mechanisms --markdown`"


def test_the_losses_are_those_of_the_shipped_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path))
    assert run(["runs", "--markdown"]) == 0
    assert table("runs") == capsys.readouterr().out.strip(), "paste `ega-mope runs --markdown`"


def test_the_speeds_are_those_of_the_committed_benchmarks() -> None:
    training, app = (
        json.loads((ROOT / "benchmarks" / name).read_text())
        for name in ("train_speed.json", "app_speed.json")
    )
    shown = "\n\n".join(
        (train_speed.markdown(training), train_speed.markdown_elsewhere(), measuring.markdown(app))
    )
    assert table("speed") == shown, "paste what `make bench` printed, or run it again"


def test_the_nine_runs_ship() -> None:
    assert len([path for path in shipped_folder().iterdir() if (path / "model.safetensors").exists()]) >= 9
