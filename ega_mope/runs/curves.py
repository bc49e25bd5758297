"""metrics.jsonl as columns: what every list, comparison and figure of losses reads."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ega_mope.runs.folder import Remembered, read_lines

METRIC_COLUMNS = (
    "step",
    "tokens",
    "seconds",
    "split",
    "loss_nats",
    "lr",
    "grad_norm",
    "tokens_per_second",
    "peak_memory_bytes",
    "diverged",
)


@dataclass(frozen=True)
class Curve:
    """One split's records of a run, in step order; `loss_nats` is NaN where it was not finite."""

    step: Int[np.ndarray, " n"]
    tokens: Float[np.ndarray, " n"]
    seconds: Float[np.ndarray, " n"]
    loss_nats: Float[np.ndarray, " n"]

    @property
    def finite(self) -> Curve:
        """The records whose loss was finite."""
        keep = np.isfinite(self.loss_nats)
        return Curve(self.step[keep], self.tokens[keep], self.seconds[keep], self.loss_nats[keep])


NUMBERS = ("step", "tokens", "seconds", "loss_nats")


def read_curves(path: Path) -> dict[str, Curve]:
    """The curves in a metrics.jsonl by split, the last record of each (split, step).

    ValueError where a record holds neither a loss nor the word that it diverged.
    """
    records = _records(path)
    column = {name: records[name].to_numpy(zero_copy_only=False) for name in NUMBERS}
    splits = records["split"].dictionary_encode()
    place = splits.indices.to_numpy()
    lost = np.isnan(column["loss_nats"])
    if lost.any():
        lost &= ~records["diverged"].fill_null(False).to_numpy(zero_copy_only=False)
    if lost.any():
        step = column["step"][lost][0]
        raise ValueError(
            f"{path.parent.name}: expected loss_nats or diverged in every record of {path.name}, "
            f"got neither at step {step:g}; restore it"
        )
    named = enumerate(splits.dictionary.to_pylist())
    return {split: _curve(column, np.flatnonzero(place == number)) for number, split in named}


def _curve(column: dict[str, np.ndarray], rows: Int[np.ndarray, " row"]) -> Curve:
    steps = column["step"][rows]
    if (np.diff(steps) <= 0).any():  # a resumed run wrote some steps again: the last record of each counts
        _, last = np.unique(steps[::-1], return_index=True)
        rows = rows[len(rows) - 1 - last]
    step, tokens, seconds, loss_nats = (column[name][rows] for name in NUMBERS)
    return Curve(step.astype(np.int64), tokens, seconds, loss_nats)


def _records(path: Path) -> Any:
    """The records that name a split and a step as a pyarrow batch.

    pyarrow reads a file in half the time of Python's own parser and its dictionaries, and its reader of batches
    is a sixth faster than the one that makes a table.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import json

    schema, data = _schema(), path.read_bytes()
    try:
        reader = json.open_json(
            pa.BufferReader(data),
            read_options=json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        records = reader.read_next_batch()  # the only one: the block is longer than the file
    except pa.ArrowInvalid:
        # It refuses a file for one line that a kill cut in half, and an empty one.
        try:
            records = pa.RecordBatch.from_pylist(read_lines(path), schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(
                f"{path.parent.name}: expected loss records in {path.name}, got {error}; restore it"
            ) from None
    if records["split"].null_count or records["step"].null_count:
        records = records.filter(pc.and_(records["split"].is_valid(), records["step"].is_valid()))
    return records


@functools.cache
def _schema() -> Any:
    import pyarrow as pa

    numbers = ((name, pa.float64()) for name in NUMBERS)
    return pa.schema([("split", pa.string()), ("diverged", pa.bool_()), *numbers])


curves = Remembered(read_curves)
"""The same, by path, for as long as the file stays as it is; None where there is none."""
