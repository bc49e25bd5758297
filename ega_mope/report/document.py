"""What a report of some runs says: its sections, from the analyses that the pages show too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from statistics import mean

import plotly.graph_objects as go

from ega_mope.analysis import compare, curves
from ega_mope.analysis import superadditivity_report as two_by_two
from ega_mope.analysis.claims import RULES, Judged, judge, tables
from ega_mope.analysis.factorial import Family, find_families
from ega_mope.analysis.runs import FUTURE_WORDS, summarise
from ega_mope.analysis.superadditivity import Superadditivity, superadditivity
from ega_mope.plots.compare import loss_curves
from ega_mope.plots.style import run_colours, run_dashes
from ega_mope.plots.superadditivity import gains_over_training, waterfall
from ega_mope.report.blocks import Block, Commands, Drawing, Heading, Notes, Section, Table, Text
from ega_mope.runs import BrokenRun, Run

NOTHING = "–"
MOST_COMMANDS = 12
LOSSES = ("teacher_forced", "exchanged_future", "prefix_only")
"""What the audit measured, in the order of its table."""


def sections(runs: Iterable[Run | BrokenRun]) -> list[Section]:
    """The whole report: claims first, then what they rest on."""
    found = list(runs)
    whole = sorted((run for run in found if isinstance(run, Run)), key=lambda run: run.name)
    judged = judge(whole)
    made = [
        _claims(judged, whole),
        _families(whole, drawn=True),
        _losses(whole, drawn=True),
        _runs(whole),
        _audits(whole),
        _broken([run for run in found if isinstance(run, BrokenRun)]),
    ]
    return [section for section in made if section.blocks]


def findings(runs: Iterable[Run | BrokenRun]) -> list[Section]:
    """The part of docs/FINDINGS.md that is generated: without the list of single runs."""
    whole = sorted((run for run in runs if isinstance(run, Run)), key=lambda run: run.name)
    made = [
        _claims(judge(whole), whole),
        _families(whole, drawn=False),
        _losses(whole, drawn=False),
        _audits(whole),
    ]
    return [section for section in made if section.blocks]


def when(runs: Sequence[Run]) -> str:
    """How many runs, and the day on which the last of them finished (UTC)."""
    beats = [beat for run in runs if run.status.state == "finished" and (beat := run.status.heartbeat)]
    last = f", the last finished on {datetime.fromtimestamp(max(beats), UTC):%Y-%m-%d}" if beats else ""
    return f"From {len(runs)} run folder{'' if len(runs) == 1 else 's'}{last}."


def _claims(judged: Sequence[Judged], runs: Sequence[Run]) -> Section:
    blocks: list[Block | Heading] = [Text(when(runs)), Text(tables.summary(judged), strong=True), Text(RULES)]
    for group in dict.fromkeys(one.claim.group for one in judged):
        members = [one for one in judged if one.claim.group == group]
        rows = tuple(tables.shown_rows(members))
        blocks += [
            Heading(group),
            Table(tables.SHOWN, rows, numbers=("estimate", "the paper's")),
            Notes("Tests, reasons and numbers beside them", tuple(map(_claim_note, members))),
        ]
    blocks.append(Text("“The paper's” are the published numbers (arXiv 2605.26355), not measured here."))
    commands = dict.fromkeys(line for one in judged for line in one.outcome.commands)
    if commands:
        blocks.append(Commands("What would decide more of them", tuple(commands)[:MOST_COMMANDS]))
    return Section("Claims", tuple(blocks))


def _claim_note(one: Judged) -> tuple[str, str]:
    parts = [
        f"{part.name}: {tables.number(part.estimate, part.unit)}"
        + (f" {tables.interval_text(part.interval, part.unit)}" if part.interval else "")
        + (f", N = {part.n}" if part.n is not None else "")
        if part.estimate is not None
        else part.name
        for part in one.outcome.parts
    ]
    words = [f"{one.claim.test} Here: {one.outcome.reason}", *parts]
    return tables.sentence(one), "; ".join(words) + "."


def _families(runs: Sequence[Run], *, drawn: bool) -> Section:
    complete = [family for family in find_families(runs) if family.complete]
    blocks: list[Block | Heading] = []
    for family in complete:
        blocks += _family(family, drawn=drawn)
    if blocks:
        blocks.append(Text(f"The paper's: {two_by_two.PAPER_NOTE}."))
    return Section("EGA and MoPE together: the 2×2s", tuple(blocks))


def _family(family: Family, *, drawn: bool) -> list[Block | Heading]:
    result = superadditivity(family)
    if result.refused:
        return [Heading(family.label), Text(f"Not computed: {result.refused}")]
    cells, gains = two_by_two.cells_table(result), two_by_two.gains_table(result)
    shown = two_by_two.printed(cells)
    blocks: list[Block | Heading] = [
        Heading(family.label),
        Text(two_by_two.verdict(result), strong=True),
        *([Text(f"{compare.FUTURE_MARK} {two_by_two.FUTURE_NOTE}")] if family.sees_future else []),
        _table(shown.columns, shown.to_numpy().tolist(), numbers=list(shown.columns)[1:]),
    ]
    if drawn:
        blocks.append(
            Drawing(
                lambda: waterfall(cells, gains, f"validation loss ({result.unit})"),
                alt=two_by_two.verdict(result),
                how_to_read="From the baseline, each bar is what EGA and MoPE change alone; the last, the interaction, is "
                "what lies between plain addition and both together. Blue lowers the loss, orange raises it.",
            )
        )
    remarks = two_by_two.remarks(result)
    if remarks:
        blocks.append(Text(". ".join(remarks) + "."))
    return [*blocks, *_course(result, drawn=drawn)]


def _course(result: Superadditivity, *, drawn: bool) -> list[Block | Heading]:
    """How the gains come and go in training; nothing where the runs share no step but the first."""
    course = two_by_two.course_table(result)
    shown = two_by_two.printed_course(course)
    if shown.empty:
        return []
    blocks: list[Block | Heading] = [
        Text(
            "The same gains on the way there, at steps at which all of these runs were validated. A training of that "
            "length would have lowered its learning rate by then."
        ),
        _table(shown.columns, shown.to_numpy().tolist(), numbers=shown.columns),
    ]
    if drawn:
        blocks.append(
            Drawing(
                lambda: gains_over_training(course, result.unit),
                alt="Gains at each step of the training",
                how_to_read="Means over seeds at every step at which all of these runs were validated; bands are 95 % "
                "intervals. Above 0 is a gain over the baseline, for the interaction over plain addition.",
            )
        )
    return blocks


def _losses(runs: Sequence[Run], *, drawn: bool) -> Section:
    found = compare.configurations(runs)
    keys = [one.key for one in found]
    colours, dashes = run_colours(keys), run_dashes(keys)
    blocks: list[Block | Heading] = []
    for panel in compare.panels(found):
        names = compare.labels(panel.configurations)
        summary = compare.summary_table(panel.configurations, names)
        rows = [
            (row["configuration"], str(row["N"]), *(_loss(row[key]) for key in ("mean", "sd", "95 % from", "95 % to")),
             str(row["diverged"]), row["sees the future"])
            for _, row in summary.iterrows()
        ]  # fmt: skip
        columns = ("configuration", "N", "mean", "sd", "95 % from", "95 % to", "diverged", "sees the future")
        blocks += [Heading(panel.title), _table(columns, rows, numbers=columns[1:6])]
        if drawn:
            blocks.append(_curves(panel, names, colours, dashes))
    if blocks:
        note = "Lowest validation loss of each finished run, nats per token; 95 % t interval over seeds. Losses of two "
        note += f"tables do not compare. {compare.FUTURE_MARK}: gates that see the future."
        blocks.insert(0, Text(note))
    return Section("Losses", tuple(blocks))


def _loss(value: float) -> str:
    return NOTHING if value != value else f"{value:.4f}"


def _curves(
    panel: compare.Panel, names: dict[str, str], colours: dict[str, str], dashes: dict[str, str]
) -> Drawing:
    def make() -> go.Figure:
        members = compare.curves_table(panel, names, ["validation"])
        means = compare.means_table(members)
        return loss_curves(
            members, means, colours, dashes, "step", "validation loss (nats per token)", leave_out=0.1
        )

    return Drawing(make, alt=f"Loss curves: {panel.title}", how_to_read=curves.how_to_read("range", 0.1))


def _runs(runs: Sequence[Run]) -> Section:
    rows = []
    for run in runs:
        row = summarise(run)
        losses = [
            NOTHING if row[key] is None else f"{row[key]:.4f}"
            for key in ("best_loss_nats", "final_loss_nats")
        ]
        parameters = f"{run.document['parameters']['total']:,}"
        rows.append((run.name, f"{row['corpus']}, {row['tokenizer']}", str(row["seed"]), parameters, row["status"],
                     *losses, FUTURE_WORDS[row["sees_future"]]))  # fmt: skip
    columns = ("run", "text", "seed", "parameters", "status", "best loss", "final loss", "sees the future")
    numbers = ("seed", "parameters", "best loss", "final loss")
    return Section("Runs", (_table(columns, rows, numbers=numbers),) if rows else ())


def _audits(runs: Sequence[Run]) -> Section:
    audits = {run.path: audit for run in runs if (audit := run.audit) is not None}
    found = compare.configurations(run for run in runs if run.path in audits)
    names = compare.labels(found)
    rows = []
    for one in found:
        own = [audits[run.path] for run in one.runs]
        verdicts = Counter(str(audit.get("verdict")) for audit in own)
        moved, *losses = (
            [audit[key] for audit in own if audit.get(key) is not None]
            for key in ("max_logit_change", *(f"{key}_nats" for key in LOSSES))
        )
        rows.append((names[one.key], ", ".join(f"{verdict} × {n}" for verdict, n in verdicts.items()),
                     f"{max(moved):.2g}" if moved else NOTHING,
                     *(f"{mean(loss):.3f}" if loss else NOTHING for loss in losses)))  # fmt: skip
    note = (
        "Verdicts of the causality audit; the largest movement of a logit when only later tokens change; loss with the "
        "true future, with another text's, and with none, nats per token at the same sampled predictions, a mean over "
        "runs."
    )
    columns = (
        "configuration",
        "verdict × runs",
        "logits move by",
        "true future",
        "exchanged future",
        "prefix only",
    )
    table = _table(columns, rows, numbers=columns[2:])
    return Section("Does it see the future?", (Text(note), table) if rows else ())


def _broken(runs: Sequence[BrokenRun]) -> Section:
    rows = [(run.name, run.problem) for run in runs]
    return Section("Folders that cannot be read", (_table(("folder", "problem"), rows),) if rows else ())


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]], numbers: Iterable[str] = ()) -> Table:
    return Table(tuple(columns), tuple(tuple(row) for row in rows), tuple(numbers))
