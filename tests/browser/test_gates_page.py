"""The gates page in a real browser, held against what the command line says of the same text."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import regex
from playwright.sync_api import expect

RUN = "ega-causal-learned-s0"
FAMILY = "👩\u200d👩\u200d👧"
TEXT = (
    "The <b>quick</b> brown fox’s “friend” jumps over\n"
    f"{FAMILY} 한국어 the <img src=x onerror=alert(1)> lazy dog & 'judge'; e\u0301 é\tend "
    + "my box of liquor "
    * 4
)
PAINTED = """text => [...text.querySelectorAll("[data-p]")].map(cell => ({
    at: Number(cell.dataset.p), text: cell.textContent, title: cell.title,
    run: [...cell.parentElement.classList], own: [...cell.classList],
    background: getComputedStyle(cell.parentElement).backgroundColor,
}))"""


@pytest.fixture
def answer(tiny_runs):
    """`ega-mope gates --json` for a run and TEXT."""

    def ask(run):
        done = subprocess.run(
            [sys.executable, "-m", "ega_mope", "gates", run, "--text", TEXT, "--json", "--device", "cpu"],
            env=os.environ | {"EGA_MOPE_RUNS": str(tiny_runs), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    return ask


def paste(page, text):
    """Put a text into the box and wait until it is drawn."""
    page.get_by_label("Your text").fill(text)
    page.get_by_label("Your text").press("Control+Enter")
    expect(page.locator(".gates .text")).to_contain_text(text[:12])


def test_each_characters_class_is_its_quantised_gate_and_nothing_is_injected(app, page, visit, answer):
    said = answer(RUN)
    visit(page, f"{app}/Energy_gates?run={RUN}&text=paste&head=L2+H1")
    dialogs: list[str] = []

    def close(dialog):
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", close)

    paste(page, TEXT)

    text = page.locator(".gates .text")
    cells = text.evaluate(PAINTED)
    spans = [found.span() for found in regex.finditer(r"\X", TEXT)]
    assert [(cell["at"], cell["text"]) for cell in cells] == [
        (start, TEXT[start:stop]) for start, stop in spans
    ]
    gates = said["gates"][1][0]
    painted: dict[str, str] = {}
    for cell, (start, stop) in zip(cells, spans, strict=True):
        known = [gate for gate in gates[start:stop] if gate is not None]
        expected = f"g{min(15, int(16 * known[0]))}" if known else "unread"
        assert cell["run"][0] == expected, cell
        assert painted.setdefault(expected, cell["background"]) == cell["background"]
        assert f"U+{ord(TEXT[start]):04X}, position {start}" in cell["title"]
        if known:
            change = next(value for value in said["weight_change"][1][0][start:stop] if value is not None)
            assert f"layer 2, head 1: gate {known[0]:.3f}, weight change ×{change:.3g}" in cell["title"]
    assert len(set(painted.values())) == len(painted) > 5
    assert text.evaluate("text => [...new Set([...text.querySelectorAll('*')].map(e => e.tagName))]") == [
        "SPAN"
    ]
    assert dialogs == [] and page.locator("img[src=x]").count() == 0

    few = {cell["at"] for cell in cells if "few" in cell["run"]}
    assert few == {token["position"] for token in said["tokens"] if token["few_to_compare_with"]}
    unread = sum(row["count"] for row in said["unknown"])
    share = (
        f"{unread:,} of {len(TEXT):,} characters ({100 * unread / len(TEXT):.1f} %) are not read by this run"
    )
    expect(page.get_by_text(share)).to_be_visible()
    expect(
        page.get_by_text(f"{len(TEXT) - unread:,} of {len(TEXT) - unread:,} characters kept")
    ).to_be_visible()


def test_it_opens_on_the_widest_head_and_the_url_brings_the_same_screen_back(app, page, pages, visit):
    visit(page, f"{app}/Energy_gates?run={RUN}&text=prose")
    expect(page.locator(".gates .text")).to_contain_text("The ferry left the quay")
    where = page.get_by_text(re.compile(r"Layer \d, head \d, characters 0 to"))
    opened = where.inner_text()

    slider = page.get_by_role("slider", name="Keep above g =")
    for _ in range(3):
        slider.press("ArrowRight")
    page.wait_for_url(re.compile(r"keep=0\.03"))
    page.get_by_text("weight change", exact=True).click()
    page.wait_for_url(re.compile("shade=weight"))
    expect(page.locator(".gates .text [class^=w]").first).to_be_visible()

    again = visit(pages(420, "dark"), page.url)
    expect(again.get_by_text(re.compile(r"Layer \d, head \d, characters 0 to"))).to_have_text(opened)
    expect(again.get_by_role("slider", name="Keep above g =")).to_have_value("0.03")
    expect(again.locator(".gates .text [class^=w]").first).to_be_visible()
    shades = again.locator(".gates .key [class^=w]")
    tops = shades.evaluate_all("all => all.map(shade => shade.getBoundingClientRect().top)")
    assert len(tops) > 8 and len(set(tops)) == 1, "on a phone too the scale is one row"


def test_a_run_without_gates_offers_one_that_has_them(app, page, visit):
    visit(page, f"{app}/Energy_gates?run=dot-learned-s1")
    expect(page.get_by_text("attention dot has no gates")).to_be_visible()

    page.get_by_role("button", name=re.compile("Open ega-.*-s1")).click()

    expect(page.locator(".gates .text")).to_contain_text("Who knocks so late")


def test_a_sequence_run_says_that_its_gates_see_the_future(app, page, visit):
    visit(page, f"{app}/Energy_gates?run=ega-sequence-learned-s0")

    expect(
        page.get_by_text("a gate depends on every token of its window of 32, later ones included")
    ).to_be_visible()


def test_an_empty_and_an_overlong_paste_are_answered(app, page, visit):
    visit(page, f"{app}/Energy_gates?run={RUN}&text=paste")
    expect(page.get_by_text("Paste or upload a text")).to_be_visible()

    page.get_by_label("Your text").fill("fox " * 5_001)
    page.get_by_label("Your text").press("Control+Enter")

    expect(page.get_by_text("expected at most 20,000 characters in the box, got 20,004")).to_be_visible()


def test_a_long_upload_is_read_in_views(app, page, visit):
    text = "".join(f"line {number} of the quick brown fox\n" for number in range(200))
    visit(page, f"{app}/Energy_gates?run={RUN}&text=upload&view=2")
    page.locator("input[type=file]").set_input_files(
        {"name": "fox.txt", "mimeType": "text/plain", "buffer": text.replace("\n", "\r\n").encode()}
    )

    expect(page.get_by_text(f"characters 2,000 to 3,999 of {len(text):,}")).to_be_visible()
    shown = page.locator(".gates .text").evaluate("text => text.textContent")
    assert shown == text[2_000:4_000]
