"""Does a model see the future? For the lab's runs and for any torch callable from ids to logits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ega_mope.analysis.audit.answer import Audit, assemble, cannot_audit, decide
from ega_mope.analysis.audit.changes import audit_windows, others_changed
from ega_mope.analysis.audit.losses import DRAWS, PAIRS, Losses, draw_sample, measure_losses
from ega_mope.analysis.audit.probe import Finding, Null, probe
from ega_mope.analysis.audit.subject import CallError, Mode, Subject
from ega_mope.analysis.audit.where import cut_row, cut_time, first_leak
from ega_mope.runs import Run, RunWriter, open_run
from ega_mope.text import split_ids
from ega_mope.training import windows

__all__ = ["Audit", "audit", "cannot_audit", "keep_audit", "stored_audit"]

Progress = Callable[[float, str], object]
"""Told now and then how much is done, 0 to 1, and what is being done."""


def audit(
    model: Run | str | Path | Callable[[Tensor], Any],
    ids: Any = None,
    *,
    context: int | None = None,
    losses: bool = True,
    predictions: int = PAIRS,
    draws: int = DRAWS,
    device: str = "auto",
    progress: Progress = lambda fraction, doing: None,
) -> Audit:
    """Whether earlier predictions of `model` depend on later tokens, and what that does to its loss.

    `model` is a run (or its name or folder), a torch module or a function from ids [batch, time] to
    logits [batch, time, vocabulary]. `ids` are windows [window, time], or one long text [time] with
    `context` tokens a window; a run brings its own validation text. A module is asked in evaluation and
    in training mode, in its own precision and in bf16; it comes back as it was. `losses=False` leaves the
    losses out: on tokens that are no text they mean nothing. `predictions` is how many are sampled,
    `draws` how many other futures each is given.
    Raises ValueError for ids that cannot be audited and for a model that cannot be called on them.
    """
    run = open_run(model) if isinstance(model, str | Path) else model if isinstance(model, Run) else None
    if run is None:
        assert not isinstance(model, Run | str | Path)
        subject = Subject(model)
    else:
        subject = Subject(run.model(device))
        context = context or run.config.model.context_length
        ids = _validation_ids(run) if ids is None else ids
    if ids is None:
        raise ValueError(
            "ids: expected windows of tokens [window, time], got none; pass some, real text if you can"
        )
    inputs, targets = _windows(ids, context)
    with subject.borrowed():
        return _audit(
            run.name if run else None, subject, inputs, targets, losses, predictions, draws, progress
        )


def stored_audit(run: Run) -> Audit | None:
    """What the run's audit.json says; None where it has none. ValueError where it cannot be read."""
    document = run.audit
    return None if document is None else Audit.from_plain(document)


def keep_audit(run: Run, answer: Audit) -> None:
    """Write the answer into the run's audit.json; ValueError while the run is in training."""
    writer = RunWriter(run.path)
    try:
        writer.save_audit(answer.to_plain())
    finally:
        writer.close()


def _audit(
    name: str | None,
    subject: Subject,
    inputs: Tensor,
    targets: Tensor,
    wants_losses: bool,
    predictions: int,
    draws: int,
    progress: Progress,
) -> Audit:
    known = inputs.unique()
    ids = audit_windows(inputs, torch.Generator().manual_seed(3))
    modes = subject.modes()
    try:
        subject.logits(ids, modes[0])
    except CallError as error:
        raise ValueError(
            f"model: expected logits for ids {list(ids.shape)}, got {error}; audit it with ids it can read"
        ) from error
    findings: list[Finding] = []
    nulls: dict[str, Null | None] = {}
    share = 0.45 / len(modes)
    for number, mode in enumerate(modes):
        progress(share * number, f"changing later tokens: {subject.name(mode)}")
        finding, null = probe(subject, mode, ids, known, nulls.get(mode.precision))
        nulls.setdefault(mode.precision, null)
        findings.append(finding)
    decision = decide(findings)
    place = None
    if decision.verdict == "sees the future":
        progress(0.45, "finding the module")
        place = _place(subject, modes[findings.index(decision.finding)], ids, known, decision.finding)
    measured, sample = Losses({}, {}), None
    if wants_losses:
        sample = draw_sample(inputs, targets, predictions)
        measured = measure_losses(
            subject, modes[0], sample, draws, lambda done: progress(0.5 + 0.5 * done, "measuring losses")
        )
    progress(1.0, "done")
    return assemble(
        run=name,
        decision=decision,
        findings=findings,
        where=place,
        context=inputs.shape[1],
        losses=measured,
        sample=sample,
        draws=draws,
        notes=_notes(subject, findings, decision.verdict, place, wants_losses),
    )


