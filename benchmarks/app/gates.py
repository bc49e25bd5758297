"""Gates of a long text beside the bare forward passes that it takes to read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.measuring import Line, spent

if TYPE_CHECKING:
    from ega_mope.analysis.windows import Window
    from ega_mope.runs import Run

CHARACTERS = 1_000_000


def long_text(run: Run, characters: int) -> str:
    """So many characters that the run reads, drawn from its vocabulary: what they say costs no more or less."""
    import numpy as np

    known = [letter for letter in map(chr, range(32, 127)) if run.tokenizer.read(letter).known.all()]
    return "".join(np.random.default_rng(0).choice(known, characters))


def gates_of_a_long_text(run: Run) -> Line:
    """Half of the passes, then the gates, then the other half, so that a machine that slows down favours none."""
    import numpy as np
    import torch

    from ega_mope.analysis.gates import TOKENS_AT_ONCE, gates
    from ega_mope.analysis.windows import batches, windows_over

    model, text = run.model("cpu"), long_text(run, CHARACTERS)
    ids, length = run.tokenizer.read(text).ids, model.config.context_length
    windows = windows_over(len(ids), length)

    def passes(some: Sequence[Window]) -> None:
        with torch.inference_mode():
            for batch in batches(list(some), TOKENS_AT_ONCE // length):
                model(torch.from_numpy(np.stack([ids[window.start : window.stop] for window in batch])))

    passes(windows[:200])
    gates(model, text[:20_000], tokenizer=run.tokenizer, weight_change=False)
    half = len(windows) // 2
    before = spent(lambda: passes(windows[:half]))
    measured = spent(lambda: gates(model, text, tokenizer=run.tokenizer, weight_change=False))
    after = spent(lambda: passes(windows[half:]))
    bare = before.cpu + after.cpu
    return Line(
        f"gates of {CHARACTERS:,} characters, times the bare forward passes",
        "×",
        1.3,
        [measured.cpu / bare],
        "ratio of CPU",
        warm_up=1,
        more={
            "run": run.name,
            "windows": len(windows),
            "gates_cpu_seconds": measured.cpu,
            "gates_wall_seconds": measured.wall,
            "bare_cpu_seconds": bare,
            "bare_wall_seconds": before.wall + after.wall,
            "why_it_can_be_below_1": "nothing after the last layer's gate is computed",
        },
    )
