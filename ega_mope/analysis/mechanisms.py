"""What each mechanism is, read from the registries, and what it does to a sentence."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from ega_mope.attention import ATTENTIONS
from ega_mope.attention.gate_norms import GATE_NORMS
from ega_mope.config import PRESETS, Plain, preset
from ega_mope.gate_signals import GATE_SIGNALS
from ega_mope.model import build_model, mechanism_settings, parameter_counts, resolve
from ega_mope.positions import POSITIONS
from ega_mope.runs import Run

BARE_ATTENTION, BARE_POSITION = {"name": "dot"}, {"name": "none"}


@dataclass(frozen=True)
class Entry:
    """One line of a registry. `parameters`: how many it adds to a bare model, by preset; `text`: its docstring."""

    kind: str
    name: str
    source: str
    text: str
    causal: bool
    memory: str
    parameters: dict[str, int]


def entries() -> list[Entry]:
    """Every attention, gate norm, gate signal and position there is, with its default settings."""
    found = [
        _entry("attention", name, cls, {"name": name}, BARE_POSITION) for name, cls in ATTENTIONS.items()
    ]
    for name, norm in GATE_NORMS.items():
        attention = {"name": "ega", "gate_norm": name}
        found.append(_entry("gate norm", name, norm.z, attention, BARE_POSITION))
    for name, signal in GATE_SIGNALS.items():
        found.append(_entry("gate signal", name, signal, {"name": "ega", "signal": name}, BARE_POSITION))
    for name, cls in POSITIONS.items():
        found.append(_entry("position", name, cls, BARE_ATTENTION, {"name": name}))
    return found


def _entry(kind: str, name: str, described: Any, attention: Plain, position: Plain) -> Entry:
    attention_class, attention_settings = mechanism_settings(ATTENTIONS, attention, "attention")
    position_class, position_settings = mechanism_settings(POSITIONS, position, "position")
    quadratic = "quadratic" in (
        attention_class.memory(attention_settings),
        position_class.memory(position_settings),
    )
    module = sys.modules[described.__module__].__doc__ or ""
    return Entry(
        kind=kind,
        name=name,
        source=module.strip().splitlines()[0],
        text=inspect.cleandoc(described.__doc__ or ""),
        causal=attention_class.causal(attention_settings) and position_class.causal(position_settings),
        memory="quadratic" if quadratic else "linear",
        parameters={size: _added(size, attention, position) for size in PRESETS},
    )


def _added(size: str, attention: Plain, position: Plain) -> int:
    """Parameters beyond dot-product attention without positions."""
    bare, _ = preset(size)

    def total(attention: Plain, position: Plain) -> int:
        config = dataclasses.replace(bare, attention=attention, position=position)
        return parameter_counts(config)["total"]

    return total(attention, position) - total(BARE_ATTENTION, BARE_POSITION)


@dataclass(frozen=True)
class Trial:
    """What two mechanisms do with a text, layer by layer.

    characters  the tokens read, as text
    share       attention as used, after any gate [layer, head, query, key]
    gate        gate of each key for each query [layer, head, query, key], 0 to 1; None without gates
    weights     where the weights come from, in words
    """

    characters: tuple[str, ...]
    share: Float[np.ndarray, "layer head query key"]
    gate: Float[np.ndarray, "layer head query key"] | None
    weights: str


def try_mechanisms(run: Run, attention: Plain, position: Plain, text: str) -> Trial:
    """Run these mechanisms on `text` with the weights of `run`, as far as they fit.

    What the run's model does not have starts untrained (seed 0), and `weights` says how much. The text is cut
    at the context length; characters that the run does not read are left out. ValueError for a text of which
    nothing is read, and for settings that cannot be built.
    """
    config = resolve(dataclasses.replace(run.config.model, attention=attention, position=position))
    reading = run.tokenizer.read(text)
    ids = reading.ids[: config.context_length]
    if not len(ids):
        raise ValueError("text: expected characters that the run reads, got none; type others")
    model = build_model(config).eval()
    own = model.state_dict()
    trained = {
        name: value
        for name, value in run.model("cpu").state_dict().items()
        if name in own and own[name].shape == value.shape
    }
    model.load_state_dict(trained, strict=False)
    fresh = sum(value.numel() for name, value in own.items() if name not in trained)
    with torch.inference_mode():
        _, trace = model.trace(torch.as_tensor(ids)[None], ("gate", "share"))
    share = trace["share"][0]
    gate = trace["gate"][0] if "gate" in trace else None
    if gate is not None and gate.ndim == 3:
        gate = gate[:, :, None, :].expand_as(share)
    return Trial(
        characters=tuple(run.tokenizer.decode([i]) for i in ids.tolist()),
        share=share.numpy(),
        gate=None if gate is None else gate.contiguous().numpy(),
        weights=f"weights of {run.name}"
        + (f", but {fresh:,} parameters that it does not have are untrained (seed 0)" if fresh else ""),
    )


def markdown_table(found: list[Entry]) -> str:
    """The entries as a Markdown table, parameters at preset `paper`."""
    rows = [
        "| kind | name | what | sees the future | memory | parameters at `paper` |",
        "|---|---|---|---|---|---:|",
    ]
    for entry in found:
        what = entry.text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        future = "no" if entry.causal else "**yes**"
        rows.append(
            f"| {entry.kind} | `{entry.name}` | {what} | {future} | {entry.memory} | {entry.parameters['paper']:,} |"
        )
    return "\n".join(rows)
