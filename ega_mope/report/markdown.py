"""A report as Markdown: everything but the figures."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ega_mope.report.blocks import Block, Commands, Drawing, Heading, Notes, Section, Table, Text


def as_markdown(sections: Sequence[Section], *, level: int = 2) -> str:
    """Headings from `level` on; figures are left out, their numbers are in the tables."""
    lines = []
    for section in sections:
        lines += [f"{'#' * level} {section.title}", ""]
        for block in section.blocks:
            lines += [*_lines(block, level), ""] if not isinstance(block, Drawing) else []
    return "\n".join(lines).strip()


def between_markers(document: str, name: str, text: str) -> str:
    """The document with `text` between `<!-- name -->` and `<!-- /name -->`; ValueError where they are not there."""
    pattern = rf"(<!-- {re.escape(name)} -->\n).*?(\n<!-- /{re.escape(name)} -->)"
    found, count = re.subn(pattern, lambda match: match[1] + text + match[2], document, flags=re.DOTALL)
    if count != 1:
        raise ValueError(
            f"markdown: expected one pair of lines <!-- {name} --> and <!-- /{name} -->, got {count}; add them"
        )
    return found


def _lines(block: Block | Heading, level: int) -> list[str]:
    match block:
        case Heading(text):
            return [f"{'#' * (level + 1)} {text}"]
        case Text(text, strong):
            return [f"**{text}**" if strong else text]
        case Table():
            return _table(block)
        case Notes(_, items):
            return [f"- *{name}*. {said}" for name, said in items]
        case Commands(title, lines):
            return [f"{title}:", "", *(f"    {line}" for line in lines)]
    raise AssertionError(block)


def _table(table: Table) -> list[str]:
    rule = ("---:" if column in table.numbers else "---" for column in table.columns)
    rows = (table.columns, *table.rows)
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [lines[0], f"|{'|'.join(rule)}|", *lines[1:]]
