"""Runs side by side: grouped into configurations, configurations into panels that may share an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from ega_mope.analysis.curves import Convert, mean_table, member_table
from ega_mope.analysis.intervals import t_interval
from ega_mope.analysis.losses import compare_at, diverged
from ega_mope.analysis.naming import attention_name, digest, position_name, setting_name
from ega_mope.analysis.runs import FUTURE_WORDS, any_sees_future
from ega_mope.config import Plain
from ega_mope.runs import Run

Scale = Callable[["Configuration"], Convert]
"""How to convert a configuration's losses from nats per token to what is shown."""

MECHANISMS = ("model.attention.", "model.position.")

FUTURE_MARK = "⚠"
"""Stands in the name of every configuration that sees the future."""

FOLLOWS = {
    "model.vocabulary_size": ("corpus.sha256", "corpus.tokenizer"),
    "corpus.sha256": ("corpus.name",),
    "training.evaluate_every": ("training.steps",),
    "training.log_every": ("training.steps",),
}
"""Settings that need no mention where what they go along with differs too."""


@dataclass(frozen=True)
class Configuration:
    """Runs with the same settings and the same evaluation; only their seeds differ."""

    key: str
    runs: tuple[Run, ...]

    @property
    def example(self) -> Run:
        return self.runs[0]

    @cached_property
    def settings(self) -> Plain:
        """Settings by dotted key."""
        return self.example.settings()

    @property
    def evaluation(self) -> Plain:
        return self.example.evaluation

    @property
    def sees_future(self) -> bool | None:
        """Of any of its runs: one that does not agree with the others must not go unmarked."""
        return any_sees_future(self.runs)

    @property
    def n_diverged(self) -> int:
        """Runs with a loss that was not finite."""
        return sum(map(diverged, self.runs))


def configurations(runs: Iterable[Run]) -> list[Configuration]:
    """Runs grouped by settings and evaluation, in the order of their first runs.

    A text is its hash: the same text under another name is the same. How an imported run was trained is
    not known, so it stands alone.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings = {key: value for key, value in run.settings().items() if key != "corpus.name"}
        alone = str(run.path) if run.config.training is None else None
        groups.setdefault(digest([settings, run.evaluation, alone]), []).append(run)
    return [
        Configuration(key, tuple(sorted(group, key=lambda run: (run.seed or 0, run.name))))
        for key, group in groups.items()
    ]


def labels(found: Sequence[Configuration]) -> dict[str, str]:
    """A name for each configuration, by key: its mechanisms, and in what else it differs from the others."""
    differing = _differing(found)
    silent = {key for key, sources in FOLLOWS.items() if any(source in differing for source in sources)}
    named = {one.key: _label(one, differing, silent) for one in found}
    if len(set(named.values())) < len(named):
        named = {one.key: _label(one, differing, set()) for one in found}
    # What settings cannot tell apart differs in its evaluation, or was imported: its run can.
    clashes = {name for name in named.values() if list(named.values()).count(name) > 1}
    return {
        one.key: f"{named[one.key]} ({one.example.name})" if named[one.key] in clashes else named[one.key]
        for one in found
    }


def named(found: Sequence[Configuration], words: str) -> list[Run]:
    """Runs with each of these words, upper or lower case, in their own name or their configuration's."""
    names, asked = labels(found), words.lower().split()
    return [
        run
        for one in found
        for run in one.runs
        if all(word in f"{run.name} {names[one.key]}".lower() for word in asked)
    ]


def counted(found: Sequence[Configuration]) -> str:
    """How many runs and configurations, how many diverged, which see the future: a line in words."""
    n_runs, n_diverged = sum(len(one.runs) for one in found), sum(one.n_diverged for one in found)
    words = [f"{n_runs} runs in {len(found)} configurations" if n_runs > 1 else "1 run"]
    if n_diverged:
        words.append(f"{n_diverged} of them diverged (a loss that is not a finite number)")
    n_future = sum(run.sees_future is True for one in found for run in one.runs)
    if n_future:
        words.append(f"{n_future} with gates that see the future (marked {FUTURE_MARK})")
    return "; ".join(words) + "."


def _label(one: Configuration, differing: Sequence[str], silent: set[str]) -> str:
    """Both mechanisms, since every comparison here is about them, then what else differs."""
    model = one.example.config.model
    words = [f"{attention_name(model.attention)} + {position_name(model.position)}"]
    if one.sees_future:
        words[0] += f" {FUTURE_MARK}"
    if one.example.config.training is None:
        words.append("imported")
    for key in differing:
        if not key.startswith(MECHANISMS) and key not in silent and key in one.settings:
            value = one.settings[key]
            words.append(value[:8] if key == "corpus.sha256" else setting_name(key.rpartition(".")[2], value))
    return ", ".join(words)


def _differing(found: Sequence[Configuration]) -> list[str]:
    """Dotted keys with different values; one that is merely missing in some follows from their mechanism's name."""
    keys = list(dict.fromkeys(key for one in found for key in one.settings))
    return [key for key in keys if len({str(one.settings[key]) for one in found if key in one.settings}) > 1]


def differences(found: Sequence[Configuration], names: Mapping[str, str]) -> pd.DataFrame:
    """One row a setting that differs, one column a configuration; "-" where a mechanism has no such setting."""
    keys = _differing(found)
    columns = {names[one.key]: [str(one.settings.get(key, "-")) for key in keys] for one in found}
    return pd.DataFrame({"setting": keys, **columns})


