"""Which configurations a sweep compares: grids by name, or a TOML file."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ega_mope.analysis.naming import attention_name, position_name
from ega_mope.attention import ATTENTIONS
from ega_mope.config import Plain, flatten
from ega_mope.model import mechanism_settings, refusal
from ega_mope.positions import POSITIONS


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration, trained at every seed: `{"name": …, setting: value}` twice, and KEY=VALUE overrides."""

    label: str
    attention: Plain
    position: Plain
    overrides: tuple[str, ...] = ()


def _cell(attention: Plain, position: Plain) -> Cell:
    label = f"{attention_name(attention)} + {position_name(position)}"
    return Cell(label=label, attention=attention, position=position)


def _with_both_positions(attention: Plain) -> list[Cell]:
    return [_cell(attention, {"name": position}) for position in ("learned", "mope")]


DOT: Plain = {"name": "dot"}


def _ega(gate_norm: str, **settings: Any) -> Plain:
    return {"name": "ega", "gate_norm": gate_norm, **settings}


def _mope(**settings: Any) -> Plain:
    return {"name": "mope", **settings}


def _mechanisms() -> list[Cell]:
    """The other mechanisms, half as long as the study, each beside a baseline of the same length.

    In the order in which the claims want them, and MoPE from its usual start before what is held against it.
    """
    learned, causal = {"name": "learned"}, _ega("causal")
    pairs = [
        (DOT, learned),
        (causal, learned),
        (_ega("none"), learned),
        (DOT, {"name": "none"}),
        (causal, {"name": "none"}),
        ({"name": "conv", "lags": 4}, learned),
        ({"name": "scale_heads"}, learned),
        ({"name": "multi_quantity", "phase": False}, learned),
        ({"name": "multi_quantity", "flux": False}, learned),
        (_ega("causal", signal="morlet"), learned),
        (DOT, _mope()),
        (DOT, _mope(freeze="both")),
        (DOT, _mope(init="multiscale")),
        (DOT, _mope(init="random")),
        # Under the projection no pair starts below the line ω·σ = 5: whether pairs gather there needs both sides.
        (DOT, _mope(init="random", admissibility="free")),
        (DOT, {"name": "mope_relative"}),
        (causal, {"name": "mope_relative"}),
        (DOT, {"name": "sinusoidal"}),
        (DOT, {"name": "rope"}),
        (DOT, {"name": "alibi"}),
        (_ega("causal", signal="daubechies2"), learned),
    ]
    return [dataclasses.replace(_cell(*pair), overrides=("training.steps=1000",)) for pair in pairs]


GRIDS: dict[str, list[Cell]] = {
    "2x2": [*_with_both_positions(DOT), *_with_both_positions(_ega("causal"))],
    # The causal family first, so that its 2×2 is whole soonest.
    "study": [
        *_with_both_positions(DOT),
        *(cell for norm in ("causal", "sequence", "visible") for cell in _with_both_positions(_ega(norm))),
    ],
    "mechanisms": _mechanisms(),
    # What can learn the planted distances; the usual start of MoPE cannot reach them.
    "planted": [
        _cell(_ega("causal"), _mope(init="multiscale", rate_multiplier=10.0)),
        _cell(_ega("causal"), {"name": "mope_relative", "rate_multiplier": 10.0}),
    ],
}
"""`2x2`: {dot, EGA causal} × {learned, MoPE}. `study`: baseline and MoPE, then EGA and both under each gate norm.
`mechanisms`: the others at 1,000 steps, beside a baseline and EGA causal. `planted`: for the corpus of that name."""


def cells_of(grid: str) -> list[Cell]:
    """The cells of a named grid or of a TOML file (see `read_grid`), each checked to be buildable."""
    if grid in GRIDS:
        cells = GRIDS[grid]
    elif Path(grid).is_file():
        cells = read_grid(Path(grid))
    else:
        raise ValueError(
            f"grid: expected one of ({', '.join(GRIDS)}) or a TOML file, got {grid[:120]!r}; choose one of them"
        )
    for cell in cells:
        _check_pair(cell)
    return cells


def read_grid(path: Path) -> list[Cell]:
    """The cells that a TOML file lists, one `[[cell]]` each:

        [[cell]]
        attention = "ega"                                   # a name, or a table with settings
        position = { name = "mope", init = "multiscale" }
        set = { steps = 500, "training.learning_rate" = 3e-4 }   # optional, any setting, as with --set
        label = "multiscale, short"                         # optional, for the summary

    Raises ValueError, in one line, for what is no such file, unknown keys or mechanisms, and two cells of
    one label.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name}: expected a TOML file of cells, got {error}; correct it") from None
    _only(document, ("cell",), path.name)
    tables = document.get("cell")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"{path.name}: expected one or more [[cell]] tables, got none; write one a cell")
    cells = [_read_cell(table, f"{path.name}: cell {n}") for n, table in enumerate(tables, start=1)]
    labels = [cell.label for cell in cells]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise ValueError(f"{path.name}: expected a label for each cell, got {twice!r} twice; add label = …")
    return cells


def _read_cell(table: Plain, where: str) -> Cell:
    _only(table, ("attention", "position", "set", "label"), where)
    attention = _mechanism(table, "attention", ATTENTIONS, where)
    position = _mechanism(table, "position", POSITIONS, where)
    overrides, label = table.get("set", {}), table.get("label")
    if not isinstance(overrides, dict):
        raise ValueError(
            f"{where}.set: expected a table of settings, got {overrides!r}; write {{ steps = 500 }}"
        )
    if not isinstance(label, str | None):
        raise ValueError(f"{where}.label: expected text, got {label!r}; put it in quotes")
    pairs = flatten(overrides)
    words = [f"{attention_name(attention)} + {position_name(position)}"]
    words += [f"{key} {value}" for key, value in pairs.items()]
    return Cell(
        label=label or ", ".join(words),
        attention=attention,
        position=position,
        overrides=tuple(f"{key}={json.dumps(value)}" for key, value in pairs.items()),
    )


def _mechanism(table: Plain, key: str, registry: dict[str, Any], where: str) -> Plain:
    value = table.get(key)
    data = {"name": value} if isinstance(value, str) else value
    if not isinstance(data, dict):
        raise ValueError(
            f"{where}.{key}: expected a name or a table with one, got {value!r}; write {key} = "
            f'"{next(iter(registry))}"'
        )
    mechanism_settings(registry, data, f"{where}.{key}")
    return data


def _only(table: Plain, keys: tuple[str, ...], where: str) -> None:
    if unknown := [key for key in table if key not in keys]:
        raise ValueError(
            f"{where}: expected only ({', '.join(keys)}), got {unknown[0]!r}; rename or remove it"
        )


def _check_pair(cell: Cell) -> None:
    """ValueError for a mechanism that is not there, a setting it does not take, or a pair that cannot be."""
    mechanism_settings(ATTENTIONS, cell.attention, f"cell {cell.label}: attention")
    position = {key: value for key, value in cell.position.items() if key != "name"}
    if reason := refusal(cell.attention["name"], cell.position["name"], position):
        raise ValueError(f"cell {cell.label}: {reason}")


def read_seeds(text: str) -> list[int]:
    """The seeds of "0-5", "3" or "0,2,5-7", in that order, each once."""
    return list(dict.fromkeys(seed for part in text.split(",") for seed in _seed_range(part.strip())))


def _seed_range(part: str) -> Iterable[int]:
    found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        raise ValueError(f"seeds: expected something like 0-5 or 0,2,7, got {part[:40]!r}; write it that way")
    return range(first, last + 1)
