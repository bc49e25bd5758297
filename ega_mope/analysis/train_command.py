"""The command lines that would train runs which are not there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace

from ega_mope.config import PRESETS, ExperimentConfig, Plain, flatten, preset, to_plain
from ega_mope.model import resolve
from ega_mope.runs import Run, runs_folder, shipped_folder
from ega_mope.text import CORPORA

MECHANISMS = ("model.attention.", "model.position.")
OPTIONS = ("name", "gate_norm")
"""Settings of a mechanism that `train` has an option of its own for."""


def train_command(like: Run, config: ExperimentConfig) -> str:
    """The `ega-mope train` line for `config`, on the text, device and folder of the run `like`."""
    return shlex.join([*_train_words(config, _corpus_argument(like)), *_where(like)])


def train_commands(like: Run | None, config: ExperimentConfig, seeds: Sequence[int]) -> str:
    """One line that trains `config` at each of these seeds: a loop of the shell where there are several.

    Without a run to be like, on the text that the settings name, wherever the user trains.
    """
    first = replace(config, seed=seeds[0])
    line = train_command(like, first) if like else shlex.join(_train_words(first, config.corpus))
    if len(seeds) == 1:
        return line
    looped = line.replace(f"--seed {seeds[0]}", "--seed $seed", 1)
    return f"for seed in {' '.join(map(str, seeds))}; do {looped}; done"


def sweep_command(like: Run | None, grid: str, seeds: Sequence[int]) -> str:
    """The `ega-mope sweep` line for a named grid with the size, text, training and device of the run `like`.

    What is there already is not trained again. Without a run: at the size and on the text of the study.
    """
    words = ["ega-mope", "sweep", "--grid", grid, "--seeds", seed_range(seeds)]
    if like is None:
        return shlex.join([*words, "--preset", "small", "--corpus", "tinyshakespeare"])
    config = like.config
    assert isinstance(config, ExperimentConfig)
    size = _size(config)
    words += ["--preset", size, "--corpus", _corpus_argument(like), "--tokenizer", config.tokenizer]
    bare = {key: v for key, v in _beyond_preset(config, size).items() if not key.startswith(MECHANISMS)}
    return shlex.join([*words, *_settings(bare), *_where(like)])


def seed_range(seeds: Sequence[int]) -> str:
    """Seeds as `ega-mope sweep` takes them: "0-5" where they follow on each other, else "0,2,7"."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}-{seeds[-1]}"
    return ",".join(map(str, seeds))


def _train_words(config: ExperimentConfig, corpus: str) -> list[str]:
    attention, position = config.model.attention, config.model.position
    size = _size(config)
    words = ["ega-mope", "train", "--attention", attention["name"], "--position", position["name"]]
    if "gate_norm" in attention:
        words += ["--gate-norm", attention["gate_norm"]]
    words += ["--preset", size, "--corpus", corpus, "--tokenizer", config.tokenizer]
    return [*words, "--seed", str(config.seed), *_settings(_beyond_preset(config, size))]


def _size(config: ExperimentConfig) -> str:
    return config.preset if config.preset in PRESETS else next(iter(PRESETS))


def _settings(values: Plain) -> list[str]:
    pairs = (
        f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in values.items()
    )
    return [word for pair in pairs for word in ("--set", pair)]


def _where(like: Run) -> list[str]:
    words = ["--device", like.document["device"]["type"]]
    if like.path.parent not in (runs_folder(), shipped_folder()):
        words += ["--runs", str(like.path.parent)]
    return words


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