@dataclass(frozen=True)
class Panel:
    """Configurations whose losses may share an axis, and what was measured, in words."""

    key: str
    title: str
    tokenizer: str
    configurations: tuple[Configuration, ...]

    @property
    def n_runs(self) -> int:
        return sum(len(one.runs) for one in self.configurations)


def panels(found: Iterable[Configuration]) -> list[Panel]:
    """One panel an `evaluation`, most runs first: losses of different evaluations never share an axis."""
    groups: dict[str, list[Configuration]] = {}
    for one in found:
        groups.setdefault(digest(one.evaluation), []).append(one)
    made = [
        Panel(key, evaluation_title(group[0].example), group[0].example.config.tokenizer, tuple(group))
        for key, group in groups.items()
    ]
    return sorted(made, key=lambda panel: -panel.n_runs)


def evaluation_title(run: Run) -> str:
    """What its validation loss was measured on, in words."""
    evaluation = run.evaluation
    if "batches" in evaluation:
        measured = f"{evaluation['batches']} random batches of {evaluation['batch_size']} windows"
    elif "windows" in evaluation:
        measured = f"all {evaluation['windows']:,} windows"
    else:
        measured = f"as measured by {evaluation.get('measured_by', 'another program')}"
    text = run.document["corpus"]["name"] or "a text that is not known"
    return f"{text}, {run.config.tokenizer}, context {evaluation['context']}, {measured}"


def summary_table(
    found: Sequence[Configuration],
    names: Mapping[str, str],
    compare_point: str = "best",
    scale: Scale = lambda one: np.asarray,
) -> pd.DataFrame:
    """One row a configuration: N, mean, sd, 95 % t interval, how many diverged, which do not count and why, seeds.

    Losses are nats per token unless `scale` says otherwise. The common step of `common_step` is one for
    all of them. Columns hold NaN where N is too small.
    """
    compared = compare_at((run for one in found for run in one.runs), compare_point)
    rows = []
    for one in found:
        used = [run for run in one.runs if run.path in compared.loss_nats]
        losses = scale(one)(np.array([compared.loss_nats[run.path] for run in used]))
        interval = t_interval(losses)
        others = [run for run in one.runs if run.path in compared.left_out and not diverged(run)]
        rows.append(
            {
                "configuration": names[one.key],
                "N": len(losses),
                "mean": losses.mean() if len(losses) else np.nan,
                "sd": losses.std(ddof=1) if len(losses) > 1 else np.nan,
                "95 % from": interval.low if interval else np.nan,
                "95 % to": interval.high if interval else np.nan,
                "diverged": one.n_diverged,
                "not counted": "; ".join(f"{run.name}: {compared.left_out[run.path]}" for run in others),
                "seeds": ", ".join(str(run.seed) for run in used),
                "sees the future": FUTURE_WORDS[one.sees_future],
                "step": compared.step,
            }
        )
    table = pd.DataFrame(rows)
    return table if compare_point == "common_step" else table.drop(columns="step")


def markdown_table(runs: Iterable[Run]) -> str:
    """One row a configuration as a Markdown table: its runs, and the lowest loss of each run in nats per token,
    their mean and the range. Losses compare only within one text.
    """
    lines = [
        "| model | text | runs | best loss | lowest and highest | sees the future |",
        "|---|---|---:|---:|---|---|",
    ]
    for panel in panels(configurations(runs)):
        names = labels(panel.configurations)
        for one in panel.configurations:
            losses = list(compare_at(one.runs, "best").loss_nats.values())
            mean = f"{np.mean(losses):.4f}" if losses else "-"
            ends = f"{min(losses):.4f}, {max(losses):.4f}" if len(losses) > 1 else "-"
            text = f"{one.example.document['corpus']['name']}, {panel.tokenizer}"
            future = FUTURE_WORDS[one.sees_future].replace("yes", "**yes**")
            lines.append(f"| {names[one.key]} | {text} | {len(one.runs)} | {mean} | {ends} | {future} |")
    return "\n".join(lines)


def curves_table(
    panel: Panel,
    names: Mapping[str, str],
    splits: Sequence[str],
    axis: str = "step",
    scale: Scale = lambda one: np.asarray,
    smoothing: float = 0.0,
) -> pd.DataFrame:
    """Every record of every run in a panel: evaluation, configuration, key, split, line, then `member_table`.

    `line` names what is one line in a figure: the configuration, and the split where there are several.
    """
    parts = []
    for one in panel.configurations:
        for split in splits:
            table = member_table(one.runs, split, axis, scale(one), smoothing)
            parts.append(
                table.assign(
                    evaluation=panel.title,
                    configuration=names[one.key],
                    key=one.key,
                    split=split,
                    line=names[one.key] if len(splits) == 1 else f"{names[one.key]}, {split}",
                )
            )
    table = pd.concat(parts, ignore_index=True)
    first = ["evaluation", "configuration", "key", "split", "line"]
    return table[first + [column for column in table.columns if column not in first]]


def means_table(members: pd.DataFrame, band: str = "range") -> pd.DataFrame:
    """`mean_table` of each line of a `curves_table`: configuration, key, split, line, then its columns."""
    parts = []
    for line, table in members.groupby("line", sort=False):
        same = table.iloc[0]
        means = mean_table(table, band)
        parts.append(
            means.assign(
                configuration=same["configuration"], key=same["key"], split=same["split"], line=str(line)
            )
        )
    first = ["configuration", "key", "split", "line"]
    table = pd.concat(parts, ignore_index=True) if parts else mean_table(members, band).reindex(columns=first)
    return table[first + [column for column in table.columns if column not in first]]
