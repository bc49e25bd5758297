"""The second and third tab of Energy gates in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import expect

RUN = "ega-causal-learned-s0"


def test_what_gates_measure_says_a_sentence_a_head_beside_its_controls(app, page, visit):
    visit(page, f"{app}/Energy_gates?run={RUN}&text=verse&draws=50")
    page.get_by_role("tab", name="What do gates measure?").click()
    page.wait_for_url(re.compile("tab="))

    expect(page.get_by_text(re.compile("What the gates of 4 heads go with most"))).to_be_visible()
    expect(page.get_by_text(re.compile("receives in dot-learned-s0")).first).to_be_visible()
    expect(page.get_by_text(re.compile("Layer \\d, head \\d: its gate"))).to_be_visible()
    page.locator(".st-key-correlations .scatterlayer .point").last.wait_for(state="attached")
    expect(page.get_by_text(re.compile("of 4 heads are outside the band of random orders"))).to_be_visible()


def test_a_click_on_a_character_shows_what_it_attends_to(app, page, visit):
    visit(page, f"{app}/Energy_gates?run={RUN}&text=verse&tab=Gate+and+surprise")

    page.locator(".clickable .gates [data-p='57']").click()

    page.wait_for_url(re.compile("query=57"))
    expect(page.locator(".clickable .gates .asked")).to_have_attribute("data-p", "57")
    expect(page.get_by_text(re.compile(" at 57, in layer"))).to_be_visible()
    attended = page.locator(".stHtml .gates .text").first
    expect(attended.locator("[data-p]").last).to_have_attribute("data-p", "57")
