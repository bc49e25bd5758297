"""What do gates go with? Correlations of gates with what a character is, beside two controls.

The controls: the same model on the same characters in random order, where boundaries, repeats and words mean
nothing any more; and the attention that characters receive in a run without gates, since the argument for
gates (arXiv 2605.26355, section 2.1) is that plain attention does not tell which tokens carry much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ega_mope.analysis.gate_meaning.baseline import baseline_of, unigram_counts
from ega_mope.analysis.gate_meaning.measure import Measured, Sampling, features_of, measure
from ega_mope.analysis.gate_meaning.rank_correlation import DRAWS
from ega_mope.analysis.gate_meaning.rank_correlation import Progress as DrawsDone
from ega_mope.analysis.gate_meaning.received import attention_received
from ega_mope.analysis.gate_meaning.surprisal import surprisal
from ega_mope.analysis.gates import GateReading, gates, why_no_gates
from ega_mope.model import CharLM
from ega_mope.runs import BrokenRun, Run
from ega_mope.text import Reading

CHARACTERS = 2_000
"""The characters measured unless more are asked for: about what two cores do in three seconds."""

Progress = Callable[[float, str], None]
"""Called with the share done, 0 to 1, and what is being done."""


@dataclass(frozen=True, kw_only=True)
class Correlates:
    """What the gates of one run go with on one text, and the two controls.

    `text` and `shuffled` have the outcomes "gate" and "weight change", `baseline` (None where there is none)
    "attention received". `baseline_note` says how that run differs beyond its gates, or why there is none.
    `characters` of the text were read, of `characters_in_all`; `notice` is what must be said beside the gates.
    """

    run: str
    sees_future: bool | None
    notice: str | None
    characters: int
    characters_in_all: int
    rarity_from: str
    sampling: Sampling
    text: Measured
    shuffled: Measured
    baseline: Measured | None
    baseline_run: str | None
    baseline_note: str


def correlates(
    run: Run,
    text: str,
    *,
    runs: Sequence[Run | BrokenRun] = (),
    characters: int = CHARACTERS,
    draws: int = DRAWS,
    seed: int = 0,
    model_of: Callable[[Run], CharLM] = Run.model,
    progress: Progress | None = None,
) -> Correlates:
    """Measure the first `characters` of `text`; the baseline is looked for among `runs`.

    Left out are the text's first token, which has no surprisal, and characters with too few others to compare
    their energy with. `model_of` opens a run's weights. Raises ValueError for a run without gates or
    weights, and for a text that is too short to measure.
    """
    reason = why_no_gates(run)
    if reason:
        raise ValueError(
            f"{run.name}: expected a run with energy gates, got one where {reason}; choose another"
        )
    tokenizer, sampling = run.tokenizer, Sampling(draws=draws, seed=seed)
    model, (other, note) = model_of(run), baseline_of(run, runs)
    counts, rarity_from = unigram_counts(run, text)
    parts = 5 if other else 4

    def stage(first: int, size: int, doing: str) -> DrawsDone:
        return lambda done, total: (
            progress((first + size * done / total) / parts, doing) if progress else None
        )

    part = text[:characters]
    found = gates(model, part, tokenizer=tokenizer)
    as_it_is = gate_correlates(model, found, counts, sampling, stage(0, 2, "the text"))
    mixed = gates(model, shuffled(found.reading, seed), tokenizer=tokenizer)
    control = gate_correlates(model, mixed, counts, sampling, stage(2, 2, "the text shuffled"))
    baseline = None
    if other is not None:
        beside, said = model_of(other), stage(4, 1, "the baseline")
        baseline = received_correlates(beside, found.reading, as_it_is.places, counts, sampling, said)
    return Correlates(
        run=run.name,
        sees_future=run.sees_future,
        notice=found.notice,
        characters=len(part),
        characters_in_all=len(text),
        rarity_from=rarity_from,
        sampling=sampling,
        text=as_it_is,
        shuffled=control,
        baseline=baseline,
        baseline_run=other.name if other else None,
        baseline_note=note,
    )


def gate_correlates(
    model: CharLM,
    found: GateReading,
    counts: Counter[str],
    sampling: Sampling,
    progress: DrawsDone | None = None,
) -> Measured:
    """Gate and weight change against every feature, over the characters with enough others to compare with."""
    if found.weight_change is None:
        raise ValueError(
            "reading: expected one with the weight change, got one made without it; read again with it"
        )
    surprise = surprisal(model, found.reading)
    features = features_of(found.reading, surprise, counts, model.config.context_length)
    outcomes = {"gate": found.gate, "weight change": found.weight_change}
    return measure(found.reading, features, outcomes, found.known & ~found.few, sampling, progress)


def received_correlates(
    model: CharLM,
    reading: Reading,
    places: np.ndarray,
    counts: Counter[str],
    sampling: Sampling,
    progress: DrawsDone | None = None,
) -> Measured:
    """The attention that the characters at `places` receive, against every feature with this model's surprisal."""
    features = features_of(reading, surprisal(model, reading), counts, model.config.context_length)
    among = np.zeros(len(reading.characters), np.bool_)
    among[places] = True
    outcomes = {"attention received": attention_received(model, reading)}
    return measure(reading, features, outcomes, among, sampling, progress)


def shuffled(reading: Reading, seed: int) -> str:
    """The characters that the model reads, in random order; those it does not read are left out."""
    known = np.array(list(reading.characters), dtype=object)[reading.known]
    return "".join(np.random.default_rng(seed).permutation(known))
