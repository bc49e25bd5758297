"""The command line that would train a run which is not there."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

from ega_mope.config import PRESETS, ExperimentConfig, Plain, flatten, preset, to_plain
from ega_mope.model import resolve
from ega_mope.runs import Run, runs_folder, shipped_folder
from ega_mope.text import CORPORA

OPTIONS = ("name", "gate_norm")
"""Settings of a mechanism that `train` has an option of its own for."""


def train_command(like: Run, config: ExperimentConfig) -> str:
    """The `ega-mope train` line for `config`, on the text, device and folder of the run `like`."""
    attention, position = config.model.attention, config.model.position
    size = config.preset if config.preset in PRESETS else next(iter(PRESETS))
    words = ["ega-mope", "train", "--attention", attention["name"], "--position", position["name"]]
    if "gate_norm" in attention:
        words += ["--gate-norm", attention["gate_norm"]]
    words += ["--preset", size, "--corpus", _corpus_argument(like), "--tokenizer", config.tokenizer]
    words += ["--seed", str(config.seed), "--device", like.document["device"]["type"]]
    if like.path.parent not in (runs_folder(), shipped_folder()):
        words += ["--runs", str(like.path.parent)]
    for key, value in _beyond_preset(config, size).items():
        words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join(words)


def _beyond_preset(config: ExperimentConfig, size: str) -> Plain:
    """Settings that the preset, the options and the text do not give, by dotted key."""
    model, training = preset(size)
    attention = {key: config.model.attention[key] for key in OPTIONS if key in config.model.attention}
    position = {"name": config.model.position["name"]}
    model = resolve(replace(model, attention=attention, position=position))
    given = flatten({"model": to_plain(model), "training": to_plain(training)})
    wanted = flatten({"model": to_plain(config.model), "training": to_plain(config.training)})
    # The vocabulary follows from the text.
    return {
        key: value
        for key, value in wanted.items()
        if given.get(key) != value and key != "model.vocabulary_size"
    }


def _corpus_argument(run: Run) -> str:
    """The registered name or, for a text of the user's, where it is stored; its bare name where it is not."""
    name = run.config.corpus
    if name in CORPORA:
        return name
    try:
        return run.corpus().source
    except ValueError:
        return name
