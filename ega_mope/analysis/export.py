"""All loss records of some runs as one tidy table, for other people's tools."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ega_mope.analysis.compare import evaluation_title
from ega_mope.analysis.runs import summarise
from ega_mope.runs import METRIC_COLUMNS, Run

SETTINGS = (
    "attention",
    "gate_norm",
    "signal",
    "position",
    "corpus",
    "corpus_sha256",
    "tokenizer",
    "preset",
    "seed",
    "sees_future",
)
COLUMNS = ("run", "path", *SETTINGS, "evaluation", *METRIC_COLUMNS)


def metrics_table(runs: Sequence[Run]) -> pd.DataFrame:
    """One row a record of metrics.jsonl (split and step), with the run's name and main settings beside it.

    Losses are in nats a token, NaN with `diverged` true where they were not finite. They compare only
    within one `corpus_sha256` and `evaluation`. A run given twice counts once. ValueError where there is no run, or no record.
    """
    different = list({run.path.resolve(): run for run in runs}.values())
    tables = [_of_run(run) for run in different]
    if not any(map(len, tables)):
        raise ValueError("export: expected runs with loss records, got none; train one first")
    return pd.concat([table for table in tables if len(table)], ignore_index=True)


def _of_run(run: Run) -> pd.DataFrame:
    table, summary = run.metrics(), summarise(run)
    summary["corpus_sha256"] = run.document["corpus"]["sha256"]
    facts = {"run": run.name, "path": str(run.path), **{key: summary[key] for key in SETTINGS}}
    # As objects: a setting that a run has none of must not turn another's whole numbers into fractions.
    beside = {key: pd.Series([value] * len(table), dtype=object) for key, value in facts.items()}
    evaluation = pd.Series([evaluation_title(run)] * len(table), dtype=object)
    return table.assign(**beside, evaluation=evaluation)[list(COLUMNS)]
