"""Shaded text: classes, contrast, nothing injected, clusters whole, marks for what must be marked."""

from __future__ import annotations

import dataclasses
import html
import re
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from ega_mope.plots.gates import overview, thumbnails
from ega_mope.plots.shades import EVERY_SHADE, SHADES, Mode, contrast, luminance
from ega_mope.plots.text import html_document, shaded_ansi, shaded_html, views

FAMILY = "👩\u200d👩\u200d👧"
TRICKY = st.text(
    st.one_of(
        st.sampled_from("<>&\"'`/=ab \n\t\u00a0\u0301\u200d\u202e\ufeff👩🏽🇰🇷한\x00\x1b\u2028\u0645\u0646"),
        st.characters(),
    ),
    min_size=1,
    max_size=40,
)


@dataclass(frozen=True)
class Planted:
    """A reading with given gates; `z` and `weight_change` follow from them."""

    characters: str
    gate: np.ndarray
    few: np.ndarray
    window: np.ndarray
    seen: np.ndarray
    read_as: tuple[str | None, ...]
    changes: bool = True

    @cached_property
    def known(self):
        return self.window >= 0

    @cached_property
    def z(self):
        return 6 * self.gate - 3

    @cached_property
    def weight_change(self):
        return 4 ** (2 * self.gate - 1) if self.changes else None


def planted(text, gate, *, few=(), window=None, unseen=(), changes=True):
    """One head whose gate for each character is given; None where the model reads nothing."""
    known = [value is not None for value in gate]
    return Planted(
        characters=text,
        gate=np.array([[[np.nan if value is None else value for value in gate]]], float),
        few=np.array([place in few for place in range(len(text))]),
        window=np.array([(0 if window is None else window[i]) if known[i] else -1 for i in range(len(text))]),
        seen=np.array([known[i] and i not in unseen for i in range(len(text))]),
        read_as=tuple(c if there else None for c, there in zip(text, known, strict=True)),
        changes=changes,
    )


class Drawn(HTMLParser):
    """What a browser makes of the markup: elements, and the cells of the text with their run's classes."""

    def __init__(self, markup):
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.cells: list[dict[str, Any]] = []
        self.open: list[tuple[str, dict[str, Any]]] = []
        self.attributes: set[str] = set()
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag == "meta":
            return
        attributes = dict(attrs)
        self.tags.append(tag)
        self.attributes |= set(attributes)
        self.open.append((tag, attributes))
        if "data-p" in attributes:
            run = self.open[-2][1]["class"].split()
            own = (attributes.get("class") or "").split()
            self.cells.append(
                {"at": int(attributes["data-p"]), "run": run, "own": own, "text": "", **attributes}
            )

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and "data-p" in self.open[-1][1]:
            self.cells[-1]["text"] += data


def draw(reading, **options):
    return Drawn(shaded_html(reading, layer=0, head=0, **options))


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("name", EVERY_SHADE)
def test_every_class_carries_its_text_at_the_wcag_contrast(name, mode):
    colours = EVERY_SHADE[name].colours(mode)

    assert len(colours) == EVERY_SHADE[name].classes <= 16
    assert len({background for background, _ in colours}) == len(colours)
    for background, text in colours:
        assert contrast(background, text) >= 4.5


def test_contrast_is_wcags():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)
    assert luminance("#ff0000") == pytest.approx(0.2126)


def test_open_gates_stand_out_from_the_page_on_light_and_on_dark():
    shade = SHADES["gate"]
    pages: dict[Mode, str] = {"light": "#ffffff", "dark": "#12171d"}
    for mode, page in pages.items():
        against = [contrast(background, page) for background in shade.backgrounds(mode)]
        assert against == sorted(against) and against[0] < 1.2 and against[-1] > 6


def test_a_gate_falls_into_its_sixteenth():
    gates = [0.0, 0.0624, 0.0625, 0.4999, 0.5, 0.9374, 0.9375, 1.0, np.nan]

    assert SHADES["gate"].classify(np.array(gates)).tolist() == [0, 0, 1, 7, 8, 14, 15, 15, -1]


def test_weight_change_diverges_around_one_on_a_logarithmic_scale():
    change = SHADES["change"]
    low, just_below, same, just_above, high, beyond = change.classify(
        np.array([0.0, 0.95, 1.0, 1.05, 3.99, 50.0])
    )

    assert (low, just_below, same, just_above, high, beyond) == (0, 7, 7, 7, 14, 14)
    assert change.classify(np.array([0.5]))[0] + change.classify(np.array([2.0]))[0] == 14


