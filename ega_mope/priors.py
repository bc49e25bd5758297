"""Starts that are taken from another run: the scales it learned, or what its gates listen with.

A mechanism's setting `from_run` names the run, by name or folder. Taking writes it anew as NAME@HASH with the
hash of the values, so that two runs compare as equal only where they began with the same numbers, and the
values are kept in the new run's own folder: it opens, resumes and repeats without the run they are from.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ega_mope.attention import ATTENTIONS
from ega_mope.config import ModelConfig, Plain, to_plain
from ega_mope.model import CharLM, mechanism_settings
from ega_mope.positions import POSITIONS
from ega_mope.positions.base import Prior
from ega_mope.runs import Run, open_run

REGISTRIES: dict[str, dict[str, Any]] = {"attention": ATTENTIONS, "position": POSITIONS}
HASH_DIGITS = 12


@dataclass(frozen=True)
class Taken:
    """A prior taken for one mechanism: where it is from, for config.json, and its parameters by name."""

    source: Plain
    values: dict[str, Tensor]


def take_priors(config: ModelConfig) -> tuple[ModelConfig, dict[str, Taken]]:
    """The same model with each `from_run` as NAME@HASH, and what was taken for the attention or the position.

    Raises ValueError, in one line, for a run that is not there, has not finished, has no weights or does not
    fit, and for values that are no longer those of a given hash.
    """
    taken: dict[str, Taken] = {}
    for where in REGISTRIES:
        mechanism = getattr(config, where)
        if mechanism.get("from_run"):
            reference, taken[where] = _take(config, where, mechanism["from_run"])
            pinned: dict[str, Any] = {where: {**mechanism, "from_run": reference}}
            config = dataclasses.replace(config, **pinned)
    return config, taken


def why_no_prior(run: Run, where: str, name: str) -> str | None:
    """None, or why this run can give nothing to an attention or position (`where`) of that name."""
    its = getattr(run.config.model, where)["name"]
    if its != name:
        return f"{where} {its}"
    if run.status.state != "finished":
        return f"a training that is {run.status.state}"
    return None if (run.path / "model.safetensors").exists() else "no weights"


def _take(config: ModelConfig, where: str, given: str) -> tuple[str, Taken]:
    named, _, wanted = given.rpartition("@") if re.search(r"@[0-9a-f]+$", given) else (given, "", "")
    mechanism = getattr(config, where)
    label = f"{where} {mechanism['name']}: from_run"
    try:
        run = open_run(named)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None
    reason = why_no_prior(run, where, mechanism["name"])
    if reason is not None:
        raise ValueError(
            f"{label}: expected a finished run with {where} {mechanism['name']} and its weights, got {run.name} "
            f"with {reason}; choose another run"
        )
    values = _values(config, run, where, label)
    found = values_hash(values)
    if not found.startswith(wanted):
        raise ValueError(
            f"{label}: expected values with hash {wanted} in {run.name}, got {found[:HASH_DIGITS]}: it was trained "
            f"anew since; write {named} without a hash to take what it has now"
        )
    # By name where that leads back to it, so that the setting is the same wherever the runs are kept.
    reference = run.name if _leads_to(run.name, run) else str(run.path)
    source = {
        "run": run.name,
        "sha256": found,
        "corpus": run.document["corpus"]["name"],
        "corpus_sha256": run.document["corpus"]["sha256"],
        "seed": run.seed,
        "parameters": sorted(values),
    }
    return f"{reference}@{found[:HASH_DIGITS]}", Taken(source, values)


def _leads_to(name: str, run: Run) -> bool:
    try:
        return open_run(name).path.resolve() == run.path.resolve()
    except ValueError:
        return False


def _values(config: ModelConfig, run: Run, where: str, label: str) -> dict[str, Tensor]:
    """The parameters of the run that this mechanism takes, as they are called in our model."""
    cls, settings = mechanism_settings(REGISTRIES[where], getattr(config, where), where)
    prior: Prior = cls.prior
    here = {key: getattr(config, key) for key in prior.sizes}
    here |= {key: getattr(settings, key) for key in prior.settings}
    there = to_plain(run.config.model) | getattr(run.config.model, where)
    differing = [key for key, value in here.items() if there[key] != value]
    if differing:
        wanted, got = (", ".join(f"{key} {facts[key]}" for key in differing) for facts in (here, there))
        raise ValueError(
            f"{label}: expected a run with {wanted} as here, got {run.name} with {got}; choose another run, or "
            "the same settings"
        )
    values = _parameters(run.model("cpu"), where, prior)
    if not values:
        kept = ", ".join(f"{key} {here[key]}" for key in prior.settings)
        raise ValueError(
            f"{label}: expected a mechanism with learned parameters to take, got {kept}, which has none; "
            "leave from_run out"
        )
    return values


def _parameters(model: CharLM, where: str, prior: Prior) -> dict[str, Tensor]:
    """The parameters that are this prior's, by their names in the model."""
    root = r"position\." if where == "position" else r"blocks\.\d+\.attention\."
    wanted = re.compile(root + f"({'|'.join(map(re.escape, prior.parameters))})")
    return {name: value.detach().clone() for name, value in model.named_parameters() if wanted.match(name)}


def values_hash(values: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, shapes and float32 values: equal for equal starts."""
    digest = hashlib.sha256()
    for name in sorted(values):
        digest.update(f"{name}{list(values[name].shape)}".encode())
        digest.update(values[name].float().contiguous().numpy().tobytes())
    return digest.hexdigest()
