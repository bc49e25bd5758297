"""The kernels page in a real browser: pairs picked on the plane, a token pair clicked on the grid."""

from __future__ import annotations

import re

from playwright.sync_api import expect

RUN = "ega-causal-mope-s0"
PLACE = """(plot, [x, y]) => {
    const {xaxis, yaxis} = plot._fullLayout, box = plot.getBoundingClientRect();
    return [box.x + xaxis._offset + xaxis.d2p(x), box.y + yaxis._offset + yaxis.d2p(y)];
}"""
PAIR_7 = """plot => {
    const {trace} = plot.calcdata.find(points => points[0].trace.name == "cluster 1")[0];
    return [trace.x[7], trace.y[7]];
}"""


def drawn(page, alt):
    """The figure whose alternative text begins so, once it is drawn."""
    plot = page.get_by_role("figure", name=re.compile(f"^{alt}")).locator(".js-plotly-plot")
    expect(plot.locator(".scatterlayer .trace").last).to_be_attached()
    page.wait_for_timeout(500)  # the page may still exchange the figure for one of its final width
    expect(plot.locator(".scatterlayer .trace").last).to_be_attached()
    plot.evaluate(
        "plot => plot.scrollIntoView({block: 'center'})"
    )  # waits for no stillness, so nothing can change meanwhile
    return plot


def click(page, plot, at, label):
    """Click the point at these data coordinates, once the figure shows that it is under the mouse."""
    x, y = plot.evaluate(PLACE, at)
    page.mouse.move(x - 30, y - 30)
    page.mouse.move(x, y)
    expect(plot.locator(".hoverlayer .hovertext").first).to_contain_text(label)
    page.mouse.click(x, y)


def legend(page):
    """Names in the legend of the kernels' figure."""
    return drawn(page, "C.τ. up to lag").locator(".legendtext")


def pair(page, query, key):
    """The figure of one pair of tokens."""
    return page.get_by_role("figure", name=f"C(ℓ) of query {query} and key {key} at lags 0 to {key}")


def test_a_pair_picked_on_the_plane_is_the_one_whose_kernel_is_shown(app, page, visit):
    visit(page, f"{app}/Correlation_kernels?run={RUN}")
    expect(legend(page)).to_have_count(6)
    plot = drawn(page, "8 pairs by σ and ω")

    click(page, plot, plot.evaluate(PAIR_7), "pair 7")

    expect(legend(page)).to_have_text(["pair 7", "mean of all"])
    page.get_by_role("button", name="σ → ∞").click()
    expect(legend(page)).to_have_text(["pair 7", "mean of all", "σ → ∞"])


def test_a_click_on_the_grid_chooses_the_pair_and_the_url_keeps_it(app, page, pages, visit):
    visit(page, f"{app}/Correlation_kernels?run={RUN}&view=on+a+text&text=prose")
    plot = drawn(page, "Attention weights")

    click(page, plot, [3, 9], "query 9")

    expect(pair(page, 9, 3)).to_be_visible()
    page.wait_for_url(re.compile(r"query=9"))
    again = visit(pages(420, "dark"), page.url)
    expect(pair(again, 9, 3)).to_be_visible()

    again.get_by_role("spinbutton", name="Query").fill("2")
    again.get_by_role("spinbutton", name="Query").press("Enter")

    expect(pair(again, 2, 2)).to_be_visible()
    again.wait_for_url(re.compile(r"query=2"))


def test_a_baseline_has_no_kernels_but_heads_that_can_be_measured(app, page, visit):
    visit(page, f"{app}/Correlation_kernels?run=dot-learned-s0")
    expect(page.get_by_text("position learned has no learned scales")).to_be_visible()

    page.get_by_role("radio", name="range of heads").click()

    expect(
        page.get_by_role("figure", name=re.compile("^Mean distance that each head of dot-learned-s0"))
    ).to_be_visible()
    page.wait_for_url(re.compile("view=range"))
    page.get_by_role("radio", name="loss by position").click()
    expect(page.get_by_text(re.compile("^Within the training length alone"))).to_be_visible()
    expect(page.get_by_role("figure", name=re.compile("^Validation loss by position"))).to_be_visible()
