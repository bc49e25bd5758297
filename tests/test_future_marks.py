"""A run that sees the future is marked wherever runs are listed, and one of which nobody can tell says so."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from simulated_runs import write_run
from streamlit.testing.v1 import AppTest

from ega_mope import cli
from ega_mope import runs as run_folders
from ega_mope.analysis.compare import configurations, labels, markdown_table, summary_table
from ega_mope.analysis.factorial import find_families
from ega_mope.analysis.home import comparable_runs
from ega_mope.analysis.runs import any_sees_future, marked_name, summarise
from ega_mope.runs import Run, list_runs, open_run

SEES, CLEAN, UNKNOWN = "ega-sequence-learned-s0", "ega-causal-learned-s0", "ega-sequence-mope-s0"
WORDS = {SEES: "yes", CLEAN: "no", UNKNOWN: "not known"}

PICKERS = """
from ega_mope import ui
ui.pick_run()
ui.pick_runs()
"""


def with_verdict(run: Path, verdict: str) -> None:
    """Write only what is read of an audit.json to say whether a run sees the future."""
    (run / "audit.json").write_text(json.dumps({"verdict": verdict}))


@pytest.fixture
def listed(tiny_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """One run of each kind, and no others anywhere: as measured, as measured, and cannot tell."""
    for name in WORDS:
        shutil.copytree(tiny_runs / name, tmp_path / "runs" / name)
    with_verdict(tmp_path / "runs" / UNKNOWN, "cannot tell")
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(run_folders, "shipped_folder", lambda: tmp_path / "shipped")
    return [open_run(name) for name in WORDS]


def test_every_table_says_it_in_the_same_words(listed: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    rows = [summarise(run) for run in listed]
    found = configurations(listed)
    [group] = comparable_runs(zip(listed, rows, strict=True), Path())
    on_home = dict(zip(group.table["name"], group.table["sees the future"], strict=True))
    compared = summary_table(found, {one.key: one.example.name for one in found})
    cli.run(["runs"])
    printed = {line.split()[0]: line.rstrip() for line in capsys.readouterr().out.splitlines()}

    assert on_home == WORDS
    assert dict(zip(compared["configuration"], compared["sees the future"], strict=True)) == WORDS
    for name, word in WORDS.items():
        assert printed[name].endswith(f" {word}")
    table = markdown_table(listed).splitlines()[2:]
    assert [line.split("|")[-2].strip() for line in table] == ["**yes**", "no", "not known"]


def test_names_in_curves_and_2x2s_carry_the_mark(listed: list[Run]) -> None:
    assert [marked_name(run) for run in listed] == [
        f"{SEES} · ⚠ sees the future",
        CLEAN,
        f"{UNKNOWN} · not known whether it sees the future",
    ]
    names = labels(configurations(listed)).values()
    assert [name.endswith("⚠") for name in names] == [True, False, False]


def test_one_run_that_sees_the_future_marks_its_configuration_and_its_2x2(
    tmp_path: Path, small_text: Path
) -> None:
    runs = [write_run(tmp_path, f"base-s{seed}", small_text, seed=seed) for seed in (0, 1)]
    assert any_sees_future(runs) is False
    assert not any(family.sees_future for family in find_families(runs))
    with_verdict(tmp_path / "base-s1", "sees the future")

    [one] = configurations(runs)

    assert one.sees_future is True
    assert all(family.sees_future for family in find_families(runs))
    with_verdict(tmp_path / "base-s1", "cannot tell")
    assert any_sees_future(runs) is None


def test_pickers_mark_runs_and_keep_the_marks_out_of_links(listed: list[Run], tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(PICKERS)
    at = AppTest.from_file(str(script), default_timeout=180)
    at.query_params["runs"] = [SEES, CLEAN]

    at.run()

    options = sorted(marked_name(run) for run in listed)
    assert sorted(at.selectbox[0].options) == options
    assert sorted(at.multiselect[0].options) == options
    assert at.multiselect[0].value == [SEES, CLEAN]
    at.multiselect[0].unselect(CLEAN).run()
    assert at.query_params["runs"] in (SEES, [SEES])
    assert at.multiselect[0].value == [SEES]


def test_what_leaves_the_lab_is_marked_too(
    listed: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[str] = []

    class SummaryWriter:
        """Stands in for the optional package."""

        def __init__(self, folder: str) -> None:
            folders.append(Path(folder).name)

        def __enter__(self) -> SummaryWriter:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def add_scalar(self, *record: object) -> None:
            pass

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)

    assert cli.run(["export", SEES, CLEAN, "--tensorboard", str(tmp_path / "events")]) == 0

    assert folders == [f"{SEES}-sees-the-future", CLEAN]


def test_the_2x2_of_a_gate_that_sees_the_future_says_so(
    tiny_runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [run.name for run in list_runs([tiny_runs]) if isinstance(run, Run) and "causal" not in run.name]
    runs = [str(tiny_runs / name) for name in names]

    assert cli.run(["superadditivity", *runs]) == 0
    assert "⚠ sees the future: Its gates compare a token with later ones too" in capsys.readouterr().out
    causal = [str(run.path) for run in list_runs([tiny_runs]) if "sequence" not in run.name]
    assert cli.run(["superadditivity", *causal]) == 0
    assert "sees the future:" not in capsys.readouterr().out
