"""A report as one HTML file that needs nothing else: plotly's script is in it once, figures are live."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.io
from plotly.offline import get_plotlyjs

from ega_mope.report.blocks import Block, Commands, Drawing, Heading, Notes, Section, Table, Text

DECIDED = ("holds", "fails")

STYLE = """
:root {color-scheme: light}
body {font: 16px/1.5 system-ui, sans-serif; color: #1c2733; background: #fff}
body {max-width: 72rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word}
table {border-collapse: collapse; margin: 0.8rem 0; font-size: 0.92rem}
.wide {overflow-x: auto}
th, td {border-bottom: 1px solid #d5dde5; padding: 0.3rem 0.7rem; text-align: left; vertical-align: top}
td.number, th.number {text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap}
td.holds {color: #00694c; font-weight: 600} td.fails {color: #a33b00; font-weight: 600}
pre {background: #f2f5f8; padding: 0.7rem; overflow-x: auto} figcaption {opacity: 0.8; font-size: 0.9rem}
figure {margin: 1rem 0} nav a {margin-right: 1rem} details {margin: 0.5rem 0} dt {font-weight: 600} dd {margin: 0 0 0.6rem}
h2 {border-top: 2px solid #00619a; padding-top: 0.6rem; margin-top: 2.2rem}
"""


def as_html(sections: Sequence[Section], title: str = "EGA/MoPE Lab: report") -> str:
    """The whole document; opens offline. Every piece of text is escaped."""
    body = []
    for number, section in enumerate(sections):
        blocks = (_block(block, f"figure-{number}-{place}") for place, block in enumerate(section.blocks))
        body.append(f'<section id="s{number}"><h2>{_safe(section.title)}</h2>{"".join(blocks)}</section>')
    links = "".join(f'<a href="#s{n}">{_safe(section.title)}</a>' for n, section in enumerate(sections))
    drawn = any(isinstance(block, Drawing) for section in sections for block in section.blocks)
    script = f"<script>{get_plotlyjs()}</script>" if drawn else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_safe(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>{script}</head>'
        f"<body><h1>{_safe(title)}</h1><nav>{links}</nav>{''.join(body)}</body></html>\n"
    )


def _block(block: Block | Heading, name: str) -> str:
    match block:
        case Heading(text):
            return f"<h3>{_safe(text)}</h3>"
        case Text(text, strong):
            return f"<p>{f'<strong>{_safe(text)}</strong>' if strong else _safe(text)}</p>"
        case Table():
            return _table(block)
        case Notes(title, items):
            pairs = "".join(f"<dt>{_safe(term)}</dt><dd>{_safe(said)}</dd>" for term, said in items)
            return f"<details><summary>{_safe(title)}</summary><dl>{pairs}</dl></details>"
        case Commands(title, lines):
            return f"<p>{_safe(title)}:</p><pre>{_safe(chr(10).join(lines))}</pre>"
        case Drawing():
            return _drawing(block, name)
    raise AssertionError(block)


def _table(table: Table) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        pairs = zip(table.columns, cells, strict=True)
        return "".join(f"<{tag}{_class(table, column, cell)}>{_safe(cell)}</{tag}>" for column, cell in pairs)

    head, body = row(table.columns, "th"), "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in table.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _class(table: Table, column: str, cell: str) -> str:
    """Numbers stand to the right, verdicts have a colour beside their word."""
    name = "number" if column in table.numbers else cell if cell in DECIDED else ""
    return f' class="{name}"' if name else ""


def _drawing(drawing: Drawing, name: str) -> str:
    fig = drawing.make()
    fig.update_layout(font={"color": "#1c2733"})
    drawn = plotly.io.to_html(
        fig,
        include_plotlyjs=False,
        full_html=False,
        div_id=name,
        config={"displaylogo": False, "responsive": True},
    )
    return (
        f'<figure><div role="img" aria-label="{_safe(drawing.alt)}">{drawn}</div>'
        f"<figcaption>{_safe(drawing.how_to_read)}</figcaption></figure>"
    )


def _safe(text: str) -> str:
    return html.escape(text, quote=True)