def _place(subject: Subject, mode: Mode, ids: Tensor, known: Tensor, finding: Finding) -> str | None:
    """The module that lets the future in, from the change that moved the logits most."""
    batch, time = ids.shape
    if finding.sees_own_future and finding.worst is not None:
        first, changed = finding.worst.first, finding.worst.ids
        row = slice(finding.worst_row, finding.worst_row + 1)
        # One window alone first: its axes cannot be mistaken. Some models cannot be called on one.
        return first_leak(subject, mode, ids[row], changed[row], cut_time(1, time, first)) or first_leak(
            subject, mode, ids, changed, cut_time(batch, time, first)
        )
    row_kept, changed = others_changed(ids, known, torch.Generator().manual_seed(1))[0]
    return first_leak(subject, mode, ids, changed, cut_row(batch, time, row_kept))


def _notes(
    subject: Subject, findings: list[Finding], verdict: str, place: str | None, wants_losses: bool
) -> list[str]:
    notes = [f"{f.mode}: {f.problem}" for f in findings if f.problem]
    if subject.module is None:
        notes.append(
            "a plain function has no training mode and no modules to look into: it was audited as called"
        )
    elif verdict == "sees the future" and place is None:
        notes.append("no single module could be named: none has clean inputs and an output that moves")
    notes += [
        f"{f.mode}: predictions change by up to {f.batch:.2g} with the order or the size of the batch"
        for f in findings
        if f.batch
    ]
    if verdict == "sees the future":
        notes.append(
            "prefix-only mixes two things, the missing future and windows shorter than the model was trained on; "
            "what the future was worth is bounded by the same model trained without it"
        )
    if not wants_losses:
        notes.append("losses could not be computed: the tokens are drawn at random, not taken from a text")
    return notes


def _validation_ids(run: Run) -> Any:
    ids = run.tokenizer.encode(run.corpus().text)
    return split_ids(ids, run.config.model.context_length)[1]


def _windows(ids: Any, context: int | None) -> tuple[Tensor, Tensor]:
    """Inputs [window, time] and the tokens that follow, [window, predicted]: of a window given whole the
    last prediction has no target."""
    tokens = torch.as_tensor(ids).cpu()
    if tokens.is_floating_point() or tokens.ndim not in (1, 2):
        raise ValueError(
            f"ids: expected whole numbers [window, time] or [time], got {tokens.dtype} {list(tokens.shape)}; "
            "pass token ids"
        )
    tokens = tokens.long()
    if tokens.ndim == 1:
        if context is None or not 2 <= context < len(tokens):
            raise ValueError(
                f"context: expected 2 to {len(tokens) - 1} tokens a window for a text of {len(tokens)} tokens, "
                f"got {context}; pass context=…"
            )
        cut = windows(tokens, context)
        inputs, targets = cut[:, :-1], cut[:, 1:]
    else:
        inputs, targets = tokens, tokens[:, 1:]
    if inputs.shape[0] < 1 or inputs.shape[1] < 2 or len(inputs.unique()) < 2:
        raise ValueError(
            f"ids: expected windows of at least 2 tokens with 2 different ones among them, got {list(inputs.shape)} "
            f"with {len(inputs.unique())}; pass longer or more varied windows"
        )
    return inputs.contiguous(), targets.contiguous()
