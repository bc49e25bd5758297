"""An audit in words and in tables, for people: the page, the command line, the figures."""

from __future__ import annotations

import pandas as pd

from ega_mope.analysis.audit.answer import CURVES, Audit
from ega_mope.analysis.audit.beside import Beside

CURVE_NAMES = {
    "teacher_forced": "the true text that follows (teacher-forced)",
    "exchanged_future": "another text that follows (exchanged future)",
    "prefix_only": "nothing that follows (prefix-only)",
}
"""What the model is shown after the position whose next token it guesses."""


def headline(audit: Audit) -> str:
    """The verdict with its mode and place, and the reason in one sentence."""
    place = f", first in {audit.where}" if audit.where else ""
    mode = audit.mode if audit.verdict == "causal" else f"in {audit.mode}"
    return f"{audit.verdict} ({mode}{place}). {audit.reason}"


def losses_in_words(audit: Audit) -> str:
    """What the first picture shows, in one sentence for somebody who has never seen it."""
    true, other, prefix = audit.teacher_forced_nats, audit.exchanged_future_nats, audit.prefix_only_nats
    if true is None or other is None:
        why = next((note for note in audit.notes if "could not be computed" in note), None)
        return why or "The losses could not be computed."
    gap, error = other - true, audit.standard_error.get("exchanged_future_minus_teacher_forced")
    within = f" ± {error:.3f}" if error is not None else ""
    if abs(gap) <= 1e-5 and (prefix is None or abs(prefix - true) <= 1e-5):
        return (
            "The curves lie on one another: whatever text follows, or none, the guess of the next token stays "
            f"the same ({true:.3f} nats)."
        )
    meaning = "it leans on text it will not have when it writes"
    if error is None or abs(gap) < 2 * error:
        meaning = "on average no more than chance here, although the guesses do change"
    return (
        f"Shown the true text that follows, the loss of the next token is {true:.3f} nats; shown another text in its "
        f"place, {other:.3f} ({gap:+.3f}{within}): {meaning}."
    )


def value_in_words(audit: Audit, twin: Beside | None) -> str | None:
    """What the future was worth, said only beside the twin trained without it; None for a causal run."""
    if audit.verdict != "sees the future" or twin is None:
        return None
    if twin.gap_nats is None:
        why = twin.missing or "its twin has no losses"
        return f"What the future was worth in nats cannot be said from this run alone: {why}."
    within = f" ± {twin.gap_error:.3f}" if twin.gap_error is not None else ""
    whole = (
        f"; over the whole validation {twin.validation_gap_nats:+.3f}"
        if twin.validation_gap_nats is not None
        else ""
    )
    return (
        f"The loss of its twin {twin.run}, trained without the future, differs by {twin.gap_nats:+.3f}{within} nats on "
        f"the sampled predictions{whole}: that is what the future was worth between these two trainings."
    )


def loss_table(audit: Audit, baseline: Beside | None = None, twin: Beside | None = None) -> pd.DataFrame:
    """A row for each curve and part of the window: first and last position, loss and its error in nats."""
    low, high = audit.by_position["from"], audit.by_position["to"]
    curves = {
        CURVE_NAMES[name]: (audit.by_position[name], audit.by_position["standard_error"][name])
        for name in CURVES
        if audit.by_position[name] is not None
    }
    for label, other in (("baseline", baseline), ("twin without the future", twin)):
        if other is not None and other.by_position:
            curves[f"{label} {other.run}"] = (list(other.by_position), [None] * len(low))
    rows = [
        {"curve": name, "from": a, "to": b, "loss_nats": loss, "standard_error": error}
        for name, (losses, errors) in curves.items()
        for a, b, loss, error in zip(low, high, losses, errors, strict=True)
    ]
    columns = ["curve", "from", "to", "loss_nats", "standard_error"]
    return pd.DataFrame(rows, columns=columns).astype({"loss_nats": float, "standard_error": float})


def distance_table(audit: Audit) -> pd.DataFrame:
    """A row for each range of distances: the largest movement of a logit that far before a changed token."""
    columns = {key: audit.by_distance[key] for key in ("from", "to")}
    moved = audit.by_distance["max_logit_change"]
    table = pd.DataFrame(columns | {"max_logit_change": moved if moved else [None] * len(columns["from"])})
    return table.astype({"max_logit_change": float})


def mode_table(audit: Audit) -> pd.DataFrame:
    """A row for each mode: verdict, largest movements, and what rounding explains."""
    return pd.DataFrame(audit.modes).dropna(axis="columns", how="all")


def beside_table(audit: Audit, others: dict[str, Beside | None]) -> pd.DataFrame:
    """Losses of the audited run and of its companions at the same predictions, in nats per token."""
    rows: list[dict[str, object]] = [
        {"what": CURVE_NAMES[name], "loss_nats": getattr(audit, f"{name}_nats"), "run": audit.run}
        for name in CURVES
    ]
    rows += [
        {"what": label, "loss_nats": other.teacher_forced_nats, "run": other.run}
        for label, other in others.items()
        if other is not None
    ]
    return pd.DataFrame(rows).astype({"loss_nats": float})
