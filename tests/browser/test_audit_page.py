"""The audit page in a real browser: the stored verdict at once, and a run measured live."""

from __future__ import annotations

import re

from playwright.sync_api import expect


def test_a_stored_audit_is_shown_with_its_verdict_place_and_both_pictures(app, page, visit):
    visit(page, f"{app}/Causality_audit?run=ega-sequence-learned-s0")

    verdict = page.get_by_test_id("stAlert")
    expect(verdict).to_contain_text("sees the future")
    expect(verdict).to_contain_text("blocks.0.attention")
    expect(page.get_by_role("figure", name=re.compile("^Loss by position"))).to_be_visible()
    expect(page.get_by_role("figure", name=re.compile("^Largest change of a logit"))).to_be_visible()
    expect(page.get_by_test_id("stMain")).to_contain_text("The loss of its twin ega-causal-learned-s0")


def test_a_run_without_an_audit_says_so_and_is_measured_on_request(app, page, visit):
    visit(page, f"{app}/Causality_audit?run=dot-learned-s1")
    expect(page.get_by_test_id("stAlert")).to_contain_text("was not audited")

    page.get_by_role("button", name="Audit it now").click()

    expect(page.get_by_test_id("stAlert")).to_contain_text("no logit moved at all")
    expect(page.get_by_test_id("stMain")).to_contain_text("this run is the baseline itself")
    expect(page.get_by_role("figure", name=re.compile("^Loss by position"))).to_be_visible()
