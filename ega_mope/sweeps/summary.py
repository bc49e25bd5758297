"""What a sweep came to: each run, and each cell over its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from ega_mope.config import Plain
from ega_mope.runs import Run
from ega_mope.sweeps.pool import Outcome


def summarise(outcomes: Sequence[Outcome]) -> Plain:
    """`runs`: one row a run; `cells`: N finished runs, their mean losses in nats a token, and how many failed or
    were left unfinished; `one_evaluation`: whether all losses were measured on the same text and windows."""
    finished = {outcome.path: Run(outcome.path) for outcome in outcomes if outcome.state == "finished"}
    evaluations = {repr(sorted(run.evaluation.items())) for run in finished.values()}
    labels = dict.fromkeys(outcome.planned.cell.label for outcome in outcomes)
    rows = [_run_row(outcome, finished.get(outcome.path)) for outcome in outcomes]
    return {
        "runs": rows,
        "cells": [_cell_row(label, [row for row in rows if row["cell"] == label]) for label in labels],
        "one_evaluation": len(evaluations) <= 1,
    }


def _run_row(outcome: Outcome, run: Run | None) -> Plain:
    best, final = (run.best(), run.final()) if run else (None, None)
    return {
        "cell": outcome.planned.cell.label,
        "seed": outcome.planned.config.seed,
        "name": outcome.path.name,
        "path": str(outcome.path),
        "state": outcome.state,
        "best_loss_nats": best.loss_nats if best else None,
        "final_loss_nats": final.loss_nats if final else None,
        "sees_future": run.sees_future if run else None,
        "problem": outcome.problem,
    }


def _cell_row(label: str, rows: Sequence[Plain]) -> Plain:
    def mean(key: str) -> float | None:
        losses = [row[key] for row in rows if row[key] is not None]
        return fmean(losses) if losses else None

    states = [row["state"] for row in rows]
    seen = [row["sees_future"] for row in rows if row["state"] == "finished"]
    failed = sum(state in ("failed", "diverged") for state in states)
    return {
        "cell": label,
        "n": states.count("finished"),
        "sees_future": None if None in seen or not seen else any(seen),
        "mean_best_loss_nats": mean("best_loss_nats"),
        "mean_final_loss_nats": mean("final_loss_nats"),
        "failed": failed,
        "unfinished": len(states) - states.count("finished") - failed,
    }
