"""What the energy gates of a model do with a text: one value a character, layer and head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from ega_mope.analysis.windows import Window, batches, half_context, windows_over
from ega_mope.attention import ATTENTIONS
from ega_mope.attention.ega import EnergyGatedAttention
from ega_mope.attention.gate_norms import GATE_NORMS
from ega_mope.config import Plain
from ega_mope.model import CharLM
from ega_mope.runs import BrokenRun, Run, list_runs
from ega_mope.text import Reading, Tokenizer

FEW_TOKENS = 16
"""A token whose energy is compared with this many tokens or fewer, itself included, is marked."""

TOKENS_AT_ONCE = 4_096
"""What a CPU's cache holds the activations of; four times as many take half as long again."""

WEIGHTS_AT_ONCE = 2**24
"""The most attention weights of one kind held at a time: 64 MiB in float32."""

PerCharacter = Float[np.ndarray, "layer head character"]
Progress = Callable[[int, int], None]
"""Called with the tokens done and the tokens in all."""


@dataclass(frozen=True, kw_only=True)
class GateReading:
    """The gates of one text; a character is a code point after newline normalisation.

    `gate` (0 to 1), `z` (energy after the gate norm, in standard deviations; as projected where the
    norm is `none`) and `weight_change` (×; None where it was not asked for) are NaN for a character
    that the model is fed nothing for. A character of several bytes has the mean over its bytes.
    `compared_with` counts the tokens that the energy is measured against, itself included (0: none,
    −1: unknown character); `window` is the window the character was taken from (−1: unknown).
    `threshold` and `sharpness` are [layer, head]. Layers and heads count from 0.
    """

    run: str | None
    reading: Reading
    gate: PerCharacter
    z: PerCharacter
    weight_change: PerCharacter | None
    compared_with: Int[np.ndarray, " character"]
    window: Int[np.ndarray, " character"]
    threshold: Float[np.ndarray, "layer head"]
    sharpness: Float[np.ndarray, "layer head"]
    gate_norm: str
    length: int
    stride: int

    @property
    def characters(self) -> str:
        """The text, newlines normalised."""
        return self.reading.characters

    @property
    def read_as(self) -> tuple[str | None, ...]:
        """What the model is fed for each character; None where nothing."""
        return self.reading.read_as

    @cached_property
    def known(self) -> Bool[np.ndarray, " character"]:
        """Whether the model is fed anything for a character."""
        return self.window >= 0

    @property
    def seen(self) -> Bool[np.ndarray, " character"]:
        """Whether all of a character's tokens occurred in the training text."""
        return self.reading.seen

    @cached_property
    def few(self) -> Bool[np.ndarray, " character"]:
        """Characters whose energy has too few tokens to be compared with: at most FEW_TOKENS."""
        return (self.compared_with > 0) & (self.compared_with <= FEW_TOKENS)

    @property
    def notice(self) -> str | None:
        """What must be said beside these gates, if anything."""
        norm = GATE_NORMS[self.gate_norm]
        if norm.per_query:
            return f"gate norm {self.gate_norm}: a gate depends on the query; shown is each token's own, g_jj"
        if norm.compares_with != "window":
            return None
        return (
            f"gate norm {self.gate_norm}: a gate depends on every token of its window of {self.length}, "
            "later ones included; read in other windows, or with another ending, the same character has another gate"
        )

    def spread(self) -> Float[np.ndarray, "layer head"]:
        """Standard deviation of each head's gates on this text (population; NaN with nothing read).

        Characters with too few tokens to compare with are left out, unless there are no others.
        """
        counted = self.known & ~self.few
        if not counted.any():
            counted = self.known
        if not counted.any():
            return np.full(self.gate.shape[:2], np.nan)
        return self.gate[..., counted].astype(np.float64).std(axis=-1)

    def widest(self) -> tuple[int, int]:
        """Layer and head, from 0, with the largest spread on this text; the first one on a tie."""
        layer, head = np.unravel_index(np.nan_to_num(self.spread(), nan=-1.0).argmax(), self.gate.shape[:2])
        return int(layer), int(head)

    def to_json(self) -> Plain:
        """The answer of `ega-mope gates --json`; arrays are [layer][head][character], null for unknown.

        Numbers have the fewest digits that read back as the same value in the model's precision.
        """
        few, known, seen = self.few.tolist(), self.known.tolist(), self.seen.tolist()
        tokens = [
            {
                "position": position,
                "text": character,
                "known": known[position],
                "read_as": self.read_as[position],
                "seen": seen[position],
                "few_to_compare_with": few[position],
            }
            for position, character in enumerate(self.characters)
        ]
        change = self.weight_change
        return {
            "run": self.run,
            "layers": self.gate.shape[0],
            "heads": self.gate.shape[1],
            "tokens": tokens,
            "gates": _plain(self.gate),
            "weight_change": None if change is None else _plain(change),
            "unknown": [{"text": text, "count": count} for text, count in self.reading.unknown()],
            "windows": {"length": self.length, "stride": self.stride},
            "gate_norm": self.gate_norm,
            "notice": self.notice,
        }


