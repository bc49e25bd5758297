"""A text shaded by what each character's gate does, as HTML and for a terminal.

A grapheme cluster (an emoji of several code points, a letter with its marks) is one cell, so that it
is drawn whole: it has the shade of its first code point that the model reads. Neighbours of equal
class share one coloured run. Spaces, tabs and newlines get marks by style sheet alone, so the text
itself stays what was given. No user text reaches the markup unescaped.
"""

from __future__ import annotations

import html
import itertools
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import regex
from numpy.typing import NDArray

from ega_mope.plots.shades import EVERY_SHADE, Shade, style_sheet

CLUSTER = regex.compile(r"\X")
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories shown as their code point: controls, marks that turn the text around, what no font has."""

Says = Callable[[int], list[str]]
"""What hover adds about the character at a position, line by line."""

LARGE = 20_000
"""From this many characters on, hover in a document is by run and not by character."""


@runtime_checkable
class GatesOfText(Protocol):
    """What is shaded; arrays of gates are [layer, head, character], NaN where the model reads nothing."""

    @property
    def characters(self) -> str: ...
    @property
    def read_as(self) -> tuple[str | None, ...]: ...
    @property
    def known(self) -> NDArray[np.bool_]: ...
    @property
    def seen(self) -> NDArray[np.bool_]: ...
    @property
    def few(self) -> NDArray[np.bool_]: ...
    @property
    def window(self) -> NDArray[np.int64]: ...
    @property
    def gate(self) -> NDArray[Any]: ...
    @property
    def z(self) -> NDArray[Any]: ...
    @property
    def weight_change(self) -> NDArray[Any] | None: ...


@dataclass(frozen=True)
class Cell:
    """One grapheme cluster, characters start … stop − 1, and how it is drawn.

    `owner` is the character whose gate it has, −1 where the model reads none of it. `run` are the
    style classes it shares with its neighbours, `own` those of this cell alone.
    """

    start: int
    stop: int
    owner: int
    run: str
    own: str


def clusters(characters: str) -> Iterator[tuple[int, int]]:
    """Start and stop of each grapheme cluster (Unicode's extended ones)."""
    return (found.span() for found in CLUSTER.finditer(characters))


def views(characters: str, size: int) -> list[tuple[int, int]]:
    """The text in views of about `size` characters, start and stop of each; no cluster is cut."""
    edges = [0]
    for _, stop in clusters(characters):
        if stop - edges[-1] >= size:
            edges.append(stop)
    if edges[-1] < len(characters):
        edges.append(len(characters))
    return list(itertools.pairwise(edges))


def cells(
    of: GatesOfText,
    *,
    layer: int,
    head: int,
    shade: str = "gate",
    start: int = 0,
    stop: int | None = None,
    keep_above: float = 0.0,
    asked: int | None = None,
) -> list[Cell]:
    """The clusters of characters start … stop − 1 as they are drawn; ValueError for an unknown shade.

    Those with a gate of at most `keep_above` are drawn without their shade (class `cut`); the one that holds
    the position `asked` is framed.
    """
    chosen = _shade(of, shade)
    values = getattr(of, chosen.attribute)
    if values is None:
        raise ValueError(
            f"shade {shade}: expected a reading with the {chosen.label}, got one made without it; read again with it"
        )
    stop = len(of.characters) if stop is None else stop
    kept = of.gate[layer, head, start:stop] > keep_above
    classes = chosen.classify(values[layer, head, start:stop])
    known = of.known[start:stop]
    latest = np.maximum.accumulate(of.window[:stop])
    new_window = np.diff(latest, prepend=latest[:1]) > 0
    found = []
    for begin, end in clusters(of.characters[start:stop]):
        first = next((place for place in range(begin, end) if known[place]), None)
        own = _look(of.characters[start + begin : start + end])
        own += " asked" if asked is not None and begin <= asked - start < end else ""
        if first is None:
            found.append(Cell(start + begin, start + end, -1, "unread", own.strip()))
            continue
        run = f"{chosen.prefix}{classes[first]}" if classes[first] >= 0 else "none"
        run += " few" if of.few[start + first] else ""
        run += "" if kept[first] else " cut"
        own += "" if of.seen[start + first] else " new"
        own += " edge" if new_window[start + begin : start + end].any() else ""
        found.append(Cell(start + begin, start + end, start + first, run, own.strip()))
    return found


def shaded_html(
    of: GatesOfText,
    *,
    layer: int,
    head: int,
    shade: str = "gate",
    start: int = 0,
    stop: int | None = None,
    keep_above: float = 0.0,
    by_run: bool = False,
    asked: int | None = None,
    says: Says | None = None,
) -> str:
    """One style block, the key to the shades, and the text; layer and head count from 0.

    Hover says a character's glyph, code point, position, gate and weight change in every head; with
    `by_run` just a run's positions and gates, for long texts. Each cell has its first character's
    position in `data-p`, each run its class (`g0` … `g15` for gates: gate · 16, rounded down). The
    character at `asked` is framed; `says` adds lines to a character's hover.
    """
    drawn = cells(
        of, layer=layer, head=head, shade=shade, start=start, stop=stop, keep_above=keep_above, asked=asked
    )
    runs = []
    for classes, group in itertools.groupby(drawn, key=lambda cell: cell.run):
        alike = list(group)
        title = f' title="{_escape(_run_title(of, alike, layer, head))}"' if by_run else ""
        inner = "".join(
            _cell_html(of, cell, "" if by_run else _title(of, cell, layer, head, says)) for cell in alike
        )
        runs.append(f'<span class="{classes}"{title}>{inner}</span>')
    chosen = _shade(of, shade)
    return (
        f'{style_sheet(chosen)}<div class="gates">{_key(chosen)}'
        f'<div class="text" dir="auto">{"".join(runs)}</div></div>'
    )


def html_document(
    of: GatesOfText,
    *,
    title: str,
    notes: list[str],
    layer: int,
    head: int,
    shade: str,
    keep_above: float = 0.0,
) -> str:
    """The whole text as one file that needs nothing else, light or dark as the reader's system is."""
    lines = "".join(f"<p>{_escape(note)}</p>" for note in notes)
    body = shaded_html(
        of,
        layer=layer,
        head=head,
        shade=shade,
        keep_above=keep_above,
        by_run=len(of.characters) > LARGE,
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_escape(title)}</title><style>:root{{color-scheme:light dark}}"
        "body{margin:2rem auto;max-width:70rem;padding:0 1rem;font:1rem/1.5 sans-serif;"
        "background:light-dark(#ffffff,#12171d);color:light-dark(#1c2733,#e6ebf0)}</style></head>"
        f"<body><h1>{_escape(title)}</h1>{lines}{body}</body></html>\n"
    )


