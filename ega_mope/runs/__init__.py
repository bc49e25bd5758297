"""Run folders: the only place that reads or writes them.

A folder is config.json, tokenizer.json, model.safetensors, metrics.jsonl, learned.jsonl, audit.json, status.json,
priors.safetensors where it started from parameters of another run, and training_state.pt while it can be resumed.
Files are replaced atomically or only appended to, so a kill at any moment loses nothing.
"""

from ega_mope.runs.curves import METRIC_COLUMNS, Curve
from ega_mope.runs.folder import FORMAT, STALE_SECONDS, Status, is_locked, runs_folder, shipped_folder
from ega_mope.runs.reading import (
    BrokenRun,
    LossPoint,
    Run,
    comparable_settings,
    config_from_document,
    list_runs,
    open_run,
    peak_memory_of,
)
from ega_mope.runs.writing import (
    RunWriter,
    checked_name,
    free_name,
    numbered_names,
    request_stop,
    to_json_bytes,
    write_atomically,
)

__all__ = [
    "FORMAT",
    "METRIC_COLUMNS",
    "STALE_SECONDS",
    "BrokenRun",
    "Curve",
    "LossPoint",
    "Run",
    "RunWriter",
    "Status",
    "checked_name",
    "comparable_settings",
    "config_from_document",
    "free_name",
    "is_locked",
    "list_runs",
    "numbered_names",
    "open_run",
    "peak_memory_of",
    "request_stop",
    "runs_folder",
    "shipped_folder",
    "to_json_bytes",
    "write_atomically",
]
