"""Where the time of one update goes, part by part: what bounds the speed of training."""

from __future__ import annotations

import re
from collections.abc import Callable
from statistics import median
from typing import Any

from torch.profiler import ProfilerActivity, profile

WARM_UP, UPDATES = 2, 5
PARTS = {
    "matrix products": r"addmm|mm|matmul|linear",
    "torch's fused attention": r".*flash_attention_for_cpu.*",
    "batched products": r"bmm|baddbmm",
    "GELU": r".*gelu.*",
    "LayerNorm": r".*layer_norm.*",
    "clipping and AdamW": r".*(adamw|foreach).*",
    "embedding and loss": r".*(embedding|softmax|nll_loss|index).*",
}
"""Patterns of the names of torch's operations, without "aten::", "_backward" and underscores around them."""
REST = "copies, sums, element by element"


def part_of(operation: str) -> str:
    """The part to which an operation such as "aten::addmm" belongs."""
    name = operation.rpartition("::")[2].removesuffix("_backward").strip("_")
    return next((part for part, pattern in PARTS.items() if re.fullmatch(pattern, name)), REST)


def seconds_by_part(update: Callable[[], None]) -> dict[str, float]:
    """Seconds that one update spends in each part, on the thread that calls torch.

    What torch's other threads do meanwhile is waited for there, so that the parts add up to the whole.
    """
    with profile(activities=[ProfilerActivity.CPU]) as found:
        update()
    seconds = dict.fromkeys((*PARTS, REST), 0.0)
    for event in found.key_averages():
        seconds[part_of(event.key)] += event.self_cpu_time_total / 1e6
    return seconds


def compare_parts(updates: dict[str, Callable[[], None]]) -> list[dict[str, Any]]:
    """Each part's share of the first model's update, for each of the models: medians of alternating updates."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in updates}
    for number in range(WARM_UP + UPDATES):
        for name, update in updates.items():
            seconds = seconds_by_part(update)
            if number >= WARM_UP:
                taken[name].append(seconds)
    parts = (*PARTS, REST)
    found = {
        name: {part: median(one[part] for one in many) for part in parts} for name, many in taken.items()
    }
    whole = sum(next(iter(found.values())).values())
    return [
        {"part": part, **{name: round(seconds[part] / whole, 4) for name, seconds in found.items()}}
        for part in parts
    ]


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table that the README shows, the most first."""
    names = [key for key in rows[0] if key != "part"]
    lines = [
        f"Where an update goes, in hundredths of the {names[0]}'s (torch's profiler, no dropout):",
        "",
        f"| part | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]
    for row in sorted(rows, key=lambda row: -row[names[0]]):
        lines.append(f"| {row['part']} | {' | '.join(f'{100 * row[name]:.1f}' for name in names)} |")
    totals = (f"{100 * sum(row[name] for row in rows):.1f}" for name in names)
    return "\n".join([*lines, f"| all | {' | '.join(totals)} |"])