def gates(
    run_or_model: Run | CharLM,
    text: str,
    *,
    tokenizer: Tokenizer | None = None,
    device: str = "auto",
    weight_change: bool = True,
    progress: Progress | None = None,
) -> GateReading:
    """Gates, z-energies and weight changes of every character of `text`.

    A run brings its tokenizer; a bare model needs `tokenizer`, and stays on its own device. The text
    goes through in windows of the context length at half-context stride, each token taken from the
    window where it has most past. Memory is linear in the length of the text.

    weight_change of key token j = Σ_i share_ij / Σ_i A_ij over the queries i ≥ j of j's window: the
    attention that j gets after gating, as a multiple of what it gets before. The last token of a
    window has its own query alone. Not asked for, a text costs little more than its forward passes.

    Raises ValueError for an empty text, and for a model without gates.
    """
    if not text:
        raise ValueError("text: expected at least one character, got an empty text; type or choose some")
    name = run_or_model.name if isinstance(run_or_model, Run) else None
    if isinstance(run_or_model, Run):
        reason = why_no_gates(run_or_model)
        if reason:
            raise ValueError(f"{name}: expected a run with energy gates, got one where {reason}{_instead()}")
        tokenizer, model = run_or_model.tokenizer, run_or_model.model(device)
    else:
        model = run_or_model
    tokenizer = _checked(model, tokenizer)
    reading = tokenizer.read(text)
    kinds = ("gate", "z", "weight", "share") if weight_change else ("gate", "z")
    measured = _Measured(model, len(reading.ids))
    if len(reading.ids):
        _measure(model, reading.ids, kinds, measured, progress)
    return _by_character(name, model, reading, measured, weight_change)


def why_no_gates(run: Run) -> str | None:
    """None, or why this run has no gates to look at."""
    attention = run.config.model.attention["name"]
    if not issubclass(ATTENTIONS[attention], EnergyGatedAttention):
        return f"attention {attention} has no gates"
    return None if (run.path / "model.safetensors").exists() else "its weights are not here"


def _instead() -> str:
    has = [run.name for run in list_runs() if not isinstance(run, BrokenRun) and why_no_gates(run) is None]
    return f"; choose for example {has[0]}" if has else "; train one with `ega-mope train --attention ega`"


def _checked(model: CharLM, tokenizer: Tokenizer | None) -> Tokenizer:
    """The tokenizer, where it and the model can be used together."""
    name = model.config.attention["name"]
    if not issubclass(ATTENTIONS[name], EnergyGatedAttention):
        raise ValueError(f"model: expected one with energy gates, got attention {name}{_instead()}")
    if tokenizer is None:
        raise ValueError(
            "tokenizer: expected one beside a bare model, got none; pass the run itself, or tokenizer=run.tokenizer"
        )
    if tokenizer.vocabulary_size != model.config.vocabulary_size:
        raise ValueError(
            f"tokenizer: expected {model.config.vocabulary_size} ids as the model has, "
            f"got {tokenizer.vocabulary_size}; use the tokenizer the model was trained with"
        )
    if model.training:
        raise ValueError("model: expected evaluation mode, got training mode; call model.eval() first")
    return tokenizer


class _Measured:
    """What is known of each token; filled window by window."""

    def __init__(self, model: CharLM, tokens: int) -> None:
        config = model.config
        self.shape = (config.n_layers, config.n_heads, tokens)
        self.values: dict[str, NDArray[Any]] = {}
        self.compared_with = np.zeros(tokens, np.int64)
        self.window = np.zeros(tokens, np.int64)

    def put(self, kind: str, window: Window, values: torch.Tensor) -> None:
        """Keep the part of one window's [layer, head, time] that is taken from it."""
        array = values[..., window.first - window.start :].cpu().numpy()
        if kind not in self.values:
            self.values[kind] = np.empty(self.shape, array.dtype)
        self.values[kind][..., window.first : window.stop] = array


