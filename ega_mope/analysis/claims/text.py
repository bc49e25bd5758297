"""What a run's gates do with a text, by default two short ones of the lab's own: read once a run and text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from ega_mope.analysis.claims.evidence import config_of, with_weights
from ega_mope.analysis.gates import FEW_TOKENS
from ega_mope.analysis.windows import Window, batches
from ega_mope.attention.gate_norms import GATE_NORMS
from ega_mope.model import CharLM, build_model
from ega_mope.runs import Run
from ega_mope.text.samples import sample_text

SAMPLE = ("prose", "verse")
LEAST_READ = 0.95
"""A run that reads less of the sample than this says nothing about it."""
OPEN = 0.5
"""A token passes where its gate is above this, which is where its z is above the threshold."""

AT_ONCE = 8
"""Windows that go through the model together."""

PerToken = Float[np.ndarray, "layer head token"]


@dataclass(frozen=True)
class TextReading:
    """The gates on a text, token by token, in windows of the context length that do not overlap.

    `gate` is each token's own, 0 to 1; `before` and `after` are the attention it gets from all queries of its
    window, before and after gating (both add up to the number of queries); `place` is its position in the
    window; `owner` the character it belongs to.
    """

    gate: PerToken
    before: PerToken
    after: PerToken
    place: Int[np.ndarray, " token"]
    owner: Int[np.ndarray, " token"]
    characters: str

    @property
    def passing(self) -> float:
        """Share of tokens, over all heads, whose gate is above OPEN; the first of each window left out."""
        return float((self.gate[..., self.place >= FEW_TOKENS] > OPEN).mean())

    def profile(self) -> Float[np.ndarray, " token"]:
        """The mean gate of each token over layers and heads."""
        return self.gate.mean(axis=(0, 1))

    def change(self, characters: Bool[np.ndarray, " character"]) -> float:
        """Attention that these characters get after gating, as a multiple of what they get before."""
        tokens = characters[self.owner]
        return float(self.after[..., tokens].sum() / self.before[..., tokens].sum())


@lru_cache(maxsize=1)
def sample() -> str:
    """The text that gates are judged on."""
    return "\n".join(map(sample_text, SAMPLE))


def dense(characters: str) -> Bool[np.ndarray, " character"]:
    """The rarer half of a text's characters, by their count in it: what carries more information, unseen context."""
    counts = Counter(characters)
    common: set[str] = set()
    covered = 0
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= len(characters) / 2:
            break
        common.add(character)
        covered += count
    return np.array([character not in common for character in characters])


def readable(run: Run) -> bool:
    """Whether a run has weights and reads nearly all of the sample."""
    return with_weights(run) and bool(run.tokenizer.read(sample()).known.mean() >= LEAST_READ)


def read(run: Run, text: str | None = None, *, trained: bool = True) -> TextReading:
    """A text, or else the sample, through a run's gates; kept until its weights change.

    Untrained: through the model as its training started, which shows what needs no learning.
    """
    stat = (run.path / "model.safetensors").stat()
    return _read(run.path, stat.st_mtime_ns, stat.st_size, sample() if text is None else text, trained)


@lru_cache(maxsize=256)
def _read(path: Path, changed: int, size: int, text: str, trained: bool) -> TextReading:
    run = Run(path)
    model = run.model("cpu") if trained else build_model(run.config.model, config_of(run).seed).eval()
    return read_with(run, model, text)


def agreement(one: Run, other: Run, *, trained: bool = True) -> float:
    """Correlation of two runs' mean gates over the tokens of the sample; untrained: as both started."""
    readings = [read(run, trained=trained) for run in (one, other)]
    known = readings[0].place >= FEW_TOKENS
    first, second = (reading.profile()[known] for reading in readings)
    return float(np.corrcoef(first, second)[0, 1])


def read_with(run: Run, model: CharLM, text: str) -> TextReading:
    """A text through this model's gates, with the run's tokenizer."""
    reading = run.tokenizer.read(text)
    length = model.config.context_length
    kept: dict[str, list[np.ndarray]] = {"gate": [], "before": [], "after": []}
    cuts = [
        Window(start, min(start + length, len(reading.ids)), start)
        for start in range(0, len(reading.ids), length)
    ]
    for batch in batches(cuts, AT_ONCE):
        ids = np.stack([reading.ids[cut.start : cut.stop] for cut in batch])
        for kind, values in _windows(model, ids).items():
            kept[kind].append(values)
    place = np.arange(len(reading.ids)) % length
    joined = {kind: np.concatenate(values, axis=-1) for kind, values in kept.items()}
    return TextReading(**joined, place=place, owner=reading.owner, characters=reading.characters)


def _windows(
    model: CharLM, ids: Int[np.ndarray, "window token"]
) -> dict[str, Float[np.ndarray, "layer head all_tokens"]]:
    """Each token's own gate, and its attention before and after gating, in equally long windows, one after another."""
    with torch.inference_mode():
        _, trace = model.trace(torch.as_tensor(ids), ("gate", "weight", "share"))
    gate = trace["gate"]
    if GATE_NORMS[model.config.attention["gate_norm"]].per_query:
        gate = gate.diagonal(dim1=-2, dim2=-1)
    before, after = (trace[kind].double().sum(dim=-2) for kind in ("weight", "share"))
    found = {"gate": gate.double(), "before": before, "after": after}
    # (window, layer, head, token) to (layer, head, all tokens)
    return {kind: values.permute(1, 2, 0, 3).flatten(2).numpy() for kind, values in found.items()}
