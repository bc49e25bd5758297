"""Finds the 2×2 experiments among runs: attention without and with a gate × position without and with MoPE."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from ega_mope.analysis.naming import attention_name, digest, position_name
from ega_mope.analysis.train_command import train_command
from ega_mope.config import ExperimentConfig, ModelConfig, Plain, TrainConfig, flatten, to_plain
from ega_mope.model import is_causal, resolve
from ega_mope.runs import Run

GATED = ("ega",)
"""Attentions that can be the pair's second; its first is `dot`."""

MORLET = ("mope", "mope_relative")
"""Positions that can be the pair's second; every other one can be its first."""

CELLS = {"00": "baseline", "10": "EGA", "01": "MoPE", "11": "EGA + MoPE"}
"""First digit: is the attention gated; second: are the positions Morlet's."""


@dataclass(frozen=True)
class Family:
    """One 2×2: all settings equal but attention and position. `attentions` and `positions`: without, with."""

    attentions: tuple[Plain, Plain]
    positions: tuple[Plain, Plain]
    example: Run
    device: str
    cells: dict[str, tuple[Run, ...]]

    @property
    def missing(self) -> list[str]:
        """The cells without a run."""
        return [cell for cell in CELLS if not self.cells[cell]]

    @property
    def complete(self) -> bool:
        """Whether all four cells have runs, on one kind of device and with one evaluation."""
        members = (run for runs in self.cells.values() for run in runs)
        return not self.missing and len({_measured_on(run) for run in members}) == 1

    @property
    def lacking(self) -> list[tuple[str, int]]:
        """Cell and seed of every run to train: each missing cell at the seeds that the others share, else at
        those that any has. Empty where no cell is missing."""
        seeds = [{_config(run).seed for run in runs} for runs in self.cells.values() if runs]
        wanted = sorted(set.intersection(*seeds) or set.union(*seeds))
        return [(cell, seed) for cell in self.missing for seed in wanted]

    @property
    def commands(self) -> list[str]:
        """What would train the missing cells, a line a run."""
        return [self._command(cell, seed) for cell, seed in self.lacking]

    @property
    def refused(self) -> str | None:
        """Why there is no interaction to compute; None where there is."""
        if self.complete:
            return None
        return self._too_few() if self.missing else _mixed(self.cells)

    def _command(self, cell: str, seed: int) -> str:
        like = next(runs[0] for runs in self.cells.values() if runs)
        config = _with(_config(like), self.attentions[int(cell[0])], self.positions[int(cell[1])])
        return train_command(like, replace(config, seed=seed))

    def _too_few(self) -> str:
        named = ", ".join(
            f"{cell} ({attention_name(self.attentions[int(cell[0])])} + {position_name(self.positions[int(cell[1])])})"
            for cell in self.missing
        )
        return (
            f"expected runs in all four cells, got none in {named}; train "
            f"{'it' if len(self.lacking) == 1 else 'them'}, starting with: {self._command(*self.lacking[0])}"
        )

    @cached_property
    def key(self) -> str:
        """A name for links and `--family`: the mechanisms, and a hash of what else is not at its default.

        So a setting that a newer lab adds changes no key.
        """
        usual = flatten({"model": to_plain(ModelConfig()), "training": to_plain(TrainConfig())})
        rest = {key: value for key, value in _rest(self.example).items() if value != usual.get(key)}
        pair = [attention_name(self.attentions[1]), *map(position_name, self.positions)]
        words = "-".join(pair).replace(" ", "-")
        return f"{words}-{digest([rest, self.example.evaluation, self.device])}"

    @property
    def label(self) -> str:
        """Both pairs, then text, size and training: what tells this family from others."""
        model, training = _config(self.example).model, _config(self.example).training
        (attention, gated), (position, morlet) = self.attentions, self.positions
        pairs = f"{attention_name(attention)} → {attention_name(gated)} × {position_name(position)} → {position_name(morlet)}"
        corpus = self.example.document["corpus"]["name"]
        size = f"{_config(self.example).preset}: {model.n_layers} layers, d = {model.d_model}, context {model.context_length}"
        return f"{pairs} · {corpus}, {self.tokenizer} · {size} · {training.steps:,} steps · {self.device}"

    @property
    def tokenizer(self) -> str:
        """What one token is."""
        return _config(self.example).tokenizer

    @property
    def gate_norm(self) -> str | None:
        """What the gated attention compares a token's energy with."""
        return self.attentions[1].get("gate_norm")

    @property
    def sees_future(self) -> bool:
        """Whether any cell's predictions may depend on later tokens: as declared, or as an audit measured."""
        declared = any(
            not is_causal(_with(_config(self.example), attention, position).model)
            for attention, position in itertools.product(self.attentions, self.positions)
        )
        return declared or any(run.sees_future is True for runs in self.cells.values() for run in runs)

    @property
    def seeds(self) -> set[int]:
        """Seeds that all four cells have."""
        return set.intersection(*({_config(run).seed for run in self.cells[cell]} for cell in CELLS))

    def to_json(self) -> Plain:
        """Which pairs, which gate norm, which text, size and training."""
        model = _config(self.example).model
        return {
            "key": self.key,
            "label": self.label,
            "attention_pair": list(self.attentions),
            "position_pair": list(self.positions),
            "gate_norm": self.gate_norm,
            "sees_future": self.sees_future,
            "corpus": self.example.document["corpus"]["name"],
            "tokenizer": self.tokenizer,
            "preset": _config(self.example).preset,
            "context_length": model.context_length,
            "steps": _config(self.example).training.steps,
            "device": self.device,
        }


