"""`ega-mope sweep`: a grid of configurations at several seeds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ega_mope.cli.output import device_option, json_option, note, print_json, print_table

if TYPE_CHECKING:
    from ega_mope.sweeps import Progress


@click.command()
@click.option("--grid", required=True, metavar="2x2|study|mechanisms|planted|FILE", help="What to compare.")
@click.option("--seeds", default="0", show_default=True, metavar="0-5", help="Seeds, such as 0-5 or 0,2,7.")
@click.option(
    "--preset", default="small", show_default=True, metavar="smoke|small|paper", help="Size and schedule."
)
@click.option(
    "--corpus", default="tinyshakespeare", show_default=True, metavar="NAME|FILE", help="Text to learn."
)
@click.option("--tokenizer", default="characters", show_default=True, metavar="characters|bytes")
@click.option(
    "--jobs", default=1, show_default=True, type=click.IntRange(1), help="Trainings at once, one thread each."
)
@click.option(
    "--runs", "folder", type=click.Path(path_type=Path), help="Folder of runs [EGA_MOPE_RUNS, else ./runs]."
)
@click.option("--resume", is_flag=True, help="Go on with runs that were interrupted, stopped or failed.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any setting, such as training.steps=500; one of a mechanism goes to the cells that have it.",
)
@device_option
@json_option
def sweep(
    grid: str,
    seeds: str,
    preset: str,
    corpus: str,
    tokenizer: str,
    jobs: int,
    folder: Path | None,
    resume: bool,
    overrides: tuple[str, ...],
    device: str,
    as_json: bool,
) -> int:
    """Train every cell of a grid at every seed; what is there already is not trained again.

    2x2 is {dot, EGA causal} × {learned, MoPE}; study is the baseline, MoPE, and EGA and both under the gate norms
    causal, sequence and visible. mechanisms is every other mechanism of the paper at 1,000 steps, beside a
    baseline and EGA causal; planted is for --corpus planted. A TOML file lists cells:

    \b
      [[cell]]
      attention = "ega"                                # a name, or a table
      position = { name = "mope", init = "multiscale" }
      set = { steps = 500, "training.learning_rate" = 3e-4 }    # optional
      label = "short"                                  # optional

    Ctrl-C ends the trainings so that --resume goes on with them. Exit status 1 where a run did not finish.
    """
    from ega_mope.analysis.runs import FUTURE_WORDS
    from ega_mope.experiments import signals_noted
    from ega_mope.model import choose_device
    from ega_mope.runs import runs_folder
    from ega_mope.sweeps import cells_of, plan, read_seeds, summarise
    from ega_mope.sweeps import sweep as run_sweep

    choose_device(device)
    planned = plan(
        cells_of(grid),
        read_seeds(seeds),
        preset_name=preset,
        corpus=corpus,
        tokenizer=tokenizer,
        overrides=overrides,
    )
    folder = (folder or runs_folder()).absolute()
    note(f"{len(planned)} runs in {folder}")
    with signals_noted() as signalled:
        outcomes = run_sweep(
            planned, folder, jobs=jobs, resume=resume, device=device, watch=_tell, stop=signalled
        )
    summary = summarise(outcomes)
    if as_json:
        print_json(summary)
    else:
        columns = ("cell", "n", "mean_best_loss_nats", "mean_final_loss_nats", "failed", "unfinished")
        rows = [
            [*(row[column] for column in columns), FUTURE_WORDS[row["sees_future"]] if row["n"] else None]
            for row in summary["cells"]
        ]
        print_table([*columns, "sees the future"], rows)
    for row in summary["runs"]:
        if row["state"] != "finished":
            note(f"{row['name']}: {row['state']}, {row['problem']}")
    if not summary["one_evaluation"]:
        note("the losses were measured on different windows or texts: do not compare them between cells")
    if signalled():
        note("go on with: the same command and --resume")
    return int(any(row["state"] != "finished" for row in summary["runs"]))


def _tell(progress: Progress) -> None:
    """A line for each thing that happens and, where somebody watches, how far it is and for how long yet."""
    watched = sys.stderr.isatty()
    clear = "\r\033[K" if watched else ""
    ended = progress.done + progress.unfinished
    count = f"{ended}/{progress.total} runs"
    if ended < progress.total:
        left = progress.seconds_left
        count += ", time left unknown yet" if left is None else f", {_time(left)} left"
    if progress.said:
        note(f"{clear}[{count}] {progress.said}")
    if watched:
        filled = 20 * ended // progress.total
        bar = "█" * filled + "░" * (20 - filled)
        click.echo(f"{clear}{bar} {count}, {len(progress.running)} running", nl=False, err=True)


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"about {round(seconds)} s"
    return f"about {minutes} min" if minutes < 90 else f"about {seconds / 3600:.1f} h"
