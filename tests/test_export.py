"""Loss records out of the lab: every record once, whole or not at all, and a clear word where it cannot be."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from ega_mope import cli
from ega_mope.runs import open_run


@pytest.fixture(autouse=True)
def _use_tiny_runs(tiny_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))


def test_every_record_is_in_the_table_with_its_runs_settings(tmp_path: Path) -> None:
    names = ["dot-mope-s0", "ega-sequence-mope-s1"]
    # The same run by another way counts once.
    again = str(open_run("dot-mope-s0").path)
    assert cli.run(["export", *names, again, "--csv", str(tmp_path / "out.csv")]) == 0
    table = pd.read_csv(tmp_path / "out.csv")
    for name in names:
        run = open_run(name)
        mine = table[table["run"] == name]
        got = [(row.split, row.step, row.loss_nats) for row in mine.itertuples()]
        assert got == [(r["split"], r["step"], r["loss_nats"]) for r in run.records()]
        assert len(got) == 9
        assert set(mine["seed"]) == {run.seed} and set(mine["path"]) == {str(run.path)}
    ega, dot = (table[table["run"] == name].iloc[0] for name in reversed(names))
    assert (ega["attention"], ega["gate_norm"], ega["position"]) == ("ega", "sequence", "mope")
    assert bool(ega["sees_future"]) and not bool(dot["sees_future"])
    assert dot["attention"] == "dot" and pd.isna(dot["gate_norm"])
    assert table["evaluation"].nunique() == 1 and table["seed"].dtype == int


def test_a_loss_that_was_not_finite_is_an_empty_cell_marked_diverged(tmp_path: Path) -> None:
    source = open_run("dot-learned-s0").path
    broken = tmp_path / "diverged"
    broken.mkdir()
    for file in ("config.json", "tokenizer.json", "status.json"):
        (broken / file).write_bytes((source / file).read_bytes())
    records = [
        {"step": 1, "tokens": 10, "seconds": 0.1, "split": "train", "loss_nats": 3.5, "lr": 0.1,
         "grad_norm": 1.0, "tokens_per_second": 5.0},
        {"step": 2, "tokens": 20, "seconds": 0.2, "split": "train", "loss_nats": None, "lr": 0.1,
         "grad_norm": None, "tokens_per_second": 5.0, "diverged": True},
    ]  # fmt: skip
    (broken / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert cli.run(["export", str(broken), "--csv", str(tmp_path / "out.csv")]) == 0
    table = pd.read_csv(tmp_path / "out.csv")
    assert table["loss_nats"].isna().tolist() == [False, True]
    assert table["diverged"].tolist() == [False, True]


def test_the_old_file_stays_where_an_export_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.csv"
    file.write_text("before")
    assert cli.run(["export", "dot-mope-s0", "no-such-run", "--csv", str(file)]) == 2
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]
    assert "no-such-run" in capsys.readouterr().err


def test_tensorboard_gets_the_finite_losses_by_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, list[tuple[str, float, int]]] = {}

    class SummaryWriter:
        """Stands in for the optional package."""

        def __init__(self, folder: str) -> None:
            self.scalars = written.setdefault(folder, [])

        def __enter__(self) -> "SummaryWriter":
            return self

        def __exit__(self, *error: object) -> None:
            """Nothing to close."""

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            self.scalars.append((tag, value, step))

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    assert cli.run(["export", "dot-mope-s0", "--tensorboard", str(tmp_path)]) == 0
    records = open_run("dot-mope-s0").records()
    assert written == {
        str(tmp_path / "dot-mope-s0"): [
            (f"loss_nats/{r['split']}", r["loss_nats"], r["step"]) for r in records
        ]
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["dot-mope-s0"], "expected --csv FILE or --tensorboard FOLDER, got neither"),
        (["dot-mope-s0", "--csv", "/nowhere/at/all.csv"], "expected a file that can be written"),
        (["dot-mope-s0", "--tensorboard", "events"], "expected the package tensorboard"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert cli.run(["export", *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: export: ") and message in said and said.count("\n") == 1


def test_a_run_without_records_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = open_run("dot-learned-s0").path
    for file in ("config.json", "tokenizer.json", "status.json"):
        (tmp_path / file).write_bytes((source / file).read_bytes())
    assert cli.run(["export", str(tmp_path), "--csv", str(tmp_path / "out.csv")]) == 2
    assert "expected runs with loss records, got none" in capsys.readouterr().err
