"""A run's learned scalars at its best weights, also where the weights themselves did not come along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ega_mope.runs import Run


def learned_at_best(run: Run) -> Mapping[str, Any]:
    """Every mechanism's learned scalars by name, as nested lists; units beside each mechanism's `learned`.

    Read from the weights; where they are not in the folder, from learned.jsonl at the step with the
    lowest validation loss, which is when weights are kept. ValueError where there is neither.
    """
    if (run.path / "model.safetensors").exists():
        return {name: value.tolist() for name, value in run.model("cpu").learned().items()}
    best = run.best()
    for record in run.learned():
        if best and record["step"] == best.step:
            return record["values"]
    raise ValueError(
        f"{run.name}: expected its weights, or a record of its learned scalars at its best step, got neither; "
        "choose another run"
    )
