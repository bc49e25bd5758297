"""The run without gates that a gated one is read beside, and the counts of the text a run was trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ega_mope.analysis.naming import position_name
from ega_mope.config import Plain
from ega_mope.runs import BrokenRun, Run
from ega_mope.text import at_hand

TRAINING_SHARE = 0.9
"""The part of a corpus that runs are trained on, counted from its beginning (`ega_mope.text.split_ids`)."""


def baseline_of(run: Run, runs: Sequence[Run | BrokenRun]) -> tuple[Run | None, str]:
    """The most comparable run with dot-product attention and weights, and what differs beyond the gates.

    Text, size and training must be equal; the same position and the same seed are preferred, in this order.
    None and the reason where there is no such run.
    """
    if run.config.training is None:
        return None, "this run was trained elsewhere: which baseline compares is not known"
    able = [other for other in runs if isinstance(other, Run) and _comparable(other, run)]
    if not able:
        name = run.document["corpus"]["name"]
        return None, (
            "none here: needed is a run with dot-product attention and its weights, all else equal; make it with "
            f"`ega-mope train --attention dot --position {run.config.model.position['name']} "
            f"--preset {run.config.preset} --corpus {name} --tokenizer {run.config.tokenizer} --seed {run.seed}`"
        )
    position = run.config.model.position
    best = max(able, key=lambda other: (other.config.model.position == position, other.seed == run.seed))
    differs = []
    if best.config.model.position != position:
        theirs, mine = position_name(best.config.model.position), position_name(position)
        differs.append(f"its position is {theirs}, not {mine}")
    if best.seed != run.seed:
        differs.append(f"its seed is {best.seed}, not {run.seed}")
    return best, "; ".join(differs)


def _comparable(other: Run, run: Run) -> bool:
    dot = other.config.model.attention["name"] == "dot"
    return dot and (other.path / "model.safetensors").exists() and _rest(other) == _rest(run)


def _rest(run: Run) -> Plain:
    left_out = ("model.attention.", "model.position.")
    return {key: value for key, value in run.settings().items() if not key.startswith(left_out)}


def why_no_counts(run: Run) -> str | None:
    """None, or why the characters of the run's training text cannot be counted; nothing is fetched for it."""
    corpus = run.document["corpus"]
    if corpus["sha256"] is None:
        return "the run was imported without its training text"
    if corpus["name"] == "tinyshakespeare" and not at_hand("tinyshakespeare"):
        return "its training text is not here (`ega-mope data tinyshakespeare` fetches it)"
    try:
        run.corpus()
    except ValueError:
        return "its training text is not here"
    return None


def unigram_counts(run: Run, text: str) -> tuple[Counter[str], str]:
    """How often each character occurs where rarity is taken from, and in words where that is.

    The run's training text where it is here, else `text` itself.
    """
    reason = why_no_counts(run)
    if reason:
        return Counter(text), f"this text itself ({len(text):,} characters), since {reason}"
    whole = run.corpus().text
    counted = whole[: int(TRAINING_SHARE * len(whole))]
    return Counter(counted), f"the run's training text ({len(counted):,} characters)"
