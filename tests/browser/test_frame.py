"""The frame in a real browser: every page by deep link on a cold server, navigation, nothing sideways."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import expect

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.stem for path in (ROOT / "pages").glob("*.py"))


@pytest.mark.parametrize("name", ["", *PAGES])
def test_a_deep_link_to_a_cold_server_shows_the_whole_page(name, serve, pages, visit):
    base = serve()

    wide = visit(pages(1280), f"{base}/{name}?no_such_parameter=1")
    title = name.replace("_", " ") or "EGA/MoPE Lab"
    expect(wide.locator("h1")).to_have_text(title)
    expect(wide.get_by_test_id("stException")).to_have_count(0)
    expect(wide.get_by_test_id("stSidebar").get_by_role("link", name="Home")).to_be_visible()

    narrow = visit(pages(420, "dark"), f"{base}/{name}")
    expect(narrow.locator("h1")).to_be_visible()
    expect(narrow.get_by_test_id("stException")).to_have_count(0)
    widths = narrow.get_by_test_id("stMain").evaluate("main => [main.scrollWidth, main.clientWidth]")
    assert widths[0] <= widths[1]


def test_links_keep_the_chosen_run_and_drop_the_rest(app, page, visit):
    visit(page, f"{app}/?run=ega-causal-mope-s1&threshold=1")
    page.get_by_test_id("stSidebar").get_by_role("link").last.click()
    page.wait_for_url(re.compile(r"/[A-Z]\w+\?"))

    assert parse_qs(urlparse(page.url).query) == {"run": ["ega-causal-mope-s1"]}


def test_a_choice_is_written_into_the_url_and_read_back_from_it(app, page, pages, visit):
    visit(page, app)
    page.get_by_role("slider", name=re.compile("threshold")).press("ArrowRight")
    page.wait_for_url(re.compile(r"threshold=0\.1"))

    again = visit(pages(), page.url)

    expect(again.get_by_role("slider", name=re.compile("threshold"))).to_have_value("0.1")
    expect(again.get_by_role("figure", name=re.compile("around z = 0.1"))).to_be_visible()


FAINT = """charts => charts.flatMap(chart => [...chart.querySelectorAll("svg text")]
    .filter(text => text.textContent && getComputedStyle(text).fill !== getComputedStyle(chart).color)
    .map(text => text.textContent))"""


@pytest.mark.parametrize(
    ("name", "kind"),
    [("", ".annotation"), ("Correlation_kernels", ".cbaxis"), ("Superadditivity", ".textpoint")],
    ids=["line with a name", "colour bar", "numbers in the plot"],
)
def test_all_that_is_written_in_a_figure_has_the_colour_of_the_pages_text(name, kind, app, page, visit):
    visit(page, f"{app}/{name}")

    charts = page.locator(".stPlotlyChart")
    expect(charts.locator(f"{kind} text").first).to_be_visible()

    assert charts.evaluate_all(FAINT) == []


def test_a_figures_table_opens_follows_the_figure_and_can_be_taken_home(app, page, visit):
    visit(page, app)
    gate = page.locator(".st-key-gate-behind")
    gate.get_by_text("Table", exact=True).click()
    expect(gate.get_by_test_id("stDataFrame")).to_be_visible()

    page.get_by_role("slider", name=re.compile("threshold")).press("ArrowRight")
    page.wait_for_url(re.compile(r"threshold=0\.1"))
    expect(page.get_by_role("figure", name=re.compile("around z = 0.1"))).to_be_visible()
    with page.expect_download() as taken:
        gate.locator(".st-key-gate-table-csv").get_by_role("button").click()

    rows = [line.split(",") for line in Path(taken.value.path()).read_text().splitlines()]
    at = {round(float(z), 6): float(gate) for z, gate in rows[1:]}
    assert at[0.1] == pytest.approx(0.5)