@settings(deadline=None, max_examples=60)
@given(TRICKY, st.integers(0, 2**32 - 1))
def test_any_text_is_drawn_whole_in_order_and_injects_nothing(text, seed):
    draws = np.random.default_rng(seed)
    gate = [None if draws.random() < 0.3 else float(draws.random()) for _ in text]
    drawn = draw(planted(text, gate))

    assert set(drawn.tags) <= {"style", "div", "span", "i"} and drawn.tags.count("style") == 1
    assert drawn.attributes <= {"class", "title", "dir", "data-p", "data-code"}
    spans = [found.span() for found in regex.finditer(r"\X", text)]
    assert [cell["at"] for cell in drawn.cells] == [start for start, _ in spans]
    for cell, (start, stop) in zip(drawn.cells, spans, strict=True):
        known = [value for value in gate[start:stop] if value is not None]
        assert cell["run"][0] == (f"g{min(15, int(16 * known[0]))}" if known else "unread")
        if "code" in cell["own"]:
            assert cell["text"] == "" and cell["data-code"] == f"U+{ord(text[start]):04X}"
        else:
            assert cell["text"] == text[start:stop]


def test_neighbours_of_equal_class_share_one_run():
    markup = shaded_html(planted("abcdef", [0.5, 0.51, 0.52, 0.9, 0.5, None]), layer=0, head=0)

    runs = re.findall(r'<span class="(g\d+|unread)">((?:<span[^>]*>[^<]*</span>)+)</span>', markup)
    assert [(name, inner.count("</span>")) for name, inner in runs] == [
        ("g8", 3),
        ("g14", 1),
        ("g8", 1),
        ("unread", 1),
    ]


def test_hover_says_glyph_code_point_position_gate_and_weight_change_of_every_head():
    reading = planted("a<", [0.25, 0.5])
    two = dataclasses.replace(reading, gate=np.array([[[0.25, 0.5], [0.75, 1.0]]]))
    title = draw(two).cells[1]["title"]

    assert title.split("\n") == [
        "<  U+003C, position 1",
        "layer 1, head 1: gate 0.500, weight change ×1, z-energy +0.00",
        "every head: gate and weight change",
        "layer 1: 0.50 ×1  1.00 ×4",
    ]
    assert "gate 0.250" in draw(planted("a", [0.25], changes=False)).cells[0]["title"]


def test_an_emoji_of_several_code_points_is_one_cell_shaded_by_its_first_read_one():
    drawn = draw(planted(FAMILY, [None, 0.9, 0.1, 0.1, 0.1]))

    (cell,) = drawn.cells
    assert cell["text"] == FAMILY and cell["run"] == ["g14"]
    for line in (
        "U+1F469, position 0\nnot read by this run",
        "U+200D, position 1\nlayer 1, head 1: gate 0.900",
    ):
        assert line in cell["title"]


def test_marks_for_unread_few_new_window_unseen_and_cut():
    reading = planted(
        "ab d한f", [0.1, 0.2, 0.3, 0.9, None, 0.9], few={0, 1}, window=[0, 0, 0, 1, 1, 1], unseen={5}
    )
    drawn = draw(reading, keep_above=0.2)

    assert [cell["run"] for cell in drawn.cells] == [
        ["g1", "few", "cut"], ["g3", "few", "cut"], ["g4"], ["g14"], ["unread"], ["g14"],
    ]  # fmt: skip
    assert [cell["own"] for cell in drawn.cells] == [[], [], ["sp"], ["edge"], [], ["new"]]


def test_a_view_is_a_part_of_the_whole_with_the_same_classes():
    text = "The fox " * 30
    reading = planted(text, list(np.random.default_rng(0).random(len(text))))
    whole = [(cell["at"], cell["run"]) for cell in draw(reading).cells]
    part = [(cell["at"], cell["run"]) for cell in draw(reading, start=100, stop=150).cells]

    assert part == whole[100:150]


def test_views_cover_the_text_and_cut_no_cluster():
    text = ("ab" + FAMILY) * 50
    parts = views(text, 30)

    assert "".join(text[start:stop] for start, stop in parts) == text
    assert all(text[start] in "ab👩" and text[stop - 1] in "ab👧" for start, stop in parts)
    assert max(stop - start for start, stop in parts) < 30 + len(FAMILY)