def shaded_ansi(
    of: GatesOfText, *, layer: int, head: int, shade: str = "gate", keep_above: float = 0.0
) -> str:
    """The text for a terminal with 24-bit colour; unread characters red and struck out, few-to-compare underlined.

    Control characters are shown as pictures, so that no text can steer the terminal.
    """
    chosen = _shade(of, shade)
    paint = {f"{chosen.prefix}{k}": _ansi(*pair) for k, pair in enumerate(chosen.colours("dark"))}
    paint |= {"unread": "\x1b[31;9m", "few": "\x1b[4m", "cut": "\x1b[0m", "none": ""}
    parts = []
    drawn = cells(of, layer=layer, head=head, shade=shade, keep_above=keep_above)
    for classes, group in itertools.groupby(drawn, key=lambda cell: cell.run):
        begin = "".join(paint[name] for name in classes.split())
        text = "".join(_printable(of.characters[cell.start : cell.stop]) for cell in group)
        lines = [f"{begin}{line}\x1b[0m" if line else "" for line in text.split("\n")]
        parts.append("\n".join(lines))
    scale = "".join(f"{paint[f'{chosen.prefix}{k}']} \x1b[0m" for k in range(chosen.classes))
    low, middle, high = chosen.ends
    key = f"{chosen.label}: {low} {scale} {high}, middle {middle}"
    return f"{''.join(parts)}\n\n{key}; \x1b[4mfew to compare with\x1b[0m, \x1b[31;9mnot read\x1b[0m\n"


def _shade(of: GatesOfText, name: str) -> Shade:
    """The shade of that name, if the reading holds what it shows."""
    there = dir(of)  # not hasattr, which would compute what is only asked for
    able = [known for known, shade in EVERY_SHADE.items() if shade.attribute in there]
    if name not in able:
        raise ValueError(f"shade: expected one of ({', '.join(able)}), got {name!r}; choose one of them")
    return EVERY_SHADE[name]


def _look(text: str) -> str:
    """The style class of a cell that has no ink of its own."""
    if len(text) > 1:
        return ""
    if unicodedata.category(text) == "Zs":
        return "sp"
    return {"\n": "nl", "\t": "tab"}.get(text, "code" if unicodedata.category(text) in INVISIBLE else "")