def find_families(runs: Iterable[Run]) -> list[Family]:
    """Every 2×2 that has at least one cell, best first.

    Cells of one family share model, training, text, evaluation and kind of device. Where no kind of
    device (or evaluation) has all four cells but together they would, the family is refused for that
    reason; where a cell is missing altogether, for that one. Order: complete before refused, then most
    cells, causal before those that see the future, most seeds in all four cells, most training steps.
    """
    groups: dict[str, list[Run]] = {}
    for run in filter(trained_here, runs):
        groups.setdefault(digest(_rest(run)), []).append(run)
    families = [family for group in groups.values() for family in _families_of(group)]
    return sorted(
        families,
        key=lambda family: (
            not family.complete,
            len(family.missing),
            family.sees_future,
            -len(family.seeds),
            -_config(family.example).training.steps,
            family.label,
            family.key,
        ),
    )


def begun(families: Iterable[Family]) -> list[Family]:
    """Those with two cells or more that cannot be computed yet, the fewest runs to train first.

    Last come those whose four cells are there but do not match: no count of runs can be said of them.
    """
    incomplete = [family for family in families if not family.complete and len(family.missing) < 3]
    return sorted(incomplete, key=lambda family: (not family.lacking, len(family.lacking)))


def trained_here(run: Run) -> bool:
    """Whether its training and seed are known; of an imported run nobody can say that all else was equal."""
    return isinstance(run.config, ExperimentConfig)


def stratum(run: Run) -> str:
    """Stands for all that runs must share to be compared: every setting but the two mechanisms and the seed,
    what the loss was measured on, and the kind of device."""
    return digest([_rest(run), run.evaluation, _device(run)])


def _config(run: Run) -> ExperimentConfig:
    assert isinstance(run.config, ExperimentConfig)
    return run.config


def _families_of(runs: list[Run]) -> list[Family]:
    """All pairs of a plain and a gated attention with a base and a Morlet position in one group."""
    attentions = _distinct(run.config.model.attention for run in runs)
    positions = _distinct(run.config.model.position for run in runs)
    # Where a group has none of a kind, its usual member stands in, so that the cell it lacks can be named.
    usual = _config(runs[0])
    pairs = itertools.product(
        [a for a in attentions if a["name"] == "dot"] or [_default(usual, "attention", "dot")],
        [a for a in attentions if a["name"] in GATED] or [_default(usual, "attention", "ega")],
        [p for p in positions if p["name"] not in MORLET] or [_default(usual, "position", "learned")],
        [p for p in positions if p["name"] in MORLET] or [_default(usual, "position", "mope")],
    )
    return [
        family
        for plain, gated, base, morlet in pairs
        for family in _by_stratum((plain, gated), (base, morlet), runs)
    ]


def _by_stratum(
    attentions: tuple[Plain, Plain], positions: tuple[Plain, Plain], runs: list[Run]
) -> list[Family]:
    strata: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        strata.setdefault(_measured_on(run), []).append(run)
    complete = []
    for (device, _), members in strata.items():
        cells = _sort_into_cells(attentions, positions, members)
        if all(cells.values()):
            complete.append(Family(attentions, positions, members[0], device, cells))
    if complete:
        return complete
    cells = _sort_into_cells(attentions, positions, runs)
    if not any(cells.values()):
        return []
    example = next(run for members in cells.values() for run in members)
    devices = " and ".join(sorted({_device(run) for members in cells.values() for run in members}))
    return [Family(attentions, positions, example, devices, cells)]


def _sort_into_cells(
    attentions: tuple[Plain, Plain], positions: tuple[Plain, Plain], runs: list[Run]
) -> dict[str, tuple[Run, ...]]:
    def members(cell: str) -> tuple[Run, ...]:
        attention, position = attentions[int(cell[0])], positions[int(cell[1])]
        models = ((run, run.config.model) for run in runs)
        return tuple(run for run, m in models if m.attention == attention and m.position == position)

    return {cell: members(cell) for cell in CELLS}


def _mixed(cells: dict[str, tuple[Run, ...]]) -> str:
    """Why four filled cells do not make a 2×2."""
    devices = {cell: sorted({_device(run) for run in runs}) for cell, runs in cells.items()}
    if len(set(itertools.chain(*devices.values()))) > 1:
        got = ", ".join(f"{cell} on {' and '.join(kinds)}" for cell, kinds in devices.items())
        return (
            f"expected all four cells trained on one kind of device, got {got}; "
            "train what one kind lacks (--device cpu or cuda)"
        )
    return (
        "expected all four cells evaluated on the same text in the same way, got different `evaluation` in "
        "their config.json; train them again with the same version of the lab"
    )


def _rest(run: Run) -> Plain:
    """All settings but the two mechanisms. A text is its hash: under another name it is the same text."""
    return {
        key: value
        for key, value in run.settings().items()
        if not key.startswith(("model.attention.", "model.position.")) and key != "corpus.name"
    }


def _with(config: ExperimentConfig, attention: Plain, position: Plain) -> ExperimentConfig:
    return replace(config, model=replace(config.model, attention=attention, position=position))


def _default(config: ExperimentConfig, where: str, name: str) -> Plain:
    """The mechanism of that name with its default settings."""
    usual = resolve(ModelConfig(**to_plain(config.model) | {where: {"name": name}}))
    return to_plain(usual)[where]


def _measured_on(run: Run) -> tuple[str, str]:
    """Kind of device and a hash of the evaluation: runs of one 2×2 differ in neither."""
    return _device(run), digest(run.evaluation)


def _device(run: Run) -> str:
    return run.document["device"]["type"]


def _distinct(mechanisms: Iterable[Plain]) -> list[Plain]:
    return list({digest(mechanism): mechanism for mechanism in mechanisms}.values())