def test_a_long_document_says_hover_by_run_and_stays_whole():
    text = "fox <jumps>\n" * 2_000
    reading = planted(text, [0.5] * len(text))
    markup = html_document(reading, title="<T>", notes=["a & b"], layer=0, head=0, shade="gate")
    body = markup[markup.index('<div class="text"') :]

    assert html.unescape(re.sub(r"<[^>]*>", "", body)) == text + "\n"
    assert markup.count("title=") == 1 and 'title="positions 0 to 23999: gates 0.500 to 0.500"' in markup
    assert "<h1>&lt;T&gt;</h1>" in markup and "<p>a &amp; b</p>" in markup


def test_a_shade_without_values_or_without_name_is_refused():
    reading = planted("a", [0.5], changes=False)
    with pytest.raises(ValueError, match="expected a reading with the weight change"):
        draw(reading, shade="change")
    with pytest.raises(ValueError, match=r"expected one of \(gate, z, change\), got 'pink'"):
        draw(reading, shade="pink")


@settings(deadline=None, max_examples=60)
@given(TRICKY)
def test_no_text_can_steer_the_terminal(text):
    shown = shaded_ansi(planted(text, [0.5] * len(text)), layer=0, head=0)

    left = re.sub(r"\x1b\[[\d;]*m", "", shown)
    inside_clusters = set("".join(found[0] for found in regex.finditer(r"\X", text) if len(found[0]) > 1))
    assert set(regex.findall(r"[\p{C}\p{Zl}\p{Zp}]", left)) <= {"\n"} | inside_clusters


def test_the_terminal_shows_the_same_classes_as_the_page():
    shown = shaded_ansi(planted("ab", [0.01, 1.0]), layer=0, head=0)
    (low, low_text), *_, (high, high_text) = SHADES["gate"].colours("dark")

    def code(background, text):
        return ";".join(str(int(colour[i : i + 2], 16)) for colour in (background, text) for i in (1, 3, 5))

    expected = "".join(
        f"\x1b[48;2;{';'.join(code(*pair).split(';')[:3])};38;2;{';'.join(code(*pair).split(';')[3:])}m{letter}\x1b[0m"
        for pair, letter in (((low, low_text), "a"), ((high, high_text), "b"))
    )
    assert shown.startswith(expected)


def test_thumbnails_hold_each_head_in_its_place_and_frame_the_chosen_one():
    profiles = np.arange(2 * 3 * 48).reshape(2, 3, 48) / 288
    fig = thumbnails(profiles, np.zeros((2, 3)), chosen=(1, 2))
    picture = np.array(fig.data[0].z, float)

    np.testing.assert_array_equal(picture[3:5, 50:74].ravel(), profiles[1, 2])
    assert [tuple(place) for place in fig.data[1].customdata][-1] == (1, 2)
    frame = fig.layout.shapes[0]
    assert frame.x0 < 50 < 73 < frame.x1 and frame.y0 < 3 < 4 < frame.y1


def test_the_overview_frames_the_view_and_shows_weight_change_on_its_own_scale():
    fig = overview(np.array([0.25, 1.0, 4.0]), characters=300, view=(100, 200), shade="change")

    assert np.array(fig.data[0].z, float).tolist() == [[-2.0, 0.0, 2.0]]
    assert (fig.data[0].zmin, fig.data[0].zmax) == (-2.0, 2.0)
    assert (fig.layout.shapes[0].x0, fig.layout.shapes[0].x1) == (100, 200)


def test_the_asked_character_is_framed_and_hover_says_more():
    reading = planted("ab\ncd", [0.1, 0.4, 0.5, None, 0.9])

    drawn = draw(reading, asked=2, says=lambda place: [f"surprisal {place} nats"])

    assert [cell["at"] for cell in drawn.cells if "asked" in cell["own"]] == [2]
    assert drawn.cells[2]["own"] == ["nl", "asked"]
    assert "surprisal 4 nats" in drawn.cells[4]["title"] and "surprisal" not in drawn.cells[3]["title"]


def test_a_shade_is_offered_only_where_the_reading_holds_it():
    with pytest.raises(ValueError, match=r"expected one of \(gate, z, change\), got 'surprisal'"):
        draw(planted("a", [0.5]), shade="surprisal")