def _cell_html(of: GatesOfText, cell: Cell, title: str) -> str:
    text = of.characters[cell.start : cell.stop]
    if not title and not cell.own:
        return _escape(text)
    attributes = f' data-p="{cell.start}"' + (f' class="{cell.own}"' if cell.own else "")
    if "code" in cell.own.split():
        attributes += f' data-code="{_code_point(text)}"'
        text = ""
    attributes += f' title="{_escape(title)}"' if title else ""
    return f"<span{attributes}>{_escape(text)}</span>"


def _title(of: GatesOfText, cell: Cell, layer: int, head: int, says: Says | None) -> str:
    """What hover says of one cell: a line a code point, then every head for the one it is shaded by."""
    lines = []
    for place in range(cell.start, cell.stop):
        character, read_as = of.characters[place], of.read_as[place]
        glyph = character if _look(character) == "" else unicodedata.name(character, "control character")
        lines.append(f"{glyph}  {_code_point(character)}, position {place}")
        if not of.known[place]:
            lines.append("not read by this run: no gate")
            continue
        if read_as != character:
            lines.append(f"read as {read_as!r}")
        if not of.seen[place]:
            lines.append("holds bytes never met in training")
        if of.few[place]:
            lines.append("too few tokens to compare with")
        value = _value(of, layer, head, place)
        lines.append(f"layer {layer + 1}, head {head + 1}: {value}, z-energy {of.z[layer, head, place]:+.2f}")
        lines += says(place) if says else []
    if cell.owner >= 0:
        lines.append("every head: gate and weight change")
        lines += [f"layer {number + 1}: {_row(of, number, cell.owner)}" for number in range(of.gate.shape[0])]
    return "\n".join(lines)


def _value(of: GatesOfText, layer: int, head: int, place: int) -> str:
    change = of.weight_change
    value = f"gate {of.gate[layer, head, place]:.3f}"
    if change is None:
        return value
    amount = change[layer, head, place]
    if np.isnan(amount):
        return f"{value}, weight change not computable (no attention on it before gating)"
    return f"{value}, weight change ×{amount:.3g}"


def _row(of: GatesOfText, layer: int, place: int) -> str:
    gates = [f"{gate:.2f}" for gate in of.gate[layer, :, place]]
    if of.weight_change is None:
        return "  ".join(gates)
    changes = of.weight_change[layer, :, place]
    return "  ".join(f"{gate} ×{change:.2g}" for gate, change in zip(gates, changes, strict=True))


def _run_title(of: GatesOfText, run: list[Cell], layer: int, head: int) -> str:
    first, last = run[0].start, run[-1].stop - 1
    where = f"position {first}" if first == last else f"positions {first} to {last}"
    owners = [cell.owner for cell in run if cell.owner >= 0]
    if not owners:
        return f"{where}: not read by this run"
    gates = of.gate[layer, head, owners]
    return f"{where}: gates {gates.min():.3f} to {gates.max():.3f}"


def _key(shade: Shade) -> str:
    low, middle, high = shade.ends
    swatches = "".join(f'<i class="{shade.prefix}{number}"></i>' for number in range(shade.classes))
    marks = {
        "few": "16 tokens or fewer to compare with",
        "edge": "a new window begins",
        "unread": "not read by this run",
        "new": "bytes never met in training",
    }
    shown = "".join(
        f'<span><i class="{name}">{"" if name == "edge" else "a"}</i>{text}</span>'
        for name, text in marks.items()
    )
    scale = f"<span>{shade.label} {low}<span>{swatches}</span>{high}, middle {middle}</span>"
    return f'<div class="key">{scale}{shown}</div>'


def _ansi(background: str, foreground: str) -> str:
    def channels(colour: str) -> str:
        return ";".join(str(int(colour[place : place + 2], 16)) for place in (1, 3, 5))

    return f"\x1b[48;2;{channels(background)};38;2;{channels(foreground)}m"


def _printable(text: str) -> str:
    """For a terminal: newlines kept after a mark, whatever could steer it as its code point."""
    if text == "\n":
        return "↵\n"
    return f"<{_code_point(text)}>" if _look(text) in ("code", "tab") else text


def _code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


def _escape(text: str) -> str:
    # An unpaired surrogate cannot be written to any file.
    return html.escape(text.encode("utf-8", "replace").decode(), quote=True)
