"""The report: one file that needs nothing else, the same words as Markdown, and FINDINGS as it is generated."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs
from simulated_runs import write_cells

from ega_mope.cli import run
from ega_mope.report import as_html, as_markdown, between_markers, sections
from ega_mope.report.blocks import Commands, Heading, Notes, Section, Table, Text
from ega_mope.runs import list_runs

ROOT = Path(__file__).resolve().parents[1]
FINDINGS = ROOT / "docs" / "FINDINGS.md"

LOSSES = {
    cell: {seed: loss + 0.01 * seed + (0.003 * seed if cell == "11" else 0.0) for seed in range(3)}
    for cell, loss in {"00": 1.60, "10": 1.58, "01": 1.70, "11": 1.64}.items()
}


@pytest.fixture
def folder(tmp_path: Path, small_text: Path) -> Path:
    """Three seeds of a causal 2×2, one of a gate that sees the future, and a folder that is broken."""
    runs = tmp_path / "runs"
    write_cells(runs, small_text, LOSSES)
    write_cells(runs, small_text, {"10": {0: 1.5}}, gate_norm="sequence")
    (runs / "broken <b>").mkdir()
    (runs / "broken <b>" / "config.json").write_text("{")
    return runs


def test_html_is_one_file_that_asks_for_nothing(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert run(["report", "--runs", str(folder), "--html", str(path)]) == 0
    text = path.read_text()
    assert path.stat().st_size < 6e6
    assert text.count("plotly.js v") == 1
    own = text.replace(get_plotlyjs(), "")
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", own), "it would load something"
    # The waterfall, the gains over training and one panel of curves.
    assert len(re.findall(r'<div role="img"', text)) == 3
    for said in (
        "EGA improves on the baseline (causal gate)",
        "+0.0200 nats",
        "interaction +0.0370",
        "N = 3",
    ):
        assert said in text, said
    assert "broken &lt;b&gt;" in text and "broken <b>" not in text


def test_markdown_says_the_same_without_figures(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    assert run(["report", "--runs", str(folder), "--markdown", str(path)]) == 0
    text = path.read_text()
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles == [
        "Claims",
        "EGA and MoPE together: the 2×2s",
        "Losses",
        "Runs",
        "Folders that cannot be read",
    ]
    assert "| EGA improves on the baseline (causal gate) | holds | +0.0200 nats |" in text
    assert re.search(r"\| ega sequence \+ learned ⚠ \| 1 \| 1\.5000 \| – \| – \| – \| 0 \| yes \|", text)
    assert re.search(r"^\| 3 \| \+0\.0200 \[.*\| \+0\.0370 \[", text, re.MULTILINE), "gains over training"
    assert "| 10-causal-s2 | sentences.txt, characters | 2 |" in text


def test_deleting_a_run_changes_the_report(folder: Path) -> None:
    before = as_markdown(sections(list_runs([folder])))
    shutil.rmtree(folder / "11-causal-s2")
    after = as_markdown(sections(list_runs([folder])))
    assert "interaction +0.0370" in before
    assert "interaction +0.0385" in after  # the mean of 0.04 and 0.037


def test_blocks_are_written_and_escaped() -> None:
    blocks = (
        Heading("a < b"),
        Text("holds", strong=True),
        Table(("name", "value"), (("x | y", "1.5"), ("fails", "2")), numbers=("value",)),
        Notes("why", (("one", "because <script>"),)),
        Commands("to decide", ("ega-mope train --set a=1",)),
    )
    made = [Section("Part", blocks)]
    html, markdown = as_html(made), as_markdown(made)
    assert "plotly.js" not in html  # no figure, no script
    assert "<h3>a &lt; b</h3>" in html and "because &lt;script&gt;" in html
    assert '<td class="number">1.5</td>' in html and '<td class="fails">fails</td>' in html
    assert "| x \\| y | 1.5 |\n| fails | 2 |" in markdown
    assert "|---|---:|" in markdown and "    ega-mope train --set a=1" in markdown


def test_between_markers() -> None:
    document = "above\n<!-- findings -->\nold\nlines\n<!-- /findings -->\nbelow\n"
    assert between_markers(document, "findings", r"new \1") == (
        "above\n<!-- findings -->\nnew \\1\n<!-- /findings -->\nbelow\n"
    )
    with pytest.raises(ValueError, match="got 0; add them"):
        between_markers("nothing", "findings", "new")


def test_findings_are_what_the_command_prints_of_the_shipped_runs(capsys: pytest.CaptureFixture[str]) -> None:
    written = re.search(r"<!-- findings -->\n(.*)\n<!-- /findings -->", FINDINGS.read_text(), re.DOTALL)
    assert written
    assert run(["report", "--findings"]) == 0
    generated = capsys.readouterr().out.strip()
    assert re.search(r"the last finished on \d{4}-\d{2}-\d{2}\.", generated)
    assert written[1] == generated, "run `ega-mope report --findings --markdown docs/FINDINGS.md`"


def test_findings_are_written_between_the_markers_of_a_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "FINDINGS.md"
    path.write_text("By hand.\n\n<!-- findings -->\n\n<!-- /findings -->\n")
    assert run(["report", "--findings", "--runs", str(folder), "--markdown", str(path)]) == 0
    text = path.read_text()
    assert text.startswith("By hand.") and "interaction +0.0370" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected --html FILE, --markdown FILE or --findings"),
        (["--findings", "--html", "x.html"], "got --html too"),
        (["--findings", "--markdown", "no-such.md"], "expected a file with the markers"),
        (["--html", "/no/such/folder/x.html"], "expected runs, got none"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "none"
    empty.mkdir()
    assert run(["report", *arguments, *(["--runs", str(empty)] if "--html" in arguments[:1] else [])]) == 2
    assert said in capsys.readouterr().err