def _measure(
    model: CharLM, ids: NDArray[np.int64], kinds: tuple[str, ...], into: _Measured, progress: Progress | None
) -> None:
    config = model.config
    windows = windows_over(len(ids), config.context_length)
    at_once = max(1, TOKENS_AT_ONCE // config.context_length)
    if "weight" in kinds or GATE_NORMS[config.attention["gate_norm"]].per_query:
        weights_a_window = config.n_layers * config.n_heads * config.context_length**2
        at_once = max(1, min(at_once, WEIGHTS_AT_ONCE // weights_a_window))
    device = next(model.parameters()).device
    done = 0
    for batch in batches(windows, at_once):
        fed = np.stack([ids[window.start : window.stop] for window in batch])
        for kind, values in _traced(model, torch.from_numpy(fed).to(device), kinds).items():
            for window, value in zip(batch, values, strict=True):
                into.put(kind, window, value)
        for number, window in enumerate(batch, start=done):
            taken = slice(window.first, window.stop)
            into.compared_with[taken] = _compared_with(model, window)
            into.window[taken] = number
        done += len(batch)
        if progress:
            progress(batch[-1].stop, len(ids))


def _traced(model: CharLM, ids: torch.Tensor, kinds: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Gate, z and, where weights were asked for, the weight change, each [batch, layer, head, time]."""
    with torch.inference_mode():
        trace = model.trace(ids, kinds)[1] if "weight" in kinds else model.trace_gates(ids)
        found = {kind: _own(model, trace[kind]) for kind in ("gate", "z")}
        if "weight" in kinds:
            before, after = trace["weight"].float().sum(dim=-2), trace["share"].float().sum(dim=-2)
            found["weight_change"] = torch.where(before > 0, after / before, torch.nan)
    return found


def _own(model: CharLM, values: torch.Tensor) -> torch.Tensor:
    """A token's own value, [batch, layer, head, time], also where each query has another."""
    per_query = GATE_NORMS[model.config.attention["gate_norm"]].per_query
    return values.diagonal(dim1=-2, dim2=-1) if per_query else values


def _compared_with(model: CharLM, window: Window) -> NDArray[np.int64] | int:
    norm = GATE_NORMS[model.config.attention["gate_norm"]]
    past = np.arange(window.first - window.start, window.stop - window.start) + 1
    counts: dict[str, NDArray[np.int64] | int] = {
        "past": past,
        "window": window.stop - window.start,
        "nothing": 0,
    }
    return counts[norm.compares_with]


def _by_character(
    name: str | None, model: CharLM, reading: Reading, measured: _Measured, weight_change: bool
) -> GateReading:
    def spread_out(kind: str) -> NDArray[Any]:
        values = measured.values.get(kind, np.empty(measured.shape, np.float32))
        return _mean_over_owners(values, reading)

    def first_token(values: NDArray[np.int64]) -> NDArray[np.int64]:
        result = np.full(len(reading.characters), -1, np.int64)
        result[reading.owner[::-1]] = values[::-1]  # written backwards, so the first token of each stays
        return result

    learned = {key: value.cpu().numpy() for key, value in model.learned().items()}
    return GateReading(
        run=name,
        reading=reading,
        gate=spread_out("gate"),
        z=spread_out("z"),
        weight_change=spread_out("weight_change") if weight_change else None,
        compared_with=first_token(measured.compared_with),
        window=first_token(measured.window),
        threshold=learned["attention.threshold"],
        sharpness=learned["attention.sharpness"],
        gate_norm=model.config.attention["gate_norm"],
        length=model.config.context_length,
        stride=half_context(model.config.context_length),
    )


def _mean_over_owners(values: NDArray[Any], reading: Reading) -> NDArray[Any]:
    """[layer, head, token] to [layer, head, character]: the mean over a character's tokens, NaN for none."""
    result = np.full((*values.shape[:2], len(reading.characters)), np.nan, values.dtype)
    if values.shape[-1]:
        begins = np.flatnonzero(np.diff(reading.owner, prepend=-1))
        counts = np.diff(begins, append=len(reading.owner))
        sums = np.add.reduceat(values, begins, axis=-1)
        result[..., reading.owner[begins]] = sums / counts.astype(values.dtype)
    return result


def _plain(values: PerCharacter) -> list[list[list[float | None]]]:
    """Nested lists of the shortest decimals that read back as the same number; None for NaN."""

    def row(numbers: NDArray[Any]) -> list[float | None]:
        shortest = numbers.astype("U").astype(np.float64)
        return [None if number != number else number for number in shortest.tolist()]

    return [[row(head) for head in layer] for layer in values]
