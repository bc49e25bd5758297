"""The Compare runs page in a real browser."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from simulated_runs import write_run

from ega_mope.analysis.curves import smooth
from ega_mope.analysis.losses import curve
from ega_mope.runs import Run
from ega_mope.text import store_corpus

FIGURES = "[...document.querySelectorAll('.js-plotly-plot')]"
LOSSES = [(0, 4.0), (3, 3.0), (6, 2.0)]


@pytest.fixture
def runs(tmp_path: Path, small_text: Path) -> Path:
    """Three seeds of a baseline, one of them diverged; a gate that sees the future; the same text in bytes."""
    folder = tmp_path / "runs"
    store_corpus(small_text.read_text(), folder / ".corpora")
    write_run(folder, "cmp-base-s0", small_text, seed=0, validation=LOSSES)
    write_run(folder, "cmp-base-s1", small_text, seed=1, validation=[(0, 4.2), (3, 3.2), (6, 2.2)])
    write_run(folder, "cmp-base-s2", small_text, seed=2, validation=[(0, 4.1), (3, None)], state="diverged")
    future = {"name": "ega", "gate_norm": "sequence"}
    write_run(folder, "cmp-future", small_text, attention=future, validation=LOSSES)
    write_run(folder, "cmp-bytes", small_text, tokenizer="bytes", validation=LOSSES)
    return folder


def traces(page: Page, figure: int, name: str) -> list[dict]:
    """Traces of a figure whose name holds these words."""
    found = page.evaluate(
        f"{FIGURES}[{figure}]._fullData.map(t => ({{name: t.name, y: [...t.y], x: [...t.x], colour: (t.line || {{}}).color}}))"
    )
    return [trace for trace in found if name in trace["name"]]


def test_panels_curves_and_exports(
    runs: Path, serve: Callable[..., str], visit: Callable[[Page, str], Page], page: Page
) -> None:
    base = serve(runs=runs)
    visit(page, f"{base}/Compare_runs?filter=cmp-")

    # One panel an evaluation: characters, bytes.
    titles = page.locator("h3").all_inner_texts()
    assert [title.split(", ")[1] for title in titles] == ["characters", "bytes"]
    expect(page.get_by_text("4 runs in 2 configurations; 1 of them diverged")).to_be_visible()
    expect(page.get_by_text(re.compile("sees the future$")).first).to_be_visible()
    # The mean is drawn only where all three seeds are finite.
    (mean,) = traces(page, 0, "dot + learned")
    assert (mean["x"], mean["y"]) == ([0], pytest.approx([4.1]))
    (future,) = traces(page, 0, "ega sequence + learned ⚠")
    assert future["y"] == [4.0, 3.0, 2.0]

    with page.expect_download() as download:
        page.get_by_role("button", name="All curves as CSV").first.click()
    with Path(download.value.path()).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 + 3 + 2 + 3
    assert {row["run"] for row in rows} == {"cmp-base-s0", "cmp-base-s1", "cmp-base-s2", "cmp-future"}

    # A selection changes no colour; smoothing and scale come from the URL.
    visit(page, f"{base}/Compare_runs?filter=cmp-future&smoothing=0.6&scale=bits")
    (smoothed,) = traces(page, 0, "ega sequence + learned ⚠")
    assert smoothed["colour"] == future["colour"]
    expected = smooth(curve(Run(runs / "cmp-future"), "validation").loss_nats / 0.6931471805599453, 0.6)
    assert smoothed["y"] == pytest.approx(expected.tolist())
    expect(page.get_by_text("loss (bits per character)").first).to_be_visible()


def test_tokenizers_meet_only_in_bits_per_byte(
    runs: Path, serve: Callable[..., str], visit: Callable[[Page, str], Page], page: Page
) -> None:
    visit(page, f"{serve(runs=runs)}/Compare_runs?filter=cmp-")
    page.get_by_role("radio", name="bits per byte").click()
    expect(page.locator("h3")).to_have_count(1)
    expect(page.locator("h3")).to_have_text(re.compile("characters and bytes"))
    expect(page.get_by_text("loss (bits per byte)").first).to_be_visible()
    # Plain ASCII: a byte a character, so the same loss is the same height.
    by_tokenizer = [traces(page, 0, name)[0]["y"] for name in ("ega sequence", "learned, bytes")]
    assert by_tokenizer[0] == pytest.approx(by_tokenizer[1])
