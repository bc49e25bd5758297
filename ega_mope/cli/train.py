"""`ega-mope train`: train one model into a run folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ega_mope.cli.output import device_option, json_option, note, print_json

if TYPE_CHECKING:
    from ega_mope.training import Record


@click.command()
@click.option("--attention", default="dot", show_default=True, metavar="NAME", help="dot, ega, …")
@click.option(
    "--position", default="learned", show_default=True, metavar="NAME", help="learned, mope, rope, …"
)
@click.option(
    "--gate-norm",
    metavar="NAME",
    help="What EGA compares a token's energy with: causal, visible, sequence, none.",
)
@click.option("--signal", metavar="NAME", help="What EGA's gate listens to: linear, …")
@click.option(
    "--scales-from",
    metavar="RUN",
    help="Run whose ω and σ the positions start with; --set position.freeze=both keeps them.",
)
@click.option(
    "--projection-from",
    metavar="RUN",
    help="Run whose projection EGA's gates start with; --set attention.freeze=projection keeps it.",
)
@click.option(
    "--preset", default="small", show_default=True, metavar="smoke|small|paper", help="Size and schedule."
)
@click.option(
    "--corpus", default="tinyshakespeare", show_default=True, metavar="NAME|FILE", help="Text to learn."
)
@click.option("--tokenizer", default="characters", show_default=True, metavar="characters|bytes")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Weights and batches.")
@click.option(
    "--runs", "folder", type=click.Path(path_type=Path), help="Folder of runs [EGA_MOPE_RUNS, else ./runs]."
)
@click.option("--name", help="Name of the run; made from its settings unless given.")
@click.option("--resume", is_flag=True, help="Go on with the interrupted or stopped run --name.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Any setting, such as training.steps=500."
)
@click.option("--threads", type=click.IntRange(1), help="CPU threads of this training.")
@click.option(
    "--samples", default=0, type=click.IntRange(0), metavar="TOKENS", help="Write a text at each evaluation."
)
@device_option
@json_option
def train(
    attention: str,
    position: str,
    gate_norm: str | None,
    signal: str | None,
    scales_from: str | None,
    projection_from: str | None,
    preset: str,
    corpus: str,
    tokenizer: str,
    seed: int,
    folder: Path | None,
    name: str | None,
    resume: bool,
    overrides: tuple[str, ...],
    threads: int | None,
    samples: int,
    device: str,
    as_json: bool,
) -> None:
    """Train one model. Ctrl-C, or a file STOP in its folder, ends it so that it can be resumed."""
    import torch

    from ega_mope.attention import ATTENTIONS
    from ega_mope.experiments import compose, resume_experiment, run_experiment
    from ega_mope.positions import POSITIONS
    from ega_mope.runs import checked_name, open_run, runs_folder

    if threads:
        torch.set_num_threads(threads)
    folder = (folder or runs_folder()).absolute()
    if name is not None:
        checked_name(name)
    if resume:
        if name is None:
            raise ValueError(
                "resume: expected --name with the run to go on with, got none; see `ega-mope runs`"
            )
        path = folder / name
        trained = open_run(path).config.training
        ended = resume_experiment(
            path, device=device, sample_tokens=samples, watch=_Progress(trained.steps if trained else 0)
        )
    else:
        _check_giving("--projection-from", projection_from, ATTENTIONS, attention)
        _check_giving("--scales-from", scales_from, POSITIONS, position)
        chosen = {"gate_norm": gate_norm, "signal": signal, "from_run": projection_from}
        config = compose(
            {"name": attention, **{key: value for key, value in chosen.items() if value is not None}},
            {"name": position, **({} if scales_from is None else {"from_run": scales_from})},
            preset_name=preset,
            corpus=corpus,
            tokenizer=tokenizer,
            seed=seed,
            overrides=overrides,
        )
        path, ended = run_experiment(
            config,
            folder,
            name=name,
            device=device,
            sample_tokens=samples,
            watch=_Progress(config.training.steps),
        )
    _report(path, ended, as_json)


def _check_giving(option: str, run: str | None, registry: dict[str, Any], name: str) -> None:
    """ValueError where a mechanism of this name has nothing that could be taken from a run."""
    able = [other for other, cls in registry.items() if cls.prior is not None]
    if run is not None and name in registry and name not in able:
        raise ValueError(
            f"{option}: expected one of ({', '.join(able)}) to take it, got {name}; choose one of them, or leave it out"
        )


class _Progress:
    """One line for each evaluation, and between them a counter where somebody is watching."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.speed = 0.0
        self.counts = sys.stderr.isatty()

    def __call__(self, record: Record) -> None:
        from ega_mope.training import Metrics, Step

        if isinstance(record, Metrics) and record.split == "validation":
            loss = "not finite" if record.loss_nats is None else f"{record.loss_nats:.4f} nats"
            clear = "\r\033[K" if self.counts else ""
            note(f"{clear}step {record.step}/{self.steps}  validation loss {loss}  {record.seconds:.0f} s")
        elif isinstance(record, Metrics):
            self.speed = record.tokens_per_second or 0.0
        elif isinstance(record, Step) and self.counts and record.step % 5 == 0:
            click.echo(
                f"\rstep {record.step}/{self.steps}  {self.speed:,.0f} tokens/s\033[K", nl=False, err=True
            )


def _report(path: Path, ended: str, as_json: bool) -> None:
    from ega_mope.analysis.runs import future_mark, peak_memory_words
    from ega_mope.runs import Run

    run = Run(path)
    best, final, peak = run.best(), run.final(), run.peak_memory_bytes()
    if as_json:
        print_json(
            {
                "name": run.name,
                "path": str(run.path),
                "status": ended,
                "best_loss_nats": best and best.loss_nats,
                "final_loss_nats": final and final.loss_nats,
                "peak_memory_bytes": peak,
                "sees_future": run.sees_future,
            }
        )
        return
    mark = f" ({future_mark(run.sees_future)})" if future_mark(run.sees_future) else ""
    loss = f", best validation loss {best.loss_nats:.4f} nats at step {best.step}" if best else ""
    click.echo(f"{ended}: {run.path}{loss}{mark}{peak_memory_words(peak)}")
    if ended == "stopped":
        note(f"go on with: ega-mope train --resume --runs {run.path.parent} --name {run.name}")
