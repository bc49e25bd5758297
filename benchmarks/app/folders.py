"""1,000 run folders of 500 records each: opened, listed, compared; beside TensorBoard's reader on the same curves."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measuring import Line, Skipped, Spent, spent

RUNS, RECORDS = 1_000, 500
VALIDATED_EVERY = 10
TENSORBOARD_RUNS = 100
"""TensorBoard's reader takes the same for each folder; some of them say it."""

COLD, WARM, ROUNDS = 5, 5, 5


def write_runs(shipped: Path, folder: Path) -> None:
    """Folders like those that ship, with other seeds and losses; no weights."""
    models = sorted(path for path in shipped.iterdir() if (path / "metrics.jsonl").exists())
    for number in range(RUNS):
        source, seed = models[number % len(models)], number // len(models)
        run = folder / f"{source.name}-{seed}"
        run.mkdir(parents=True)
        config = json.loads((source / "config.json").read_text()) | {"seed": seed, "name": run.name}
        (run / "config.json").write_text(json.dumps(config, indent=2))
        for name in ("status.json", "tokenizer.json", "audit.json"):
            shutil.copyfile(source / name, run / name)
        (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in _records(number)))


def _records(seed: int) -> Iterator[dict[str, object]]:
    draw = random.Random(seed).random
    for number in range(1, RECORDS + 1):
        validated = number % VALIDATED_EVERY == 0
        yield {
            "step": 4 * number,
            "tokens": 4096 * 4 * number,
            "seconds": round(2.6 * number + draw(), 3),
            "split": "validation" if validated else "train",
            "loss_nats": 1.5 + 3 * 0.99**number + 0.1 * draw(),
            "lr": 1e-3 * draw(),
            "grad_norm": None if validated else draw(),
            "tokens_per_second": None if validated else 6000 + 100 * draw(),
        }


def load_and_compare(folder: Path) -> int:
    """What Compare runs and `ega-mope compare` do before anything is drawn: the number of records read."""
    from ega_mope.analysis import compare
    from ega_mope.runs import Run, list_runs

    runs = [run for run in list_runs([folder]) if isinstance(run, Run)]
    found = compare.configurations(runs)
    names = compare.labels(found)
    for panel in compare.panels(found):
        compare.means_table(compare.curves_table(panel, names, ["validation"]))
        compare.summary_table(panel.configurations, names)
    return sum(len(curve.step) for run in runs for curve in run.curves().values())


def _forget() -> None:
    """Nothing of any run is remembered any more; what is imported stays."""
    from ega_mope.runs import curves, reading

    for remembered in (curves.curves, reading._opened, reading._verdict, reading._status):
        remembered._known.clear()


def folders(folder: Path) -> list[Line]:
    """Cold: nothing of the folders is known. Warm: again, after nothing changed."""
    assert load_and_compare(folder) == RUNS * RECORDS, "every record is read"
    cold, warm = [], []
    for _ in range(COLD):
        _forget()
        cold.append(spent(lambda: load_and_compare(folder)))
    for _ in range(WARM):
        warm.append(spent(lambda: load_and_compare(folder)))
    what = f"{RUNS:,} runs × {RECORDS} records, loaded and compared"
    return [_line(f"{what}, cold", 2.0, cold), _line(f"{what}, warm", 0.3, warm)]


def _line(name: str, target: float, samples: list[Spent]) -> Line:
    return Line(
        name,
        "s",
        target,
        [sample.cpu for sample in samples],
        "CPU",
        warm_up=1,
        more={"wall_seconds": [sample.wall for sample in samples]},
    )


def beside_tensorboard(folder: Path, events: Path) -> Line | Skipped:
    """How many times faster the curves of the same runs are read than by TensorBoard's EventAccumulator.

    Ours reads tokens and times beside step and loss; TensorBoard's file has a time beside each.
    """
    name = "reading those curves, times faster than TensorBoard's reader"
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return Skipped(name, "tensorboard is not installed (pip install tensorboard)")
    from ega_mope.runs import Run
    from ega_mope.runs.curves import read_curves

    chosen = [Run(path) for path in sorted(folder.iterdir())[:TENSORBOARD_RUNS]]
    for run in chosen:
        with SummaryWriter(str(events / run.name)) as writer:
            for record in run.records():
                writer.add_scalar(f"loss_nats/{record['split']}", record["loss_nats"], record["step"])

    def theirs(run: Run) -> dict[str, list[float]]:
        reader = EventAccumulator(str(events / run.name), size_guidance={"scalars": 0})
        reader.Reload()
        return {tag: [event.value for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}

    def ours(run: Run) -> dict[str, list[float]]:
        found = read_curves(run.path / "metrics.jsonl")
        return {f"loss_nats/{split}": curve.loss_nats.tolist() for split, curve in found.items()}

    assert all(_single(ours(run)) == theirs(run) for run in chosen), "the same numbers in single precision"
    rounds = []
    for _ in range(ROUNDS):
        them = spent(lambda: [theirs(run) for run in chosen]).cpu
        us = spent(lambda: [ours(run) for run in chosen]).cpu
        opened = spent(lambda: [ours(Run(run.path)) for run in chosen]).cpu
        rounds.append((them, us, opened))
    more = {"runs": TENSORBOARD_RUNS, "cpu_seconds_theirs_ours_and_ours_with_each_run_opened": rounds}
    ratios = [them / us for them, us, _ in rounds]
    return Line(name, "×", 10.0, ratios, "ratio of CPU", "more", warm_up=1, more=more)


def _single(found: dict[str, list[float]]) -> dict[str, list[float]]:
    """The same numbers in TensorBoard's single precision."""
    return {tag: np.array(values, np.float32).tolist() for tag, values in found.items()}
