"""The ablation page in a real browser: a few windows at once, more on request."""

from __future__ import annotations

import re

from playwright.sync_api import expect


def test_parts_are_ranked_at_once_and_on_more_windows_when_asked_for(app, page, visit):
    visit(page, f"{app}/Ablation?run=ega-causal-mope-s0&text=prose")
    expect(page.get_by_role("figure", name=re.compile("^7 changes ranked by loss"))).to_be_visible()
    expect(page.get_by_text(re.compile(r"on 8 of \d+ validation windows \(evenly spread\)"))).to_be_visible()

    page.get_by_role("radio", name="whole split").click()
    page.get_by_role("button", name="Read whole split").click()

    expect(page.get_by_text(re.compile(r"on (\d+) of \1 validation windows"))).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    page.wait_for_url(re.compile("size=whole"))
