"""What runs there are and what each is, in the shape of the JSON answers `runs` and `show`."""

from __future__ import annotations

from collections.abc import Iterable

from ega_mope.config import Plain
from ega_mope.runs import BrokenRun, LossPoint, Run, list_runs

FUTURE_WORDS: dict[bool | None, str] = {True: "yes", False: "no", None: "not known"}
"""Does a run see the future, as every table says it; not known where its audit cannot tell."""


def future_mark(sees_future: bool | None) -> str:
    """What stands beside the name of such a run wherever it is listed; nothing beside a causal one."""
    return {True: "⚠ sees the future", False: "", None: "not known whether it sees the future"}[sees_future]


def peak_memory_words(peak_bytes: int | None) -> str:
    """How much memory training took, to stand behind what is said of a run; nothing where it is not known."""
    return "" if peak_bytes is None else f", {peak_bytes / 1e6:,.0f} MB of memory at its peak"


def any_sees_future(runs: Iterable[Run]) -> bool | None:
    """True where one of the runs sees the future, None where none is known to but of some it is not known."""
    found = {run.sees_future for run in runs}
    return True if True in found else None if None in found else False


def marked_name(run: Run, name: str | None = None) -> str:
    """The run's name, or what else it is called, with its mark."""
    return " · ".join(filter(None, (name or run.name, future_mark(run.sees_future))))


def summarise_all() -> list[Plain]:
    """One row a run: the user's and the shipped ones, broken folders with their problem."""
    return [summarise(run) for run in list_runs()]


def summarise(run: Run | BrokenRun) -> Plain:
    """One row; for a broken folder every field but name, path and problem is None."""
    row: Plain = dict.fromkeys(
        (
            "name", "path", "status", "attention", "position", "gate_norm", "signal", "corpus", "tokenizer",
            "preset", "seed", "steps", "best_loss_nats", "final_loss_nats", "sees_future", "problem",
        )
    )  # fmt: skip
    row |= {"name": run.name, "path": str(run.path)}
    if isinstance(run, BrokenRun):
        return row | {"problem": run.problem}
    attention = run.config.model.attention
    best, final, status = run.best(), run.final(), run.status
    return row | {
        "status": status.state,
        "attention": attention["name"],
        "position": run.config.model.position["name"],
        "gate_norm": attention.get("gate_norm"),
        "signal": attention.get("signal"),
        "corpus": run.document["corpus"]["name"],
        "tokenizer": run.config.tokenizer,
        "preset": run.config.preset,
        "seed": run.seed,
        "steps": status.step,
        "best_loss_nats": best.loss_nats if best else None,
        "final_loss_nats": final.loss_nats if final else None,
        "sees_future": run.sees_future,
        "problem": status.error,
    }


def describe(run: Run) -> Plain:
    """All of config.json, parameters by part, best and final validation loss, training's peak memory."""

    def point(found: LossPoint | None) -> Plain | None:
        return None if found is None else {"step": found.step, "loss_nats": found.loss_nats}

    return {
        "name": run.name,
        "path": str(run.path),
        "config": run.document,
        "parameters": run.document["parameters"],
        "sees_future": run.sees_future,
        "best": point(run.best()),
        "final": point(run.final()),
        "peak_memory_bytes": run.peak_memory_bytes(),
    }
