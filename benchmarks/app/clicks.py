"""Clicks on every page: from the press until the page's script has ended and the page changes no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.app.server import Server, browser, new_page
from benchmarks.measuring import Line, Skipped

if TYPE_CHECKING:
    from playwright.sync_api import Page

TARGET_SECONDS = 0.5
CLICKS, WARM_UP = 5, 1
PAGE_CHANGES = "another page, by its link"
QUIET_MS = [350, 3000]
"""A page whose script has ended and that has not changed for so long has come to rest; not counted in. The second
where the script was not seen running."""

WATCH = """
() => {
  const state = () => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState;
  const bench = window.bench = {start: 0, last: 0, ran: false}
  let before = state();
  const element = node => node.nodeType === 1 ? node : node.parentElement;
  // A table is drawn on a canvas. Within it stands a copy for screen readers, which the table's component
  // writes a fixed 200 ms later.
  const seen = it => it?.closest('[data-testid=stMain]') && !it.closest('canvas');
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (...text) {
    if (seen(this.canvas.parentElement)) bench.last = performance.now();
    return write.apply(this, text);
  };
  new MutationObserver(changes => {
    const is = state();
    if (before === 'running' && is !== 'running') bench.ran = true;
    if (is !== before || changes.some(c => seen(element(c.target))))
      bench.last = performance.now();
    before = is;
  }).observe(document.documentElement, {subtree: true, childList: true, attributes: true, characterData: true});
  for (const kind of ['pointerdown', 'keydown'])
    document.addEventListener(kind, () => {
      bench.start = bench.last = performance.now();
      bench.ran = false;
    }, true);
  // A script that begins and ends within one frame is never seen running: then the longer quiet has to do.
  bench.rests = ([quiet, unseen]) =>
    state() === 'notRunning' && performance.now() - bench.last > (bench.ran ? quiet : unseen);
}
"""

Act = Callable[["Page", int], None]


@dataclass(frozen=True)
class Click:
    """One choice on a page; `act(page, n)` makes it for the n-th time, each time another one."""

    page: str
    what: str
    act: Act

    @property
    def name(self) -> str:
        """The page and what is done there."""
        return f"{self.page.partition('?')[0].replace('_', ' ') or 'Home'}: {self.what}"


def _segment(group: str, *options: str) -> Act:
    return lambda page, n: (
        page.get_by_label(group).get_by_role("radio", name=options[n % len(options)], exact=True).click()
    )


def _option(label: str) -> Act:
    """An option of a select box that is not the chosen one; what is timed is the click on the option."""

    def act(page: Page, n: int) -> None:
        box = page.get_by_role("combobox", name=label, exact=True).first
        # In the middle of the window the list has room: a page that scrolls closes it.
        box.evaluate("box => box.scrollIntoView({block: 'center'})")
        box.click()
        page.get_by_role("option", selected=False).nth(n % 2).click()

    return act


def _slider(name: str) -> Act:
    return lambda page, n: page.get_by_role("slider", name=name).first.press(
        "ArrowRight" if n % 2 else "ArrowLeft"
    )


def _button(name: str) -> Act:
    return lambda page, n: page.get_by_role("button", name=name, exact=True).click()


def _toggle(name: str) -> Act:
    return lambda page, n: page.get_by_text(name, exact=True).click()


CLICKS_MADE = (
    Click("", "sharpness of the gate", _slider("sharpness")),
    Click("Learned_scales", "same axes", _toggle("Same axes for both")),
    Click("Learned_scales", "another training step", _slider("Training step")),
    Click("Correlation_kernels", "a limit", _button("ω = 0")),
    Click("Correlation_kernels?view=on+a+text", "another head", _option("Head of the pair")),
    Click("Energy_gates", "shade by z", _segment("Shade by", "z-energy", "gate")),
    Click("Energy_gates", "another head", _option("Layer and head")),
    Click("Ablation", "bands by period", _segment("Bands of pairs by", "period 2π/ω", "σ")),
    Click("Claims", "those that hold", _segment("Verdict", "holds", "all")),
    Click("Mechanisms", "another head", _option("Head")),
    Click("Compare_runs", "bits", _segment("Scale", "bits", "nats")),
    Click("Superadditivity", "bits", _segment("Scale", "bits", "nats")),
    Click("Train", "another preset", _option("Preset")),
    Click("Causality_audit", "another run", _option("Run")),
)


def clicks(served: Server, root: Path) -> Iterator[Line | Skipped]:
    """A line for each of CLICKS_MADE, and one for changing pages."""
    with browser() as opened:
        page = new_page(opened)
        page.add_init_script(f"document.addEventListener('DOMContentLoaded', {WATCH})")
        for click in CLICKS_MADE:
            yield _or_why_not(click.name, lambda click=click: _clicked(served, page, click))  # type: ignore[misc]
        yield _or_why_not(PAGE_CHANGES, lambda: _page_changes(served, page, root))


def _or_why_not(name: str, measure: Callable[[], Line]) -> Line | Skipped:
    from playwright.sync_api import Error

    try:
        return measure()
    except Error as error:
        return Skipped(name, f"the page did not answer: {str(error).splitlines()[0]}")


def open_page(served: Server, page: Page, name: str) -> None:
    """Open a page of the app and wait until all of it stands."""
    page.goto(f"{served.url}/{name}")
    page.locator("h1").first.wait_for()
    page.wait_for_function("quiet => window.bench?.rests(quiet)", arg=QUIET_MS)


def _clicked(served: Server, page: Page, click: Click) -> Line:
    open_page(served, page, click.page)
    samples, work = [], []
    for n in range(WARM_UP + CLICKS):
        before = served.cpu_seconds()
        click.act(page, n)
        samples.append(_until_rest(page))
        work.append(served.cpu_seconds() - before)
    return _line(click.name, samples, work)


def _page_changes(served: Server, page: Page, root: Path) -> Line:
    """Every page through its link in the sidebar, from Home and back again."""
    names = [path.stem.replace("_", " ") for path in sorted((root / "pages").glob("*.py"))]
    links = page.get_by_test_id("stSidebar")
    samples, work = [], []
    for name in [*names, "Home", *names]:
        before = served.cpu_seconds()
        links.get_by_role("link", name=name, exact=True).click()
        samples.append(_until_rest(page))
        work.append(served.cpu_seconds() - before)
    return _line(PAGE_CHANGES, samples, work, len(names) + 1)


def _until_rest(page: Page) -> float:
    page.wait_for_function("quiet => window.bench.rests(quiet)", arg=QUIET_MS)
    return page.evaluate("(window.bench.last - window.bench.start) / 1000")


def _line(name: str, samples: list[float], work: list[float], warm_up: int = WARM_UP) -> Line:
    return Line(
        name,
        "s",
        TARGET_SECONDS,
        samples[warm_up:],
        "wall",
        warm_up=warm_up,
        more={"warm_up_samples": samples[:warm_up], "server_cpu_seconds": work[warm_up:]},
    )
