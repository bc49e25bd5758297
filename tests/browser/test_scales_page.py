"""The scales page in a real browser, held against what the command line says of the same run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from playwright.sync_api import expect

RUN = "ega-causal-mope-s1"
PLACE = """(plot, [sigma, omega]) => {
    const {xaxis, yaxis} = plot._fullLayout, box = plot.getBoundingClientRect();
    return [box.x + xaxis._offset + xaxis.d2p(sigma), box.y + yaxis._offset + yaxis.d2p(omega)];
}"""


@pytest.fixture
def answer(tiny_runs):
    """`ega-mope scales --json` of RUN."""
    done = subprocess.run(
        [sys.executable, "-m", "ega_mope", "scales", RUN, "--json"],
        env=os.environ | {"EGA_MOPE_RUNS": str(tiny_runs), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def hover(page, plot, row):
    """What hovering a pair says, line by line."""
    x, y = plot.evaluate(PLACE, [row["sigma"], row["omega"]])
    page.mouse.move(x - 30, y - 30)
    page.mouse.move(x, y)
    label = plot.locator(".hoverlayer .hovertext text").first
    expect(label).to_contain_text(f"pair {row['pair']}")
    return label.locator("tspan").all_text_contents()


def test_hovering_a_pair_says_what_the_command_line_says(app, page, visit, answer):
    visit(page, f"{app}/Learned_scales?run={RUN}&same=false")
    plot = page.locator(".js-plotly-plot").first
    plot.scroll_into_view_if_needed()
    expect(plot.locator(".scatterlayer .points path").last).to_be_visible()

    for row in (answer["pairs"][0], answer["pairs"][3], answer["pairs"][-1]):
        said = hover(page, plot, row)

        assert said[0] == f"pair {row['pair']}"
        assert said[1] == f"ω {row['omega']:.4f} rad/token"
        assert said[2] == f"period {row['period']:.3f} tokens"
        assert said[3] == f"σ {row['sigma']:.3f} tokens"
        assert said[4] == f"reach {row['reach_tokens']:.3f} tokens (1 % left)"
        assert said[5] == f"band {row['band']}"
        assert said[6] == f"cluster {row['cluster']}"
        moves = [float(number) for number in re.findall(r"[+-]\d\.\d{4}", said[7])]
        assert len(moves) == 2


def test_the_step_slider_goes_back_to_the_start_and_the_url_keeps_it(app, page, pages, visit):
    visit(page, f"{app}/Learned_scales?run={RUN}&beside=none")
    expect(page.get_by_text("admissibility project; step 6")).to_be_visible()

    page.get_by_role("slider", name="Training step").press("Home")

    expect(page.get_by_text("step 0. The largest move of any ω or σ is 0 log units")).to_be_visible()
    page.wait_for_url(re.compile("step=0"))
    again = visit(pages(420, "dark"), page.url)
    expect(again.get_by_text("admissibility project; step 0")).to_be_visible()


def test_a_run_without_scales_offers_the_nearest_that_has_them(app, page, visit):
    visit(page, f"{app}/Learned_scales?run=ega-causal-learned-s1")
    expect(page.get_by_text("position learned has no learned scales")).to_be_visible()

    page.get_by_role("button", name=re.compile(f"Open {RUN}")).click()

    expect(page.get_by_text("Are there clusters?")).to_be_visible()
