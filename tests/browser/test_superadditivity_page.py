"""The Superadditivity page against `ega-mope superadditivity --json`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from simulated_runs import write_cells

from ega_mope import cli

LOSSES = {
    cell: {seed: loss + 0.01 * seed + (0.003 * seed if cell == "11" else 0.0) for seed in range(3)}
    for cell, loss in {"00": 1.60, "10": 1.58, "01": 1.70, "11": 1.64}.items()
}


@pytest.fixture
def runs(tmp_path: Path, small_text: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three seeds of a causal 2×2, one cell of a family with a sequence gate."""
    folder = tmp_path / "runs"
    write_cells(folder, small_text, LOSSES)
    write_cells(folder, small_text, {"10": {0: 1.5}}, gate_norm="sequence")
    monkeypatch.setenv("EGA_MOPE_RUNS", str(folder))
    return folder


def answer(capsys: pytest.CaptureFixture[str], runs: Path, *options: str) -> dict:
    names = [path.name for path in runs.iterdir() if path.name.startswith(tuple(LOSSES))]
    assert cli.run(["superadditivity", *names, "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def shown_means(page: Page) -> list[str]:
    rows = page.get_by_test_id("stTable").locator("tbody tr")
    return [rows.nth(row).locator("td").nth(2).inner_text().strip() for row in range(5)]


def means(document: dict) -> list[str]:
    cells = [document["cells"][cell]["mean"] for cell in ("00", "10", "01", "11")]
    return [f"{value:.4f}" for value in (*cells, document["interaction"]["mean"])]


def test_cells_and_interaction_equal_the_command_lines_answer(
    runs: Path,
    serve: Callable[..., str],
    visit: Callable[[Page, str], Page],
    page: Page,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nats = answer(capsys, runs)
    visit(page, f"{serve(runs=runs)}/Superadditivity?family={nats['family']['key']}")
    assert shown_means(page) == means(nats)
    assert f"interaction {nats['interaction']['mean']:+.4f} nats per character, N = 3" in page.inner_text(
        "h4"
    )
    assert "both together do not beat the baseline" in page.inner_text("h4")
    expect(page.get_by_text("p < 0.05 needs 6 seeds")).to_be_visible()
    bars = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')][0].data"
        ".filter(trace => trace.type === 'bar').map(trace => trace.y[0])"
    )
    ega, mope, interaction = bars
    assert (-ega, -mope) == pytest.approx((nats["gains"]["ega"], nats["gains"]["mope"]))
    assert -interaction == pytest.approx(nats["interaction"]["mean"])

    page.get_by_role("radio", name="perplexity").click()
    page.wait_for_url("**scale=perplexity**")
    expect(page.get_by_text("the sign of an interaction can depend on the scale")).to_be_visible()
    wanted = means(answer(capsys, runs, "--metric", "perplexity"))
    expect(page.get_by_test_id("stTable").locator("tbody tr").first).to_contain_text(wanted[0])
    assert shown_means(page) == wanted

    page.get_by_text("that cannot be computed yet").click()
    expect(page.get_by_text("missing: ").first).to_be_visible()
    expect(page.get_by_text("ega-mope train --attention").first).to_be_visible()
