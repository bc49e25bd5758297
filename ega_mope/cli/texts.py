"""What the commands share that look at a text with a run's heads: the text, and which heads to show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ega_mope.analysis.gates import GateReading

layer_option = click.option("--layer", type=click.IntRange(1), help="Layer to show, counted from 1.")
head_option = click.option("--head", type=click.IntRange(1), help="Head to show, counted from 1.")


def text_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --text and --text-file to a command, which reads them with `given_text` or `optional_text`."""
    file = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
    command = click.option("--text-file", type=file, help="A file that holds the text; - for stdin.")(command)
    return click.option("--text", help="The text itself.")(command)


def given_text(text: str | None, file: Path | None) -> str:
    """The text that was given; ValueError where none or both were, and for what is not text."""
    found = optional_text(text, file)
    if found is None:
        raise ValueError("text: expected --text or --text-file, got none; give one of them")
    return found


def optional_text(text: str | None, file: Path | None) -> str | None:
    """The text that was given, None where none was; ValueError where both were, and for what is not text."""
    from ega_mope.text import decode_text

    if text is not None and file is not None:
        raise ValueError("text: expected --text or --text-file, got both; give one of them")
    if file is not None:
        with click.open_file(str(file), "rb") as opened:
            return decode_text(opened.read(), str(file))
    if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("text: expected UTF-8, got bytes that are not; put the text in a file instead")
    return text


def asked_heads(reading: GateReading, layer: int | None, head: int | None) -> list[tuple[int, int]]:
    """The heads, from 0, that --layer and --head leave; ValueError where the run has no such one."""
    for name, value, there in zip(("layer", "head"), (layer, head), reading.gate.shape[:2], strict=True):
        if value is not None and value > there:
            raise ValueError(f"{name}: expected 1 to {there}, got {value}; choose one of those")
    layers, heads = reading.gate.shape[:2]
    return [
        (one, other)
        for one in range(layers)
        for other in range(heads)
        if (layer is None or one == layer - 1) and (head is None or other == head - 1)
    ]
