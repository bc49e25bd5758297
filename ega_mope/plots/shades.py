"""Shades for text: a value becomes one of at most 16 classes, a class a background that carries its text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

Mode = Literal["light", "dark"]
BLACK, WHITE = "#000000", "#ffffff"


def _itself(values: NDArray[Any]) -> NDArray[Any]:
    return values


@dataclass(frozen=True, kw_only=True)
class Shade:
    """One way of shading a text.

    A value v falls into class floor(classes · (f(v) − low)/(high − low)), kept within 0 … classes − 1,
    where f is `transform`. The colour of class k is `prefix`k in the page's style sheet; the palettes
    run from the lowest class to the highest, the near end close to the page's own background.
    """

    label: str
    attribute: str
    prefix: str
    classes: int
    low: float
    high: float
    transform: Callable[[NDArray[Any]], NDArray[Any]]
    ends: tuple[str, str, str]
    light: tuple[str, ...]
    dark: tuple[str, ...]

    def classify(self, values: Float[np.ndarray, " character"]) -> NDArray[np.int64]:
        """The class of each value; −1 for NaN."""
        known = ~np.isnan(values)
        shown = self.transform(np.where(known, values, 1.0).astype(np.float64))
        place = np.floor((shown - self.low) / (self.high - self.low) * self.classes)
        return np.where(known, np.clip(place, 0, self.classes - 1).astype(np.int64), -1)

    def backgrounds(self, mode: Mode) -> list[str]:
        """The background of each class, `#rrggbb`."""
        anchors = np.array([_rgb(colour) for colour in self.palette(mode)], float)
        places = np.linspace(0, len(anchors) - 1, self.classes)
        channels = [np.interp(places, np.arange(len(anchors)), channel) for channel in anchors.T]
        return [
            f"#{int(r + 0.5):02x}{int(g + 0.5):02x}{int(b + 0.5):02x}"
            for r, g, b in zip(*channels, strict=True)
        ]

    def palette(self, mode: Mode) -> tuple[str, ...]:
        """The anchor colours, evenly spaced from `low` to `high`."""
        return {"light": self.light, "dark": self.dark}[mode]

    def colours(self, mode: Mode) -> list[tuple[str, str]]:
        """Background and text colour of each class."""
        return [(background, ink(background)) for background in self.backgrounds(mode)]


def _log2(values: NDArray[Any]) -> NDArray[Any]:
    return np.log2(np.maximum(values, 2.0**-30))


def _log10(values: NDArray[Any]) -> NDArray[Any]:
    return np.log10(np.maximum(values, 1e-9))


Palettes = dict[str, tuple[str, ...]]
BLUES: Palettes = {
    "light": ("#f3f7fb", "#c6deef", "#86bbdf", "#3f8cc4", "#0b4f8c"),
    "dark": ("#18202a", "#1c3a56", "#285f8e", "#4a97cf", "#aadeff"),
}
BROWNS: Palettes = {
    "light": ("#fcf6ee", "#f5dab8", "#e8b070", "#c9782a", "#7d4308"),
    "dark": ("#211c16", "#463013", "#7a521a", "#bf8438", "#ffd296"),
}
GREENS: Palettes = {
    "light": ("#f3f8f4", "#c5e5d2", "#7fc6a1", "#2f9168", "#08573a"),
    "dark": ("#16211c", "#1a4233", "#226f53", "#42ad84", "#a3f0cf"),
}
TEAL_TO_PURPLE: Palettes = {
    "light": ("#01665e", "#7ecabd", "#f4f4f1", "#c9a6d8", "#762a83"),
    "dark": ("#62dccb", "#1f6f66", "#1e252d", "#71478a", "#e4b0f4"),
}
BLUE_TO_BROWN: Palettes = {
    "light": ("#1b5fa6", "#8fc3e3", "#f4f4f1", "#fbbd74", "#a84f04"),
    "dark": ("#86caff", "#28628f", "#1e252d", "#855518", "#ffbb63"),
}
BROWN_TO_BLUE: Palettes = {mode: colours[::-1] for mode, colours in BLUE_TO_BROWN.items()}


def _share(label: str, attribute: str, prefix: str, ends: tuple[str, str, str], palettes: Palettes) -> Shade:
    """A shade in one hue for what lies between 0 and 1."""
    return Shade(
        label=label, attribute=attribute, prefix=prefix, classes=16, low=0.0, high=1.0, transform=_itself,
        ends=ends, **palettes,
    )  # fmt: skip


def _around(
    label: str,
    attribute: str,
    prefix: str,
    reach: float,
    ends: tuple[str, str, str],
    palettes: Palettes,
    transform: Callable[[NDArray[Any]], NDArray[Any]] = _itself,
) -> Shade:
    """A diverging shade of −reach … reach after the transform."""
    return Shade(
        label=label, attribute=attribute, prefix=prefix, classes=15, low=-reach, high=reach, transform=transform,
        ends=ends, **palettes,
    )  # fmt: skip


def _attention(label: str, attribute: str) -> Shade:
    """Attention of one query by decade: most keys get little, and a thousandth is still told from none."""
    return Shade(
        label=label, attribute=attribute, prefix="a", classes=12, low=-3.0, high=0.0, transform=_log10,
        ends=("0.001 or less", "0.03", "1"), **GREENS,
    )  # fmt: skip


TIMES = ("×¼ or less", "×1", "×4 or more")
SHADES = {
    "gate": _share("gate", "gate", "g", ("0 closed", "½", "1 open"), BLUES),
    "z": _around("z-energy", "z", "z", 3.0, ("−3 or less", "0", "+3 or more"), TEAL_TO_PURPLE),
    "change": _around("weight change", "weight_change", "w", 2.0, TIMES, BLUE_TO_BROWN, _log2),
}
"""Of a reading of gates. Gates in one hue; z-energy and weight change diverge, around 0 and around 1×."""

RANKS = ("lowest here", "middle", "highest here")
SURPRISE = {
    "gate rank": _share("gate, by rank", "gate_rank", "r", RANKS, BLUES),
    "surprisal": _share("surprisal, by rank", "surprisal_rank", "s", RANKS, BROWNS),
    "difference": _around(
        "gate rank − surprisal rank",
        "difference",
        "d",
        1.0,
        ("−1 surprising, gate shut", "0", "1 gate open, no surprise"),
        BROWN_TO_BLUE,
    ),
}
"""Of a reading of gates beside surprisal, both by their rank in the text."""

ATTENTION = {
    "without": _attention("attention without the gate", "weight"),
    "with": _attention("attention with the gate", "share"),
    "gating": _around("with / without", "gating", "q", 2.0, TIMES, BLUE_TO_BROWN, _log2),
}
"""Of what one character attends to."""

EVERY_SHADE = SHADES | SURPRISE | ATTENTION


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two `#rrggbb` colours, 1 to 21."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """WCAG 2 relative luminance of `#rrggbb`, 0 to 1."""
    channels = np.array(_rgb(colour)) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


def ink(background: str) -> str:
    """Black or white, whichever reads better: one of the two always has a contrast above 4.5."""
    return max((BLACK, WHITE), key=lambda colour: contrast(colour, background))


def colour_scale(shade: Shade, mode: Mode) -> list[tuple[float, str]]:
    """The same classes as a plotly colour scale over low … high: steps, not a ramp."""
    scale: list[tuple[float, str]] = []
    for number, colour in enumerate(shade.backgrounds(mode)):
        scale += [(number / shade.classes, colour), ((number + 1) / shade.classes, colour)]
    return scale


def style_sheet(shade: Shade) -> str:
    """The one style block of a shaded text; everything in it is inside `.gates`."""
    light, dark = shade.colours("light"), shade.colours("dark")
    rules = [
        f".gates .{shade.prefix}{number}{{{_both('background-color', a[0], b[0])}{_both('color', a[1], b[1])}}}"
        for number, (a, b) in enumerate(zip(light, dark, strict=True))
    ]
    return f"<style>{STRUCTURE}{''.join(rules)}{CUT}</style>"


def _both(name: str, light: str, dark: str) -> str:
    # The first stands where a browser does not know light-dark().
    return f"{name}:{light};{name}:light-dark({light},{dark});"


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


UNREAD_INK: dict[Mode, str] = {"light": "#a3220b", "dark": "#ff9b85"}

STRUCTURE = (
    ".gates{font:1rem/2 ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}"
    ".gates .text{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:plaintext;tab-size:4}"
    ".gates .text>span{padding:.15em 0 .3em;box-decoration-break:clone;-webkit-box-decoration-break:clone}"
    ".gates .sp,.gates .tab{position:relative}"
    ".gates .sp::before{content:'·';position:absolute;inset-inline-start:0;width:100%;text-align:center;opacity:.55}"
    ".gates .tab::before{content:'→';position:absolute;inset-inline-start:.1em;opacity:.55}"
    ".gates .nl::before{content:'↵';opacity:.55}"
    ".gates .code::before{content:attr(data-code);font-size:.65em;border:1px solid;border-radius:3px;padding:0 2px}"
    ".gates .few{background-image:repeating-linear-gradient(135deg,currentColor 0 1px,transparent 1px 4px);"
    "background-size:100% .3em;background-position:0 100%;background-repeat:no-repeat}"
    ".gates .asked{outline:2px solid #d55e00;outline-offset:-1px}"
    ".gates .edge{box-shadow:-3px 0 0 #d55e00}"
    ".gates .new{text-decoration:underline dotted 1px;text-underline-offset:.2em}"
    f".gates .unread{{{_both('color', UNREAD_INK['light'], UNREAD_INK['dark'])}"
    "outline:1px dashed currentColor;outline-offset:-3px}"
    ".gates .key{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;align-items:center;font:.8rem/1.6 sans-serif;"
    "margin-bottom:.6rem}"
    ".gates .key>span{display:inline-flex;align-items:center;gap:.35rem}"
    ".gates .key i{display:inline-block;min-width:.8rem;height:1.1rem;font-style:normal;text-align:center}"
    ".gates .key .edge{min-width:.3rem;margin-left:3px}"
    ".gates .key>span>span{white-space:nowrap}"
    "@media (max-width:640px){.gates .key>span>span i{min-width:.5rem}}"
)
CUT = ".gates .cut{background:none;color:inherit;opacity:.75}"
